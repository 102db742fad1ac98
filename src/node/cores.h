// The cores that the ranks of a node may use: the default number of slots.
#pragma once

#include <sched.h>

#include <cstdint>

#include "node/ledger.h"

namespace headroom::node {

/// The tightest processor quota of a cgroup and its ancestors in whole cores, rounded up; kMaxCores without one.
/// `own_cgroups` is a file like /proc/self/cgroup, `root` where cgroups are mounted (version 1 or 2). Allocates nothing.
uint32_t quota_in_cores(const char* own_cgroups, const char* root);

/// The cores on which a thread of Headroom's own may run: those of the program and, if the launcher has bound that to fewer
/// cores than the launcher may use itself, those of the rest that are on the same NUMA nodes (memory is placed where the thread
/// runs) and that no other rank has (`ranks`: those that all of them have). `nodes` is the folder that describes the NUMA
/// nodes; cores that it does not describe are one node.
cpu_set_t cores_of_helper(const cpu_set_t& own, const cpu_set_t& launchers, const cpu_set_t& ranks, const char* nodes);

/// The process of the launcher that has started this one's program, if it may be asked where the job may run; else 0. Looks at
/// the environment, so the pager's thread must not call it: that may be in evictable memory.
pid_t find_launcher();
/// The same for this process, whose program may run on `own`. Allocates nothing.
cpu_set_t cores_of_helper(const Ledger& ledger, const cpu_set_t& own, pid_t launcher);

/// Adds the cores that this process may run on to those that the node's ranks have.
void add_cores(Ledger& ledger);

}  // namespace headroom::node
