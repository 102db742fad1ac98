// Asking other ranks for room. The other rank is played by the test: a member of the ledger that has more than its share, and
// answers as the test wants.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "environment.h"
#include "heap/heap.h"
#include "node/session.h"
#include "pager/state.h"
#include "trace/counters.h"

namespace headroom::pager {
namespace {

constexpr uint64_t kArray = 72 << 20;
constexpr int kOther = 1;
constexpr int kThird = 2;
constexpr int kMany = 5;

uint64_t now_ns() {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count());
}

/// Says at once that it has given what it can, as if somebody else had taken that; after many questions, that it has no more.
/// Or it is stopped: it takes no question.
class OtherRank {
 public:
  explicit OtherRank(bool is_stopped) : member_(session().ledger->members[kOther]) {
    node::note_used_places(*session().ledger, kOther + 1);
    member_.pid.store(getpid());
    member_.rank.store(kOther);
    member_.memory.reserved_bytes.store(20 << 20);
    member_.turns.run_state.store(static_cast<uint32_t>(node::RunState::kBlocked));
    member_.turns.blocked_since_ns.store(now_ns());
    session().ledger->alive.fetch_add(1);
    member_.state.store(static_cast<uint32_t>(node::MemberState::kAlive), std::memory_order_release);
    if (!is_stopped) {
      thread_ = std::thread([this] { answer(); });
    }
  }
  ~OtherRank() {
    ends_.store(true);
    if (thread_.joinable()) {
      thread_.join();
    }
    member_.state.store(static_cast<uint32_t>(node::MemberState::kLeft));
    session().ledger->alive.fetch_sub(1);
  }
  OtherRank(const OtherRank&) = delete;
  OtherRank& operator=(const OtherRank&) = delete;

  /// The most that were asked one after the other, without room having been found elsewhere.
  [[nodiscard]] int most_in_a_row() const { return most_in_a_row_.load(); }
  void a_word_was_used() { in_a_row_.store(0); }

 private:
  void answer() {
    while (!ends_.load()) {
      if (!member_.memory.asked_by.has(session().index)) {
        std::this_thread::yield();
        continue;
      }
      EXPECT_EQ(member_.memory.asked_by.words[0].exchange(0), uint64_t{1} << session().index);
      EXPECT_GT(member_.memory.asked_bytes.exchange(0), 0);
      const int asked = in_a_row_.fetch_add(1) + 1;
      most_in_a_row_.store(std::max(most_in_a_row_.load(), asked));
      if (asked >= kMany) {
        member_.memory.refused_ns.store(now_ns());
      }
      session().self->memory.answered_by.add(kOther);
      session().self->memory.answered_by.add(kThird);  // late, to an older question: it must not hide the answer
      node::ring(session(), session().index);
    }
  }

  node::Member& member_;
  std::atomic<bool> ends_{false};
  std::atomic<int> in_a_row_{0};
  std::atomic<int> most_in_a_row_{0};
  std::thread thread_;
};

/// Three times the budget; nullptr if that cannot be had.
uint64_t* start_with_array() {
  test::set_environment("24M", "auto");
  auto* array = start() == base::Status::kOk ? static_cast<uint64_t*>(heap::allocate(kArray, 1, false)) : nullptr;
  for (uint64_t index = 0; array != nullptr && index < kArray / 8; ++index) {
    array[index] = index + 1;
  }
  return is_armed() ? array : nullptr;
}

TEST(Room, WhoAsksOneThatIsStoppedHelpsHimself) {
  const uint64_t* array = start_with_array();
  ASSERT_NE(array, nullptr);
  {
    const OtherRank other(true);
    for (uint64_t index = 0; index < kArray / 8; index += arena::kBlockBytes / 8 * 16) {
      session().self->memory.answered_by.add(kOther);  // long ago, to another question
      EXPECT_EQ(array[index], index + 1);
    }
  }
  EXPECT_EQ(trace::counted(trace::Counter::kRoomRequests), 1U);            // that one stands
  EXPECT_EQ(trace::counted(trace::Counter::kRoomRequestsUnanswered), 1U);  // and nobody waits for it again
}

TEST(Room, WhoWasAnsweredAndHasNoneAsksAgain) {
  const uint64_t* array = start_with_array();
  ASSERT_NE(array, nullptr);
  {
    OtherRank other(false);
    // It might answer late on a busy machine, so that the pager has helped itself.
    for (int round = 0; round < 50 && other.most_in_a_row() < kMany; ++round) {
      for (uint64_t index = 0; index < kArray / 8; index += arena::kBlockBytes / 8) {
        EXPECT_EQ(array[index], index + 1);
        other.a_word_was_used();
      }
    }
    EXPECT_GE(other.most_in_a_row(), kMany);
  }
  EXPECT_GE(trace::counted(trace::Counter::kRoomRequests), uint64_t{kMany});
}

}  // namespace
}  // namespace headroom::pager
