// Endpoints that several threads use: two that exchange at random, one that passes another, and pairs on each of two endpoints.
// Under the thread sanitizer these are the tests of the protocol's memory order.
#include <signal.h>

#include <chrono>
#include <thread>

#include "exchange.h"
#include "seed.h"

namespace headroom::direct {
namespace {

TEST_F(Endpoints, TwoThreadsExchange) {
  constexpr uint32_t kMessages = 1000;
  Exchange one = {*ends[0], 0, std::mt19937(headroom::test::seed_of(1))};
  Exchange other = {*ends[1], 1, std::mt19937(headroom::test::seed_of(2))};
  std::thread thread([&] { other.run(kMessages); });
  one.run(kMessages);
  thread.join();
  EXPECT_FALSE(one.failed || other.failed);
  EXPECT_EQ(kMessages, one.received);
  EXPECT_EQ(kMessages, other.received);
}

/// Where a thread stands still in the middle of copying: memory that cannot be written until somebody lets it go on.
struct Gate {
  char* place;
  size_t bytes;
  std::atomic<bool> reached = false;
  std::atomic<bool> open = false;
  std::atomic<bool> waited_in_vain = false;
};
Gate* gate = nullptr;

void stand_at_gate(int) {
  gate->reached.store(true);
  for (int look = 0; !gate->open.load(); ++look) {
    usleep(1000);
    if (look == 10000) {
      gate->waited_in_vain.store(true);
      break;
    }
  }
  mprotect(gate->place, gate->bytes, PROT_READ | PROT_WRITE);
}

// What makes a difference only where there are more processors than ranks: nobody waits for a thread that copies.
TEST_F(Endpoints, AShortMessagePassesWhileAnotherThreadCopiesALongOne) {
  constexpr size_t kLong = 256 << 10;
  Gate here = {static_cast<char*>(mmap(nullptr, kLong, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)), kLong};
  gate = &here;
  struct sigaction action = {};
  struct sigaction before = {};
  action.sa_handler = stand_at_gate;
  ASSERT_EQ(0, sigaction(SIGSEGV, &action, &before));

  ends[1]->expect_threads();
  std::vector<char> content(kLong);
  fill(content, 3);
  Sending* sending = nullptr;
  (void)send(0, 5, content, false, sending);  // copied aside
  std::thread other([&] {
    Receiving receiving;
    receiving.may_be_left = true;
    receiving.envelope = {9, 0, 5};
    receiving.into = {here.place, kLong, nullptr};
    ends[1]->receive(receiving);
    while (!receiving.complete.load(std::memory_order_acquire)) {
      (void)ends[1]->progress();
      (void)ends[1]->finish(receiving);
    }
  });
  while (!here.reached.load()) {
  }
  std::vector<char> word(8);
  fill(word, 4);
  Sending* at_once = nullptr;
  ASSERT_EQ(SendOutcome::kComplete, send(0, 6, word, false, at_once));
  Receiving receiving;
  std::vector<char> got(8);
  receiving.envelope = {9, 0, 6};
  receiving.into = {got.data(), got.size(), nullptr};
  ends[1]->receive(receiving);
  EXPECT_TRUE(receiving.complete.load());
  EXPECT_EQ(word, got);
  here.open.store(true);
  other.join();
  EXPECT_FALSE(here.waited_in_vain.load());
  EXPECT_EQ(0, memcmp(content.data(), here.place, kLong));
  EXPECT_EQ(0, sigaction(SIGSEGV, &before, nullptr));
  munmap(here.place, kLong);
}

// Each endpoint used by several threads at once, some of which come when one has been alone for a while.
TEST_F(Endpoints, PairsOfThreadsExchange) {
  constexpr uint32_t kMessages = 400;
  constexpr int kPairs = 3;
  std::deque<Exchange> exchanges;
  for (int index = 0; index < 2; ++index) {
    ends[index]->expect_threads();
    for (int pair = 0; pair < kPairs; ++pair) {
      exchanges.emplace_back(*ends[index], index, std::mt19937(headroom::test::seed_of(2 * pair + index)),
                             20 + static_cast<uint64_t>(pair));
    }
  }
  const uint64_t apart = trace::counted(trace::Counter::kMessagesCopiedApart);
  std::vector<std::thread> threads;
  threads.reserve(exchanges.size());
  for (size_t at = 1; at < exchanges.size(); ++at) {
    threads.emplace_back([&exchange = exchanges[at]] {
      std::this_thread::sleep_for(std::chrono::milliseconds(exchange.context == 20 ? 0 : exchange.context == 21 ? 20 : 40));
      exchange.run(kMessages);
    });
  }
  exchanges[0].run(kMessages);
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const Exchange& exchange : exchanges) {
    EXPECT_FALSE(exchange.failed);
    EXPECT_EQ(kMessages, exchange.received);
  }
  EXPECT_LT(apart, trace::counted(trace::Counter::kMessagesCopiedApart));
}

}  // namespace
}  // namespace headroom::direct
