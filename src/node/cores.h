// The cores that the ranks of a node may use: the default number of slots.
#pragma once

#include <cstdint>

#include "node/ledger.h"

namespace headroom::node {

/// The tightest processor quota of a cgroup and its ancestors in whole cores, rounded up; kMaxCores without one.
/// `own_cgroups` is a file like /proc/self/cgroup, `root` where cgroups are mounted (version 1 or 2). Allocates nothing.
uint32_t quota_in_cores(const char* own_cgroups, const char* root);

/// Adds the cores that this process may run on to those that the node's ranks have.
void add_cores(Ledger& ledger);

}  // namespace headroom::node
