// Endpoints that several threads use: two that exchange at random, one that passes another, and pairs on each of two endpoints.
// Under the thread sanitizer these are the tests of the protocol's memory order.
#include <signal.h>

#include <chrono>
#include <deque>
#include <random>
#include <thread>

#include "endpoint_fixture.h"

namespace headroom::direct {
namespace {

/// What a thread that exchanges messages with one of the other endpoint has under way.
struct Exchange {
  Endpoint& end;
  int self;
  std::mt19937 random;
  uint64_t context = 9;
  struct Out {
    Sending* sending;
    std::vector<char> content;
  };
  std::deque<Out> out = {};
  std::deque<std::unique_ptr<Asked>> in = {};
  uint32_t sent = 0;
  uint32_t received = 0;
  bool failed = false;

  static uint64_t bytes_of(uint32_t number) {
    const uint64_t sizes[] = {0, 8, 40, 500, 513, 8000, 8200, 20000, 70000, 300000};
    return sizes[number * 2654435761U / 7 % 10];
  }
  void send_one() {
    Out one = {nullptr, std::vector<char>(bytes_of(sent))};
    fill(one.content, sent);
    const SendKind kind = random() % 4 == 0 ? SendKind::kSynchronous : SendKind::kStandard;
    const SendOutcome outcome = end.send(1 - self, {context, self, static_cast<int32_t>(sent % 3)},
                                         {one.content.data(), one.content.size(), nullptr}, kind, random() % 50, one.sending);
    failed = failed || outcome == SendOutcome::kNoMemory;
    ++sent;
    if (outcome == SendOutcome::kPending) {
      out.push_back(std::move(one));
    }
  }
  void finish_sends() {
    for (size_t count = out.size(); count > 0; --count) {
      Out one = std::move(out.front());
      out.pop_front();
      if (random() % 8 == 0) {
        end.copy_aside(one.sending, false);
      }
      if (!end.is_finished(one.sending)) {
        out.push_back(std::move(one));
      }
    }
  }
  void ask_one() {
    in.push_back(std::make_unique<Asked>());
    Asked& one = *in.back();
    const auto number = static_cast<uint32_t>(received + in.size() - 1);
    one.expected = {{context, 1 - self, static_cast<int32_t>(number % 3)}, number, bytes_of(number)};
    one.buffer.resize(300000);
    // Messages come in the order of their numbers, so any receive in that order may leave its tag open.
    one.receiving.envelope = {context, random() % 2 == 0 ? kAny : 1 - self,
                              random() % 2 == 0 ? kAny : one.expected.envelope.tag};
    one.receiving.into = {one.buffer.data(), one.buffer.size(), nullptr};
    one.receiving.may_be_left = end.threads().may_be_several() && random() % 4 != 0;
    end.receive(one.receiving);
  }
  bool is_complete(Receiving& receiving) {
    // Now and then nobody comes for what was left, until a thread that makes progress does.
    return receiving.complete.load(std::memory_order_acquire) || (random() % 500 == 0 && end.finish(receiving));
  }
  void finish_receives() {
    while (!in.empty() && is_complete(in.front()->receiving)) {
      Asked& one = *in.front();
      std::vector<char> wanted(one.expected.bytes);
      fill(wanted, one.expected.number);
      failed = failed || one.receiving.bytes != wanted.size() || one.receiving.tag != one.expected.envelope.tag ||
               memcmp(wanted.data(), one.buffer.data(), wanted.size()) != 0;
      in.pop_front();
      ++received;
    }
  }
  void run(uint32_t messages) {
    while (!failed && (received < messages || sent < messages || !out.empty())) {
      if (sent < messages && out.size() < 20 && random() % 2 == 0) {
        send_one();
      }
      if (received + in.size() < messages && in.size() < 10 && random() % 2 == 0) {
        ask_one();
      }
      (void)end.progress();
      finish_sends();
      finish_receives();
    }
    // What was left to the other side is fetched by now, or will be without this one.
  }
};

TEST_F(Endpoints, TwoThreadsExchange) {
  constexpr uint32_t kMessages = 1000;
  Exchange one = {*ends[0], 0, std::mt19937(1)};
  Exchange other = {*ends[1], 1, std::mt19937(2)};
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
      exchanges.emplace_back(*ends[index], index, std::mt19937(static_cast<uint32_t>(2 * pair + index)),
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
