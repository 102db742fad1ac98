// The places to which the program's faults came last, pages or blocks: a fault beside one of them goes on where that one was.
// Several are known, since several threads may go on side by side.
//
// Knows nothing of blocks, engines or stores. Private to src/pager; for the pager thread alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>

namespace headroom::pager {

class RecentPlaces {
 public:
  /// Notes that a fault came to that place. One that is known already says nothing new: its access waited, and tries again.
  void note(uint64_t place) {
    if (std::find(std::begin(places_), std::end(places_), place) == std::end(places_)) {
      places_[next_++ % kPlaces] = place;
    }
  }
  /// Whether a fault came to another place, at most so far away, a moment ago.
  [[nodiscard]] bool has_near(uint64_t place, uint64_t distance) const {
    return std::any_of(std::begin(places_), std::end(places_), [&](uint64_t other) {
      return other != kNone && other != place && (other > place ? other - place : place - other) <= distance;
    });
  }

 private:
  static constexpr uint64_t kPlaces = 4;
  static constexpr uint64_t kNone = UINT64_MAX;
  uint64_t places_[kPlaces] = {kNone, kNone, kNone, kNone};
  uint64_t next_ = 0;
};

}  // namespace headroom::pager
