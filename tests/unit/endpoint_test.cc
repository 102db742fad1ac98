// Endpoints: two of them in one process, against a model of MPI's matching, under random interleavings of sends, receives and
// progress; and the ways a send can end. Content lies outside evictable memory here, so it is copied aside or streamed; what is
// fetched from evictable memory is tested with MPI (tests/mpi/test_messages.py).
#include "direct/endpoint.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <deque>
#include <memory>
#include <random>
#include <thread>
#include <vector>

namespace headroom::direct {
namespace {

struct Sent {
  Envelope envelope;
  uint32_t number;
  uint64_t bytes;
};

struct Asked {
  Receiving receiving;
  std::vector<char> buffer;
  bool matched = false;
  Sent expected = {};
};

void fill(std::vector<char>& buffer, uint32_t number) {
  for (size_t at = 0; at < buffer.size(); ++at) {
    buffer[at] = static_cast<char>(at * 13 + number);
  }
}

class Endpoints : public ::testing::Test {
 protected:
  void SetUp() override {
    file = memfd_create("messages", 0);
    ledger = static_cast<node::Ledger*>(
        mmap(nullptr, sizeof(node::Ledger), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    ledger->free_bytes.store(int64_t{1} << 30);
    // Both see one mapping, and only the areas of these two: the thread sanitizer knows memory by its address, and has few.
    constexpr uint64_t kAlignment = 1 << 20;
    void* const place = mmap(nullptr, kMappedBytes + kAlignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ASSERT_NE(MAP_FAILED, place);
    mapped = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(place) + kAlignment) & ~(kAlignment - 1));
    ASSERT_EQ(0, ftruncate(file, kMappedBytes));
    ASSERT_NE(MAP_FAILED, mmap(mapped, kMappedBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file, 0));
    for (int index = 0; index < 2; ++index) {
      ledger->members[index].pid.store(getpid());
      sessions[index].ledger = ledger;
      sessions[index].self = &ledger->members[index];
      sessions[index].index = index;
      sessions[index].messages_descriptor = file;
      ends[index] = std::make_unique<Endpoint>();
      ASSERT_TRUE(ends[index]->open(sessions[index], nullptr, 0, mapped));
    }
  }
  void TearDown() override {
    if (has_helper) {
      // It never ends, and may look once more at any time: what it looks at stays until the process ends.
      static std::unique_ptr<Endpoint>* kept = nullptr;  // reachable, and never destroyed
      kept = new std::unique_ptr<Endpoint>[2];
      kept[0] = std::move(ends[0]);
      kept[1] = std::move(ends[1]);
      return;
    }
    munmap(ledger, sizeof(node::Ledger));
    munmap(mapped, kMappedBytes);
    close(file);
  }

  SendOutcome send(int from, int32_t tag, std::vector<char>& content, bool synchronous, Sending*& sending) {
    return ends[from]->send(1 - from, {9, from, tag}, {content.data(), content.size(), nullptr},
                            synchronous ? SendKind::kSynchronous : SendKind::kStandard, 0, sending);
  }

  static constexpr uint64_t kMappedBytes = 2 * kAreaBytes;
  bool has_helper = false;  // a thread that uses an endpoint (away.cc)
  int file = -1;
  char* mapped = nullptr;
  node::Ledger* ledger = nullptr;
  node::Session sessions[2];
  std::unique_ptr<Endpoint> ends[2];
};

TEST_F(Endpoints, RandomInterleavingsAreLikeTheModel) {
  std::mt19937 random(7);
  std::deque<Sent> on_the_way;  // sent, not looked at yet by the receiver
  std::deque<Sent> unexpected;  // of the model
  std::deque<Asked*> posted;    // of the model
  std::vector<std::unique_ptr<Asked>> asked;
  struct Open {
    Sending* sending;
    std::unique_ptr<std::vector<char>> content;
  };
  std::vector<Open> open;
  const auto fits = [](const Envelope& wanted, const Envelope& message) {
    return wanted.context == message.context && (wanted.source == kAny || wanted.source == message.source) &&
           (wanted.tag == kAny || wanted.tag == message.tag);
  };
  const auto model_progress = [&] {
    while (!on_the_way.empty()) {
      const Sent sent = on_the_way.front();
      on_the_way.pop_front();
      auto it = posted.begin();
      while (it != posted.end() && !fits((*it)->receiving.envelope, sent.envelope)) {
        ++it;
      }
      if (it == posted.end()) {
        unexpected.push_back(sent);
      } else {
        (*it)->matched = true;
        (*it)->expected = sent;
        posted.erase(it);
      }
    }
  };
  for (uint32_t step = 0; step < 20000; ++step) {
    switch (random() % 4) {
      case 0: {
        const uint64_t bytes = random() % 10 == 0 ? random() % 100000 : random() % 700;
        auto content = std::make_unique<std::vector<char>>(bytes);
        fill(*content, step);
        const auto tag = static_cast<int32_t>(random() % 6);
        Sending* sending = nullptr;
        const SendOutcome outcome = send(0, tag, *content, random() % 5 == 0, sending);
        ASSERT_NE(SendOutcome::kNoMemory, outcome);
        on_the_way.push_back({{9, 0, tag}, step, bytes});
        if (outcome == SendOutcome::kPending) {
          open.push_back({sending, std::move(content)});
        } else {
          std::fill(content->begin(), content->end(), 0);  // it is the program's again
        }
        break;
      }
      case 1: {
        asked.push_back(std::make_unique<Asked>());
        Asked& one = *asked.back();
        one.buffer.resize(100000);
        one.receiving.envelope = {9, random() % 2 == 0 ? kAny : 0,
                                  random() % 3 == 0 ? kAny : static_cast<int32_t>(random() % 6)};
        one.receiving.into = {one.buffer.data(), one.buffer.size(), nullptr};
        ends[1]->receive(one.receiving);
        model_progress();
        auto it = unexpected.begin();
        while (it != unexpected.end() && !fits(one.receiving.envelope, it->envelope)) {
          ++it;
        }
        if (it == unexpected.end()) {
          posted.push_back(&one);
        } else {
          one.matched = true;
          one.expected = *it;
          unexpected.erase(it);
        }
        break;
      }
      case 2:
        (void)ends[1]->progress();
        model_progress();
        break;
      default:
        (void)ends[0]->progress();
        for (size_t index = 0; index < open.size();) {
          if (ends[0]->is_finished(open[index].sending)) {
            open.erase(open.begin() + static_cast<ptrdiff_t>(index));
          } else {
            ++index;
          }
        }
    }
    if (step % 500 == 0) {
      (void)ends[1]->progress();
      model_progress();
      for (const auto& one : asked) {
        ASSERT_EQ(one->matched, one->receiving.complete.load()) << step;
        if (one->matched) {
          ASSERT_EQ(one->expected.bytes, one->receiving.bytes);
          ASSERT_EQ(one->expected.envelope.tag, one->receiving.tag);
          std::vector<char> expected(one->expected.bytes);
          fill(expected, one->expected.number);
          ASSERT_EQ(0, memcmp(expected.data(), one->buffer.data(), expected.size()));
        }
      }
      std::erase_if(asked, [](const auto& one) { return one->matched; });
    }
  }
  for (const auto& one : asked) {
    if (!one->receiving.complete.load()) {
      EXPECT_TRUE(ends[1]->cancel(one->receiving));
    }
  }
}

TEST_F(Endpoints, ASynchronousSendEndsWhenItIsReceived) {
  std::vector<char> content(10);
  Sending* sending = nullptr;
  ASSERT_EQ(SendOutcome::kPending, send(0, 3, content, true, sending));
  (void)ends[1]->progress();
  EXPECT_FALSE(ends[0]->is_finished(sending));
  std::vector<char> buffer(10);
  Receiving receiving;
  receiving.envelope = {9, kAny, 3};
  receiving.into = {buffer.data(), buffer.size(), nullptr};
  ends[1]->receive(receiving);
  EXPECT_TRUE(receiving.complete.load());
  EXPECT_TRUE(ends[0]->is_finished(sending));
}

TEST_F(Endpoints, ASynchronousSendThatIsTakenBackIsNeverSeen) {
  std::vector<char> content(10);
  Sending* sending = nullptr;
  ASSERT_EQ(SendOutcome::kPending, send(0, 3, content, true, sending));
  (void)ends[1]->progress();
  Found found = {};
  ASSERT_TRUE(ends[1]->find({9, 0, 3}, found));
  EXPECT_TRUE(ends[0]->cancel(sending));
  EXPECT_TRUE(ends[0]->is_finished(sending));
  EXPECT_FALSE(ends[1]->find({9, 0, 3}, found));
  std::vector<char> buffer(10);
  Receiving receiving;
  receiving.envelope = {9, 0, 3};
  receiving.into = {buffer.data(), buffer.size(), nullptr};
  ends[1]->receive(receiving);
  EXPECT_FALSE(receiving.complete.load());
  ASSERT_EQ(SendOutcome::kComplete, send(0, 3, content, false, sending));
  (void)ends[1]->progress();
  EXPECT_TRUE(receiving.complete.load());
}

TEST_F(Endpoints, ATakenBackMessageLeavesItsReceivePosted) {
  std::vector<char> content(10);
  Sending* sending = nullptr;
  std::vector<char> buffer(10);
  Receiving receiving;
  receiving.envelope = {9, 0, 3};
  receiving.into = {buffer.data(), buffer.size(), nullptr};
  ends[1]->receive(receiving);
  ASSERT_EQ(SendOutcome::kPending, send(0, 3, content, true, sending));
  EXPECT_TRUE(ends[0]->cancel(sending));
  (void)ends[1]->progress();
  EXPECT_FALSE(receiving.complete.load());
  EXPECT_TRUE(ends[1]->cancel(receiving));
  EXPECT_TRUE(receiving.cancelled);
}

TEST_F(Endpoints, ContentLargerThanWhatMemoryAllowsIsStreamed) {
  ledger->free_bytes.store(0);  // nothing may be copied aside
  std::vector<char> content(5 << 20);
  fill(content, 77);
  Sending* sending = nullptr;
  ASSERT_EQ(SendOutcome::kPending, send(0, 3, content, false, sending));
  std::vector<char> buffer(3 << 20);
  Receiving receiving;
  receiving.envelope = {9, 0, 3};
  receiving.into = {buffer.data(), buffer.size(), nullptr};
  ends[1]->receive(receiving);
  for (int round = 0; round < 100 && !receiving.complete.load(); ++round) {
    (void)ends[0]->progress();
    (void)ends[1]->progress();
  }
  ASSERT_TRUE(receiving.complete.load());
  EXPECT_TRUE(receiving.truncated);
  EXPECT_EQ(content.size(), receiving.bytes);
  EXPECT_EQ(0, memcmp(content.data(), buffer.data(), buffer.size()));
  EXPECT_TRUE(ends[0]->is_finished(sending));
}

TEST_F(Endpoints, CopiesAsideAreGivenBack) {
  const int64_t before = ledger->free_bytes.load();
  std::vector<char> content(2 << 20);
  for (int round = 0; round < 50; ++round) {
    Sending* sending = nullptr;
    if (send(0, 3, content, false, sending) == SendOutcome::kPending) {  // from the second on: it could be attached to
      ends[0]->copy_aside(sending);
      ASSERT_TRUE(ends[0]->is_finished(sending));
    }
    EXPECT_EQ(before - (2 << 20), ledger->free_bytes.load());
    std::vector<char> buffer(2 << 20);
    Receiving receiving;
    receiving.envelope = {9, 0, 3};
    receiving.into = {buffer.data(), buffer.size(), nullptr};
    ends[1]->receive(receiving);
    ASSERT_TRUE(receiving.complete.load());
    (void)ends[0]->progress();
    EXPECT_EQ(before, ledger->free_bytes.load());
  }
}

TEST_F(Endpoints, MemoryThatIsNotSharedIsReadByAttaching) {
  for (const uint64_t bytes : {8192, 16384, 100000, 1 << 20}) {
    std::vector<char> content(bytes);
    std::vector<char> buffer(bytes);
    Sending* sending = nullptr;
    (void)send(0, 3, content, false, sending);  // so that it has been tried
    Receiving first;
    first.envelope = {9, 0, 3};
    first.into = {buffer.data(), buffer.size(), nullptr};
    ends[1]->receive(first);
    ASSERT_TRUE(first.complete.load());
    fill(content, static_cast<uint32_t>(bytes));
    ASSERT_EQ(SendOutcome::kPending, send(0, 3, content, true, sending));
    EXPECT_EQ(1U, transfer_of(sending->record).attached);
    Receiving second;
    second.envelope = {9, 0, 3};
    second.into = {buffer.data(), buffer.size(), nullptr};
    ends[1]->receive(second);
    ASSERT_TRUE(second.complete.load());
    EXPECT_EQ(content, buffer);
    EXPECT_TRUE(ends[0]->is_finished(sending));
  }
}

TEST_F(Endpoints, AReceiveThatIsAskedFirstMayHaveItsMessageAlready) {
  for (const uint64_t bytes : {10, 5000, 50000}) {
    for (const bool before : {false, true}) {
      std::vector<char> content(bytes);
      fill(content, 5);
      std::vector<char> buffer(bytes);
      Receiving refuses;
      Receiving takes;
      int asked = 0;
      for (Receiving* receiving : {&refuses, &takes}) {
        receiving->envelope = {9, kAny, 3};
        receiving->into = {buffer.data(), buffer.size(), nullptr};
        receiving->owner = &asked;
      }
      refuses.may_take = [](void* owner, int32_t, uint64_t) { return ++*static_cast<int*>(owner) < 0; };
      takes.may_take = [](void* owner, int32_t, uint64_t) { return ++*static_cast<int*>(owner) > 0; };
      Sending* sending = nullptr;
      if (before) {
        (void)send(0, 3, content, true, sending);
        (void)ends[1]->progress();
      }
      ends[1]->receive(refuses);
      EXPECT_EQ(before, refuses.withdrawn);
      ends[1]->receive(takes);
      if (!before) {
        (void)send(0, 3, content, true, sending);
        (void)ends[1]->progress();
      }
      EXPECT_TRUE(refuses.withdrawn);
      EXPECT_FALSE(refuses.complete.load());
      EXPECT_TRUE(ends[1]->withdraw(refuses));
      ASSERT_TRUE(takes.complete.load());
      EXPECT_FALSE(ends[1]->withdraw(takes));
      EXPECT_EQ(2, asked);
      EXPECT_EQ(content, buffer);
      EXPECT_TRUE(ends[0]->is_finished(sending));
    }
  }
}

// While a process is away its helper takes note of messages whose receives must be asked. They are these receives' although
// others are posted, or look for messages, before anybody asks.
TEST_F(Endpoints, WhatTheHelperLeavesIsAskedAboutBeforeLaterReceives) {
  const auto yes = [](void*, int32_t, uint64_t) { return true; };
  std::vector<char> first(100);
  std::vector<char> second(100);
  fill(first, 1);
  fill(second, 2);
  for (const bool posts : {true, false}) {
    std::vector<char> buffers[2] = {std::vector<char>(100), std::vector<char>(100)};
    Receiving asked;
    asked.envelope = {9, kAny, 5};
    asked.into = {buffers[0].data(), 100, nullptr};
    asked.may_take = yes;
    ends[1]->receive(asked);
    has_helper = true;
    ends[1]->go_away();
    Sending* sending = nullptr;
    ASSERT_EQ(SendOutcome::kPending, send(0, 5, first, true, sending));
    ends[0]->ring_away();
    while (!ends[0]->is_finished(sending)) {  // the helper has acknowledged it
      std::this_thread::yield();
    }
    ends[1]->come_back();
    EXPECT_FALSE(asked.complete.load());
    ASSERT_EQ(SendOutcome::kComplete, send(0, 5, second, false, sending));
    Receiving later;
    later.envelope = {9, 0, 5};
    later.into = {buffers[1].data(), 100, nullptr};
    if (posts) {
      ends[1]->receive(later);
      (void)ends[1]->progress();
    } else {
      EXPECT_TRUE(ends[1]->receive_if_there(later));
    }
    EXPECT_TRUE(asked.complete.load() && later.complete.load());
    EXPECT_EQ(first, buffers[0]);
    EXPECT_EQ(second, buffers[1]);
  }
}

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
        end.copy_aside(one.sending);
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

// Under the thread sanitizer this is the test of the protocol's memory order.
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
