// Two ranks of a node, of which one is killed at each of many moments of what it does.
//
// That is cut into parts, and only the one in which it is killed is stepped: a step costs 15 us, a rank's beginning 3 ms.
#pragma once

#include <array>
#include <map>
#include <vector>

#include "base/system_calls.h"
#include "ranks.h"
#include "stepping.h"

namespace headroom::test {

constexpr int kMostParts = 8;
constexpr int kEachPart = -1;

struct Parts {
  std::atomic<int> stepped;                        // kEachPart to count
  std::array<std::atomic<long>, kMostParts> ends;  // in steps, from the beginning of the first
};
inline Parts* parts = nullptr;  // shared

/// Around each part of what the victim does.
inline void begin_part(int part) {
  if (parts->stepped.load() == part || parts->stepped.load() == kEachPart) {
    begin_stepping();
  }
}
inline void end_part(int part) {
  end_stepping();
  parts->ends[static_cast<size_t>(part)].store(steps->taken.load());
}

class KilledRanks : public Ranks {
 protected:
  void SetUp() override {
    Ranks::SetUp();
    open_steps();
    parts = static_cast<Parts*>(mmap(nullptr, sizeof(Parts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  }
  void TearDown() override {
    munmap(parts, sizeof(Parts));
    close_steps();
    Ranks::TearDown();
  }

  /// Two ranks do `work`. The other one must end well, or by an error that names the victim, wherever that one is killed.
  template <typename Work>
  void kill_at_moments(int victim, const char* memory, int part_count, Work work) {
    constexpr uint64_t kNs = 1'000'000'000;
    constexpr int kFewest = 20;
    parts->stepped = kEachPart;
    ASSERT_EQ(0, survive(victim, memory, kNobody, work)) << said();
    std::vector<long> ends;
    for (const auto& end : parts->ends) {
      ends.push_back(end);
    }
    ends.resize(static_cast<size_t>(part_count));
    const long all = ends.back();
    ASSERT_GT(all, 100);
    const uint64_t began = base::monotonic_ns();
    int kills = 0;
    for (; kills < kFewest || base::monotonic_ns() - began < kNs; ++kills) {
      // Evenly spread however many there are, the first at the very beginning.
      const long moment = static_cast<long>(static_cast<uint64_t>(kills) * 618'034 % 1'000'000) * all / 1'000'000;
      int part = 0;
      while (ends[static_cast<size_t>(part)] <= moment) {
        ++part;
      }
      parts->stepped = part;
      const long instruction = moment - (part > 0 ? ends[static_cast<size_t>(part - 1)] : 0) + 1;
      const int end = survive(victim, memory, instruction, work);
      ++ends_seen[end];
      ASSERT_TRUE(end == 0 || (end == kEndedByHeadroom && names(victim)))
          << "killed at instruction " << instruction << " of part " << part << ": " << end << "\n"
          << said();
    }
    // Not all: where the run that counted instructions waited long, some moments lie behind the end of the others.
    EXPECT_GE(deaths * 6, kills);
  }

  std::map<int, int> ends_seen;  // how often the other one ended with which status
  int deaths = 0;

 private:
  /// Whether the other one's error names the victim.
  [[nodiscard]] bool names(int victim) const {
    const std::string name = "rank " + std::to_string(victim) + " (process";
    const size_t error = said().find("error: ");
    const size_t named = error == std::string::npos ? error : said().find(name, error);
    return named != std::string::npos && named < said().find('\n', error);
  }

  template <typename Work>
  int survive(int victim, const char* memory, long killed_at, Work work) {
    steps->taken = 0;
    steps->killed_at = killed_at;
    steps->killed = false;
    start(2, memory, "auto", work);
    const int end = end_of(victim);
    const int end_of_other = end_of(1 - victim);
    deaths += end == -SIGKILL ? 1 : 0;
    if (end_of_other == 0) {
      EXPECT_TRUE(end == 0 || (end == -SIGKILL && killed_at != kNobody)) << "the victim at " << killed_at << ": " << end;
    }
    return end_of_other;
  }
};

}  // namespace headroom::test
