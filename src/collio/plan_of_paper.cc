// See plan_of_paper.h.
#include "collio/plan_of_paper.h"

namespace headroom::collio {

int64_t parts_by_bisection(int64_t begin, int64_t end, int64_t bytes) {
  int64_t parts = 1;
  while ((end - begin + parts - 1) / parts > bytes) {
    parts *= 2;
  }
  return parts;
}

int bisect_and_remerge(const NodeAccess* nodes, int count, int64_t begin, int64_t end, const PlanLimits& limits,
                       Domain* domains) {
  const int64_t parts = parts_by_bisection(begin, end, (end - begin + count - 1) / count);
  const auto boundary = [&](int64_t part) {
    return begin +
           static_cast<int64_t>(static_cast<double>(end - begin) * static_cast<double>(part) / static_cast<double>(parts));
  };
  int made = 0;
  int64_t waits_from = begin;  // parts without a node yet, at the beginning
  for (int node = 0; node < count; ++node) {
    const int64_t first = boundary(parts * node / count);
    const int64_t last = boundary(parts * (node + 1) / count);
    if (nodes[node].room >= kFloor) {
      domains[made] = {nodes[node].rank, made == 0 ? waits_from : first, last,
                       window_for(nodes[node].room, limits.most_window)};
      ++made;
    } else if (made > 0) {
      domains[made - 1].end = last;
    }
  }
  return made;
}

}  // namespace headroom::collio
