// The plan of a collective call: which rank aggregates which part of the file, with how large windows. Pure functions, without
// MPI.
//
// After Lu, Chen, Thakur and Zhuang, "Memory-Conscious Collective I/O for Extreme Scale HPC Systems" (ROSS 2013): nodes whose
// accesses do not mix are groups of their own, and a node's work is bounded by the memory that it has left. The paper then
// halves a group's range until the parts are small, and merges parts that would not fit; the slowest node then has several
// times the mean. Here the range is dealt out by weight, so that all aggregators end at about the same time: a node that has
// little left has small windows, does more rounds, and gets less of the file. A node below the floor gets none.
//
// All ranks compute the same plan from the same openings, so it is never sent.
#pragma once

#include <cstdint>

#include "collio/nest.h"

namespace headroom::collio {

/// The facts that each rank gives at the beginning of a call. All ranks know all openings.
struct Opening {
  Nest nest;          // of its view, if that is one
  int64_t skip = 0;   // bytes of the nest's stream before the access
  int64_t bytes = 0;  // of the access
  int64_t first = 0;  // where in the file the access begins,
  int64_t end = 0;    // and where it ends
  int64_t room = 0;   // bytes of memory left on its node, from the rank that aggregates there; 0 from others
  uint32_t flags = 0;
  uint32_t passed_for = 0;  // why the call cannot be served here: nonzero, and the library does all of it
};

enum OpeningFlags : uint32_t { kIsList = 1, kStaysApart = 2, kMayNotAggregate = 4 };

/// The largest window in bytes, and the smallest that is worth a round.
inline constexpr int64_t kLargestWindow = 2 << 20;
inline constexpr int64_t kSmallestWindow = 512 << 10;
/// An aggregator's memory for messages, besides its two windows.
inline constexpr int64_t kChunkBytes = 128 << 10;
inline constexpr int kStages = 8;
/// A node that has less left than this aggregates nothing: two smallest windows, the messages, and some pages of the file.
inline constexpr int64_t kFloor = 2 * kSmallestWindow + kStages * kChunkBytes + (1 << 20);
/// A shorter part of the file is not worth an aggregator of its own.
inline constexpr int64_t kSmallestDomain = 1 << 20;

/// How large each of an aggregator's two windows may be with `room` bytes left on its node and `most` at most.
int64_t window_for(int64_t room, int64_t most);

/// How much of the file an aggregator with such windows gets done in the time in which one with endless windows does 1.
double weight_of(int64_t window);

struct Domain {
  int rank;       // of its aggregator
  int64_t begin;  // of its part of the file
  int64_t end;
  int64_t window;  // bytes
};

/// One node's part in a call.
struct NodeAccess {
  int rank;  // that aggregates there
  int64_t first;
  int64_t end;
  int64_t room;
};

struct PlanLimits {
  int64_t most_window = kLargestWindow;
  int64_t alignment = 4096;  // domains begin at multiples
  int most_aggregators = INT32_MAX;
};

/// Deals the range [begin, end) out among `nodes` by weight, aligned; parts that would be empty are left out. At most `count`
/// domains; returns how many. Where no node has the floor, the one that has most left does all.
int deal(const NodeAccess* nodes, int count, int64_t begin, int64_t end, const PlanLimits& limits, Domain* domains);

/// Orders the nodes by where they begin, and deals each group of nodes whose ranges overlap its own range; `nodes` is changed.
/// A group without a node above the floor is merged with the next one; the last such group is served by nodes that access
/// nothing (first >= end) or by the aggregator that serves the one before. With fewer aggregators than nodes there is one
/// group. Returns the number of domains, at most `count`, in the order of the file.
int make_domains(NodeAccess* nodes, int count, const PlanLimits& limits, Domain* domains);

/// Whether some ranks' ranges overlap, so that there is something to gain by aggregating. `order`: room for `size` numbers.
bool is_interleaved(const Opening* openings, int size, int* order);

}  // namespace headroom::collio
