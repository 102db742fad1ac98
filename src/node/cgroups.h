// The cgroups that this process is in: the files of each folder from its own up to where they are mounted, version 1 or 2.
//
// Inside a container, which sees its own cgroup as the root, the path that /proc/self/cgroup names may not exist below the
// mount, and then the part of it that exists counts. Allocates nothing; thread-safe.
#pragma once

#include <cstddef>

namespace headroom::node {

/// Reads the beginning of a small file; false if there is none.
bool read_text(const char* path, char* text, size_t room);

/// Calls `visit` for the folder of the cgroup that has `controller` ("cpu", "memory"), and for each above it. `own_cgroups` is
/// a file like /proc/self/cgroup, `root` where cgroups are mounted. `unified`: it is version 2.
void visit_cgroups(const char* own_cgroups, const char* root, const char* controller,
                   void (*visit)(const char* folder, bool unified, void* context), void* context);

}  // namespace headroom::node
