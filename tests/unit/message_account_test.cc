// What messages have in message memory counts once, whatever happens meanwhile: memory becomes short while a copy waits for its
// receiver, what lies outside the arena is measured, the message is received.
#include <unistd.h>

#include "pager/state.h"
#include "ranks.h"
#include "trace/counters.h"

namespace headroom::direct {
namespace {

using test::Rank;

constexpr uint64_t kMessage = 32 << 20;
constexpr int64_t kBudget = 192 << 20;

/// Of both ranks, outside the arena and without what is reserved for messages.
int64_t other_bytes() {
  int64_t sum = 0;
  for (const node::Member& member : pager::session().ledger->used_members()) {
    sum += is_alive(member) ? member.memory.other_bytes.load() : 0;
  }
  return sum;
}

void must(bool is_right, const char* what) {
  if (!is_right) {
    dprintf(STDERR_FILENO, "%s\n", what);
    _exit(test::kWrong);
  }
}

int64_t sum_over_ranks(std::atomic<int64_t> node::MemberMemory::* bytes) {
  int64_t sum = 0;
  for (const node::Member& member : pager::session().ledger->used_members()) {
    sum += is_alive(member) ? (member.memory.*bytes).load() : 0;
  }
  return sum;
}

/// The ranks do nothing, but the other one's pager may be about to note what it has measured, in one word after the other.
bool is_node_right() {
  const node::Ledger& ledger = *pager::session().ledger;
  bool is_right = false;
  for (int look = 0; look < 100 && !is_right; ++look) {
    usleep(look > 0 ? 5000 : 0);
    is_right = ledger.free_bytes.load() == ledger.budget - sum_over_ranks(&node::MemberMemory::reserved_bytes);
  }
  return is_right;
}

/// All at rest: whether each rank's account is right, and the node's.
void check_account(Rank& rank, int64_t messages) {
  rank.meet();
  must(test::invariants_hold(), "a rank's account");
  must(is_node_right(), "the node's account");
  must(sum_over_ranks(&node::MemberMemory::message_bytes) == messages, "what messages have");
  rank.meet();
}

/// Long enough for what lies outside the arena to be measured exactly.
void wait_for_measurement() {
  const uint64_t begun = base::monotonic_ns();
  while (pager::state.other_measured_ns < begun + 1'100'000'000) {
    usleep(50'000);
  }
}

class MessageAccount : public test::Ranks {};

TEST_F(MessageAccount, ACopyCountsOnceWhenMemoryBecomesShort) {
  const auto work = [](Rank& rank) {
    auto* place = static_cast<char*>(mmap(nullptr, kMessage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    Sending* sending = nullptr;
    if (rank.self() == 0) {
      memset(place, 7, kMessage);
      const Content content = {place, kMessage, nullptr};
      if (endpoint().send(rank.member(1), {9, 0, 1}, content, SendKind::kStandard, 0, sending) == SendOutcome::kPending) {
        endpoint().copy_aside(sending, false);
        must(endpoint().try_to_finish(sending), "copied aside");
      }
    }
    munmap(place, kMessage);
    rank.meet();
    must(!pager::is_armed(), "memory is enough");
    rank.meet();  // what either allocates from here on may make it short for both
    char* const array = Rank::allocate(kBudget / 2 + (8 << 20));
    while (!pager::is_armed()) {
      usleep(1000);
    }
    memset(array, 1, 8 << 20);
    check_account(rank, kMessage);
    wait_for_measurement();
    check_account(rank, kMessage);
    const int64_t other_before = other_bytes();
    rank.meet();
    if (rank.self() == 1) {
      Receiving receiving;
      receiving.envelope = {9, 0, 1};
      receiving.member = rank.member(0);
      receiving.into = {array, kMessage, nullptr};
      endpoint().receive(receiving);
      Rank::wait_until([&] { return receiving.complete.load(); });
      must(receiving.bytes == kMessage && array[kMessage - 1] == 7, "content");
    }
    Rank::wait_until([&] { return pager::session().ledger->members[rank.member(0)].memory.message_bytes.load() == 0; });
    check_account(rank, 0);
    wait_for_measurement();
    check_account(rank, 0);
    const int64_t grown = other_bytes() - other_before;
    constexpr int64_t kLittle = kMessage / 4;
    must(-kLittle < grown && grown < kLittle, "what lies outside the arena has not changed");
  };
  start(2, "192M", "auto", work);
  EXPECT_EQ(end_of(0), 0) << said();
  EXPECT_EQ(end_of(1), 0) << said();
}

}  // namespace
}  // namespace headroom::direct
