// Messages between nodes, matched by endpoints, over a network that delays at random: against a model of MPI's matching, a
// receiver that does not take, messages that are taken back, and several threads on both sides. (With MPI, and while memory is
// short: tests/mpi/test_between_nodes.py.)
#include "direct/between_nodes.h"

#include <thread>

#include "exchange.h"
#include "network_fixture.h"
#include "seed.h"
#include "trace/counters.h"

namespace headroom::direct {
namespace {

using trace::counted;
using trace::Counter;

constexpr uint64_t kMostBytes = 3 << 20;

/// One direction of a model in which messages are there at once. As there is one sender, it is the same when they come later.
struct Model {
  std::deque<Sent> unexpected;
  std::deque<Asked*> posted;

  static bool fits(const Envelope& wanted, const Envelope& message) {
    return (wanted.source == kAny || wanted.source == message.source) && (wanted.tag == kAny || wanted.tag == message.tag);
  }
  static void match(Asked& asked, const Sent& sent) {
    asked.matched = true;
    asked.expected = sent;
  }
  void send(const Sent& sent) {
    for (auto it = posted.begin(); it != posted.end(); ++it) {
      if (fits((*it)->receiving.envelope, sent.envelope)) {
        match(**it, sent);
        posted.erase(it);
        return;
      }
    }
    unexpected.push_back(sent);
  }
  void receive(Asked& asked) {
    for (auto it = unexpected.begin(); it != unexpected.end(); ++it) {
      if (fits(asked.receiving.envelope, it->envelope)) {
        match(asked, *it);
        unexpected.erase(it);
        return;
      }
    }
    posted.push_back(&asked);
  }
};

uint64_t random_bytes(std::mt19937& random) {
  const uint64_t kind = random() % 20;
  return kind == 0 ? random() % kMostBytes : kind < 4 ? random() % 100'000 : random() % 9000;
}

TEST_F(TwoNodes, RandomInterleavingsAreLikeTheModel) {
  std::mt19937 random(headroom::test::seed_of(17));
  Model models[2];  // of what comes to each rank
  struct Open {
    int rank;
    Sending* sending;
    std::unique_ptr<std::vector<char>> content;
  };
  std::vector<Open> open;
  std::vector<std::unique_ptr<Asked>> asked[2];
  for (uint32_t step = 0; step < 6000; ++step) {
    const int rank = static_cast<int>(random() % 2);
    const auto tag = static_cast<int32_t>(random() % 6);
    switch (random() % 4) {
      case 0: {
        auto content = std::make_unique<std::vector<char>>(random_bytes(random));
        fill(*content, step);
        Sending* sending = nullptr;
        const SendKind kind = random() % 5 == 0 ? SendKind::kSynchronous : SendKind::kStandard;
        const SendOutcome outcome = send(rank, tag, *content, kind, sending);
        ASSERT_NE(SendOutcome::kNoMemory, outcome);
        models[1 - rank].send({{9, rank, tag}, step, content->size()});
        if (outcome == SendOutcome::kPending) {
          open.push_back({rank, sending, std::move(content)});
        } else {
          std::fill(content->begin(), content->end(), 0);  // it is the program's again
        }
        break;
      }
      case 1: {
        asked[rank].push_back(std::make_unique<Asked>());
        Asked& one = *asked[rank].back();
        one.buffer.resize(kMostBytes);
        one.receiving.envelope = {9, random() % 2 == 0 ? kAny : 1 - rank, random() % 3 == 0 ? kAny : tag};
        one.receiving.member = one.receiving.envelope.source == kAny ? kAnyMember : member_of_rank(1 - rank);
        one.receiving.into = {one.buffer.data(), one.buffer.size(), nullptr};
        models[rank].receive(one);
        at(rank).receive(one.receiving);
        break;
      }
      default:
        (void)at(rank).progress();
        std::erase_if(open, [&](const Open& one) { return one.rank == rank && at(rank).try_to_finish(one.sending); });
    }
    if (step % 250 != 0) {
      continue;
    }
    go_on(2000);
    for (auto& all : asked) {
      for (const auto& one : all) {
        ASSERT_NO_FATAL_FAILURE(assert_as_expected(*one)) << step;
      }
      std::erase_if(all, [](const auto& one) { return one->matched; });
    }
  }
  EXPECT_GT(counted(Counter::kMessagesBetweenLong), 0U);
  EXPECT_GT(counted(Counter::kBetweenPieces), counted(Counter::kMessagesBetweenLong) / 2);
  // What is left is received, and then nothing is.
  go_on(2000);
  for (int rank = 0; rank < 2; ++rank) {
    for (const auto& one : asked[rank]) {
      EXPECT_NE(one->matched, at(rank).cancel(one->receiving));
    }
    models[rank].posted.clear();
    while (!models[rank].unexpected.empty()) {
      Asked one;
      one.buffer.resize(kMostBytes);
      one.receiving.envelope = {9, kAny, kAny};
      one.receiving.member = kAnyMember;
      one.receiving.into = {one.buffer.data(), one.buffer.size(), nullptr};
      models[rank].receive(one);
      at(rank).receive(one.receiving);
      go_on();
      ASSERT_TRUE(one.receiving.complete.load());
      EXPECT_EQ(one.expected.bytes, one.receiving.bytes);
    }
  }
  go_on(2000);
  std::erase_if(open, [&](const Open& one) { return at(one.rank).try_to_finish(one.sending); });
  EXPECT_TRUE(open.empty());
  settle();
}

TEST_F(TwoNodes, ARankThatDoesNotTakeIsNotFlooded) {
  constexpr int32_t kMessages = 1000;
  std::vector<char> content(8);
  Sending* sending = nullptr;
  for (int32_t tag = 0; tag < kMessages; ++tag) {
    fill(content, static_cast<uint32_t>(tag));
    ASSERT_EQ(SendOutcome::kComplete, send(0, tag, content, SendKind::kStandard, sending));
    (void)at(0).progress();
  }
  EXPECT_EQ(kWindow, Network::instance().records_under_way());
  EXPECT_EQ(kMessages - kWindow, counted(Counter::kBetweenRecordsQueued));
  for (int32_t tag = kMessages - 1; tag >= 0; --tag) {
    std::vector<char> buffer(8);
    Receiving receiving;
    receiving.envelope = {9, 0, tag};
    receiving.member = member_of_rank(0);
    receiving.into = {buffer.data(), buffer.size(), nullptr};
    at(1).receive(receiving);
    while (!receiving.complete.load()) {
      go_on(2);
    }
    fill(content, static_cast<uint32_t>(tag));
    ASSERT_EQ(content, buffer);
  }
  settle();
  EXPECT_LE(Network::instance().most_records, kWindow + 1);  // TAKEN goes beside them
}

TEST_F(TwoNodes, AMessageIsTakenBackIfNobodyHasIt) {
  std::vector<char> content(2 << 20);
  for (const bool is_received : {false, true}) {
    fill(content, is_received ? 5 : 6);
    Sending* sending = nullptr;
    ASSERT_EQ(SendOutcome::kPending, send(0, 3, content, SendKind::kSynchronous, sending));
    std::vector<char> buffer(content.size());
    Receiving receiving;
    receiving.envelope = {9, 0, 3};
    receiving.member = member_of_rank(0);
    receiving.into = {buffer.data(), buffer.size(), nullptr};
    if (is_received) {
      at(1).receive(receiving);
      go_on(20);
    }
    bool cancelled = false;
    EXPECT_FALSE(at(0).cancel(sending, &cancelled));
    while (!at(0).try_to_finish(sending)) {
      go_on(2);
    }
    EXPECT_EQ(!is_received, cancelled);
    settle();
    Found found = {};
    EXPECT_FALSE(at(1).find({9, 0, 3}, found));
    EXPECT_EQ(is_received, receiving.complete.load());
    if (is_received) {
      EXPECT_EQ(content, buffer);
    }
  }
}

TEST_F(TwoNodes, AMessageThatCannotBeCopiedAsideIsTakenBackToo) {
  nodes[0].ledger->free_bytes.store(0);
  std::vector<char> content(2 << 20);
  Sending* sending = nullptr;
  ASSERT_EQ(SendOutcome::kPending, send(0, 3, content, SendKind::kStandard, sending));
  bool cancelled = false;
  EXPECT_FALSE(at(0).cancel(sending, &cancelled));
  bool ended = false;
  for (int look = 0; look < 1000 && !ended; ++look) {
    go_on(2);
    ended = at(0).try_to_finish(sending);
  }
  EXPECT_TRUE(ended);
  EXPECT_TRUE(cancelled);
  settle();
  Found found = {};
  EXPECT_FALSE(at(1).find({9, 0, 3}, found));
}

TEST_F(TwoNodes, OnlyWhatIsWantedOfALongMessageIsAskedFor) {
  std::vector<char> content(3 << 20);
  fill(content, 8);
  Sending* sending = nullptr;
  ASSERT_EQ(SendOutcome::kPending, send(0, 3, content, SendKind::kStandard, sending));
  std::vector<char> buffer((1 << 20) + 5);
  Receiving receiving;
  receiving.envelope = {9, kAny, 3};
  receiving.member = kAnyMember;
  receiving.into = {buffer.data(), buffer.size(), nullptr};
  at(1).receive(receiving);
  while (!at(0).try_to_finish(sending)) {
    go_on(2);
  }
  EXPECT_TRUE(receiving.complete.load());
  EXPECT_TRUE(receiving.truncated);
  EXPECT_EQ(content.size(), receiving.bytes);
  EXPECT_EQ(0, memcmp(content.data(), buffer.data(), buffer.size()));
  EXPECT_EQ(2U, counted(Counter::kBetweenPieces));
}

TEST_F(TwoNodes, ContentWithGapsGoesThroughMessageMemory) {
  constexpr uint64_t kRuns = 200'000;
  constexpr int64_t kRunBytes = 8;
  LayoutBuilder builder;
  builder.add(0, kRunBytes, kRuns, 2 * kRunBytes);
  Layout* const layout = builder.finish(at(0).memory(), 2 * kRunBytes * static_cast<int64_t>(kRuns));
  ASSERT_NE(nullptr, layout);
  std::vector<char> content(2 * kRunBytes * kRuns);
  fill(content, 4);
  std::vector<char> buffer(content.size(), 1);
  Sending* sending = nullptr;
  ASSERT_EQ(SendOutcome::kPending, at(0).send(member_of_rank(1), {9, 0, 3}, {content.data(), kRunBytes * kRuns, layout},
                                              SendKind::kStandard, 0, sending));
  Receiving receiving;
  receiving.envelope = {9, 0, 3};
  receiving.member = member_of_rank(0);
  receiving.into = {buffer.data(), kRunBytes * kRuns, layout};
  at(1).receive(receiving);
  while (!at(0).try_to_finish(sending)) {
    go_on(2);
  }
  ASSERT_TRUE(receiving.complete.load());
  for (size_t index = 0; index < buffer.size(); ++index) {
    ASSERT_EQ(index / kRunBytes % 2 == 0 ? content[index] : 1, buffer[index]) << index;
  }
  EXPECT_EQ(2 * counted(Counter::kBetweenPieces), counted(Counter::kBetweenPiecesCopied));
  EXPECT_GE(counted(Counter::kBetweenPieces), 2U);
}

TEST_F(TwoNodes, NothingFollowsWhatIsSaidAtTheEnd) {
  std::vector<char> content(8);
  Sending* sending = nullptr;
  (void)send(0, 3, content, SendKind::kStandard, sending);
  EXPECT_TRUE(at(0).say_bye_to(1));
  EXPECT_FALSE(at(1).say_bye_to(0));  // it has sent nothing
  while (at(1).byes_come() == 0) {
  }
  (void)at(1).progress();
  Found found = {};
  EXPECT_TRUE(at(1).find({9, 0, 3}, found));
  EXPECT_EQ(0, at(0).byes_come());
  settle();
}

// Several threads of each rank.
TEST_F(TwoNodes, PairsOfThreadsExchange) {
  constexpr uint32_t kMessages = 300;
  constexpr int kPairs = 2;
  std::deque<Exchange> exchanges;
  for (int rank = 0; rank < 2; ++rank) {
    at(rank).expect_threads();
    for (int pair = 0; pair < kPairs; ++pair) {
      exchanges.push_back({*nodes[rank].end, rank, std::mt19937(headroom::test::seed_of(2 * pair + rank)),
                           20 + static_cast<uint64_t>(pair), member_of_rank(1 - rank), kAnyMember});
    }
  }
  std::atomic<size_t> ended = 0;
  const auto run = [&](Exchange& exchange) {
    acting = exchange.self;
    exchange.run(kMessages);
    ++ended;
    while (ended.load() < exchanges.size()) {
      (void)exchange.end.progress();
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(exchanges.size());
  for (Exchange& exchange : exchanges) {
    threads.emplace_back([&run, &exchange] { run(exchange); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  settle();  // one that needs nothing more may still owe the other a look at the network
  for (const Exchange& exchange : exchanges) {
    EXPECT_FALSE(exchange.failed);
    EXPECT_EQ(kMessages, exchange.received);
  }
}

}  // namespace
}  // namespace headroom::direct
