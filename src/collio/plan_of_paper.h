// The plan as Lu, Chen, Thakur and Zhuang have it (ROSS 2013, "Dynamical Workload Partition Algorithm"), for comparison: the
// range is halved until each part is small, and parts whose node has too little memory left are merged with a neighbour.
// Headroom deals by weight instead (plan.h); `headroom simulate io` shows why.
#pragma once

#include <cstdint>

#include "collio/plan.h"

namespace headroom::collio {

/// How many parts [begin, end) has when it is halved until none has more than `bytes` bytes: all are equal, but for rounding.
int64_t parts_by_bisection(int64_t begin, int64_t end, int64_t bytes);

/// Bisects the range to at least `count` parts and gives them to the nodes in order, one or several each; a part that would go
/// to a node below the floor is merged with the one before it, or, where there is none, with the one behind. Returns the number
/// of domains, at most `count`, which cover the range; 0 if no node has the floor.
int bisect_and_remerge(const NodeAccess* nodes, int count, int64_t begin, int64_t end, const PlanLimits& limits,
                       Domain* domains);

}  // namespace headroom::collio
