// The memory that this process's node has left, as the kernel sees it: the least that one of its memory cgroups and their
// ancestors (version 1 and 2, memory.high too), or the whole node, could still give without swapping. Clean pages of files
// count as left, since the kernel drops them first.
#pragma once

#include <cstdint>

namespace headroom::node {

/// In bytes. `own_cgroups` is a file like /proc/self/cgroup, `root` where cgroups are mounted, `memory` a file like
/// /proc/meminfo. INT64_MAX if nothing of that can be read. Allocates nothing; thread-safe.
int64_t memory_left(const char* own_cgroups = "/proc/self/cgroup", const char* root = "/sys/fs/cgroup",
                    const char* memory = "/proc/meminfo");

}  // namespace headroom::node
