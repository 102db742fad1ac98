// See plan.h.
#include "collio/plan.h"

#include <algorithm>
#include <utility>

namespace headroom::collio {
namespace {

/// The cost of a round besides its bytes, in bytes that could have been written meanwhile (measured on local disks: 0.2 to 0.3
/// MB); it decides only how much less a node with small windows gets.
constexpr double kRoundBytes = 0.25e6;

int64_t align_down(int64_t position, int64_t alignment) { return position - position % alignment; }

bool has_room(const NodeAccess& node) { return node.room >= kFloor; }

bool begins_before(const NodeAccess& one, const NodeAccess& other) {
  return one.first != other.first ? one.first < other.first : one.rank < other.rank;
}

/// Mostly they are in order already, and there may be a million.
template <typename Before>
void put_in_order(NodeAccess* nodes, int count, Before before) {
  if (!std::is_sorted(nodes, nodes + count, before)) {
    std::sort(nodes, nodes + count, before);
  }
}

/// The nodes that aggregate are brought to the front: those above the floor, the ones with most room if there may not be as
/// many.
int choose_aggregators(NodeAccess* nodes, int count, int most) {
  int able = 0;
  for (int node = 0; node < count; ++node) {
    if (has_room(nodes[node])) {
      std::swap(nodes[able++], nodes[node]);  // these stay in their order
    }
  }
  if (able == 0) {
    std::iter_swap(nodes, std::max_element(nodes, nodes + count, [](const NodeAccess& one, const NodeAccess& other) {
                     return one.room != other.room ? one.room < other.room : one.rank > other.rank;
                   }));
    able = 1;
  }
  if (able > most) {
    std::sort(nodes, nodes + able, [](const NodeAccess& one, const NodeAccess& other) {
      return one.room != other.room ? one.room > other.room : one.rank < other.rank;
    });
    able = std::max(most, 1);
  }
  put_in_order(nodes, able, begins_before);
  return able;
}

}  // namespace

int64_t window_for(int64_t room, int64_t most) {
  const int64_t for_windows = (room - kStages * kChunkBytes) / 2;
  const int64_t window = std::min({for_windows, most, kLargestWindow});
  return std::max(align_down(window, 4096), std::min(kSmallestWindow, std::max<int64_t>(align_down(most, 4096), 4096)));
}

double weight_of(int64_t window) {
  const auto bytes = static_cast<double>(window);
  return bytes / (bytes + kRoundBytes);
}

int deal(const NodeAccess* nodes, int count, int64_t begin, int64_t end, const PlanLimits& limits, Domain* domains) {
  double all = 0;
  for (int node = 0; node < count; ++node) {
    all += weight_of(window_for(nodes[node].room, limits.most_window));
  }
  int made = 0;
  double so_far = 0;
  int64_t at = begin;
  for (int node = 0; node < count && at < end; ++node) {
    const int64_t window = window_for(nodes[node].room, limits.most_window);
    so_far += weight_of(window);
    int64_t until = end;
    if (node + 1 < count) {
      until = begin + static_cast<int64_t>(static_cast<double>(end - begin) * (so_far / all));
      until = std::clamp(align_down(until, limits.alignment), at, end);
    }
    if (until > at) {
      domains[made++] = {nodes[node].rank, at, until, window};
      at = until;
    }
  }
  return made;
}

int make_domains(NodeAccess* nodes, int count, const PlanLimits& limits, Domain* domains) {
  // Nodes that access nothing help only where no other has room.
  put_in_order(nodes, count, [](const NodeAccess& one, const NodeAccess& other) {
    const bool one_does = one.first < one.end;
    const bool other_does = other.first < other.end;
    return one_does != other_does ? one_does : begins_before(one, other);
  });
  const auto busy = static_cast<int>(
      std::find_if(nodes, nodes + count, [](const NodeAccess& node) { return node.first >= node.end; }) - nodes);
  const bool one_group = limits.most_aggregators < busy;
  int made = 0;
  for (int group = 0; group < busy;) {
    int after = group;
    const int64_t begin = nodes[group].first;
    int64_t end = begin;
    bool able = false;
    // A group ends where no range crosses, if somebody of it can do the work.
    for (; after < busy && (nodes[after].first < end || !able || one_group); ++after) {
      end = std::max(end, nodes[after].end);
      able = able || has_room(nodes[after]);
    }
    if (!able && made > 0 && std::none_of(nodes + busy, nodes + count, has_room)) {
      domains[made - 1].end = end;
      break;
    }
    const int members = (able ? after : count) - group;
    const auto worth = static_cast<int>(std::min<int64_t>((end - begin + kSmallestDomain - 1) / kSmallestDomain, INT32_MAX));
    const int chosen = choose_aggregators(nodes + group, members, std::min(limits.most_aggregators - made, worth));
    made += deal(nodes + group, chosen, begin, end, limits, domains + made);
    group = after;
  }
  return made;
}

bool is_interleaved(const Opening* openings, int size, int* order) {
  int busy = 0;
  for (int rank = 0; rank < size; ++rank) {
    if (openings[rank].bytes > 0) {
      order[busy++] = rank;
    }
  }
  std::sort(order, order + busy, [&](int one, int other) {
    return openings[one].first != openings[other].first ? openings[one].first < openings[other].first : one < other;
  });
  for (int at = 1; at < busy; ++at) {
    if (openings[order[at]].first < openings[order[at - 1]].end) {
      return true;
    }
  }
  return false;
}

}  // namespace headroom::collio
