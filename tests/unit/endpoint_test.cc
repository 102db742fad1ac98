// Endpoints: two of them in one process, against a model of MPI's matching, under random interleavings of sends, receives and
// progress; and the ways a send can end. Content lies outside evictable memory here, so it is copied aside or streamed; what is
// fetched from evictable memory is tested with MPI (tests/mpi/test_messages.py).
#include "direct/endpoint.h"

#include <deque>
#include <random>
#include <thread>

#include "endpoint_fixture.h"
#include "seed.h"
#include "trace/counters.h"

namespace headroom::direct {
namespace {

TEST_F(Endpoints, RandomInterleavingsAreLikeTheModel) {
  std::mt19937 random(headroom::test::seed_of(7));
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
        take_all(1);
        model_progress();
        break;
      default:
        (void)ends[0]->progress();
        for (size_t index = 0; index < open.size();) {
          if (ends[0]->try_to_finish(open[index].sending)) {
            open.erase(open.begin() + static_cast<ptrdiff_t>(index));
          } else {
            ++index;
          }
        }
    }
    if (step % 500 == 0) {
      take_all(1);
      model_progress();
      for (const auto& one : asked) {
        ASSERT_NO_FATAL_FAILURE(assert_as_expected(*one)) << step;
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

TEST_F(Endpoints, AFloodIsTakenInParts) {
  constexpr int32_t kRecords = 10 * kRecordsAtOnce;
  std::vector<char> content(8);
  Sending* sending = nullptr;
  for (int32_t tag = 0; tag < kRecords; ++tag) {
    ASSERT_EQ(SendOutcome::kComplete, send(0, tag, content, false, sending));
  }
  Found found = {};
  const uint64_t unexpected = trace::counted(trace::Counter::kMessagesUnexpected);
  for (int32_t taken = 0; taken < kRecords; taken += kRecordsAtOnce) {
    EXPECT_FALSE(ends[1]->find({9, 0, taken}, found));
    EXPECT_TRUE(ends[1]->progress());
    EXPECT_TRUE(ends[1]->find({9, 0, taken + static_cast<int32_t>(kRecordsAtOnce) - 1}, found));
    EXPECT_TRUE(ends[1]->has_left_records());  // as far as is known
  }
  EXPECT_FALSE(ends[1]->progress());
  EXPECT_FALSE(ends[1]->has_left_records());
  EXPECT_EQ(trace::counted(trace::Counter::kMessagesUnexpected), unexpected + kRecords);
}

TEST_F(Endpoints, ASynchronousSendEndsWhenItIsReceived) {
  std::vector<char> content(10);
  Sending* sending = nullptr;
  ASSERT_EQ(SendOutcome::kPending, send(0, 3, content, true, sending));
  (void)ends[1]->progress();
  EXPECT_FALSE(ends[0]->try_to_finish(sending));
  std::vector<char> buffer(10);
  Receiving receiving;
  receiving.envelope = {9, kAny, 3};
  receiving.into = {buffer.data(), buffer.size(), nullptr};
  ends[1]->receive(receiving);
  EXPECT_TRUE(receiving.complete.load());
  EXPECT_TRUE(ends[0]->try_to_finish(sending));
}

TEST_F(Endpoints, ASynchronousSendThatIsTakenBackIsNeverSeen) {
  std::vector<char> content(10);
  Sending* sending = nullptr;
  ASSERT_EQ(SendOutcome::kPending, send(0, 3, content, true, sending));
  (void)ends[1]->progress();
  Found found = {};
  ASSERT_TRUE(ends[1]->find({9, 0, 3}, found));
  EXPECT_TRUE(ends[0]->cancel(sending));
  EXPECT_TRUE(ends[0]->try_to_finish(sending));
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
  EXPECT_TRUE(ends[0]->try_to_finish(sending));
}

TEST_F(Endpoints, AStreamThatIsTakenBackIsNeverSeen) {
  ledger->free_bytes.store(0);  // nothing may be copied aside
  std::vector<char> content(5 << 20);
  std::vector<char> buffer(10);
  Sending* sending = nullptr;
  uint64_t used = 0;
  for (int round = 0; round < 20; ++round) {
    ASSERT_EQ(SendOutcome::kPending, send(0, 3, content, false, sending));
    (void)ends[0]->progress();
    EXPECT_TRUE(ends[0]->cancel(sending));
    EXPECT_TRUE(ends[0]->try_to_finish(sending));
    // Its ring serves the next one, although the receiver has not looked.
    used = round == 0 ? ends[0]->memory().used_bytes() : used;
    EXPECT_EQ(used, ends[0]->memory().used_bytes());
  }
  (void)ends[1]->progress();
  Found found = {};
  EXPECT_FALSE(ends[1]->find({9, 0, 3}, found));
  Receiving receiving;
  receiving.envelope = {9, 0, 3};
  receiving.into = {buffer.data(), buffer.size(), nullptr};
  ends[1]->receive(receiving);
  EXPECT_FALSE(receiving.complete.load());
  content.resize(10);
  ASSERT_EQ(SendOutcome::kComplete, send(0, 3, content, false, sending));
  (void)ends[1]->progress();
  EXPECT_TRUE(receiving.complete.load());
}

TEST_F(Endpoints, CopiesAsideHaveALimit) {
  // Content that neither side can reach: it must be copied. From some number on their senders wait.
  constexpr uint64_t kBytes = 200000;
  constexpr uint64_t kLimit = 64 << 20;
  ends[0]->root_of(1).attaches_to[0].store(false);
  std::vector<char> content(kBytes);
  std::vector<Sending*> waiting;
  uint64_t complete = 0;
  for (int message = 0; message < 400; ++message) {
    Sending* sending = nullptr;
    const SendOutcome outcome = send(0, 3, content, false, sending);
    if (outcome == SendOutcome::kPending) {
      ends[0]->copy_aside(sending, false);
    }
    if (outcome == SendOutcome::kPending && !ends[0]->try_to_finish(sending)) {
      waiting.push_back(sending);
    } else {
      ASSERT_EQ(0, waiting.size());
      ++complete;
    }
  }
  EXPECT_LE(complete * kBytes, kLimit);
  EXPECT_GT(complete * kBytes, kLimit - 2 * kBytes);
  ends[0]->copy_aside(waiting.back(), true);
  EXPECT_TRUE(ends[0]->try_to_finish(waiting.back()));
  waiting.pop_back();
  for (int message = 0; message < 400; ++message) {
    Receiving receiving;
    receiving.envelope = {9, 0, 3};
    receiving.into = {content.data(), content.size(), nullptr};
    ends[1]->receive(receiving);
    take_all(1);
    ASSERT_TRUE(receiving.complete.load());
  }
  for (Sending* sending : waiting) {
    EXPECT_TRUE(ends[0]->try_to_finish(sending));
  }
}

TEST_F(Endpoints, WhatFindsNoRoomAsideAndIsLongerThanASmallRingWaitsWithOne) {
  constexpr uint64_t kBytes = 600000;
  constexpr uint64_t kLimit = 64 << 20;
  constexpr uint64_t kRecords = 64 << 10;
  ends[0]->root_of(1).attaches_to[0].store(false);
  std::vector<char> content(kBytes);
  Sending* waiting = nullptr;
  uint64_t used = 0;
  uint32_t complete = 0;
  for (; waiting == nullptr; ++complete) {
    ASSERT_LE(complete * kBytes, kLimit);
    used = ends[0]->memory().used_bytes();
    fill(content, complete);
    if (send(0, 3, content, false, waiting) == SendOutcome::kPending) {
      ends[0]->copy_aside(waiting, false);
      waiting = ends[0]->try_to_finish(waiting) ? nullptr : waiting;
    }
  }
  EXPECT_GT(complete * kBytes, kLimit - kBytes);
  EXPECT_TRUE(waiting->streams);
  EXPECT_LE(ends[0]->memory().used_bytes(), used + kSmallRingBytes + kRecords);
  std::vector<char> buffer(kBytes);
  std::vector<char> expected(kBytes);
  for (uint32_t message = 0; message < complete; ++message) {
    Receiving receiving;
    receiving.envelope = {9, 0, 3};
    receiving.into = {buffer.data(), buffer.size(), nullptr};
    ends[1]->receive(receiving);
    for (int round = 0; round < 100 && !receiving.complete.load(); ++round) {
      (void)ends[0]->progress();
      (void)ends[1]->progress();
    }
    fill(expected, message);
    ASSERT_EQ(expected, buffer);
  }
  EXPECT_TRUE(ends[0]->try_to_finish(waiting));
}

TEST_F(Endpoints, CopiesAsideAreGivenBack) {
  const int64_t before = ledger->free_bytes.load();
  std::vector<char> content(2 << 20);
  for (int round = 0; round < 50; ++round) {
    Sending* sending = nullptr;
    if (send(0, 3, content, false, sending) == SendOutcome::kPending) {  // from the second on: it could be attached to
      ends[0]->copy_aside(sending, false);
      ASSERT_TRUE(ends[0]->try_to_finish(sending));
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
    EXPECT_TRUE(ends[0]->try_to_finish(sending));
  }
}

TEST_F(Endpoints, AReceiveThatIsAskedFirstMayHaveItsMessageAlready) {
  for (const uint64_t bytes : {10, 5000, 50000}) {
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
    refuses.claim_message = [](void* owner, int32_t, uint64_t) { return ++*static_cast<int*>(owner) < 0; };
    takes.claim_message = [](void* owner, int32_t, uint64_t) { return ++*static_cast<int*>(owner) > 0; };
    ends[1]->receive(refuses);
    EXPECT_FALSE(refuses.withdrawn);
    ends[1]->receive(takes);
    Sending* sending = nullptr;
    (void)send(0, 3, content, true, sending);
    (void)ends[1]->progress();
    EXPECT_TRUE(refuses.withdrawn);
    EXPECT_FALSE(refuses.complete.load());
    EXPECT_TRUE(ends[1]->withdraw(refuses));
    ASSERT_TRUE(takes.complete.load());
    EXPECT_FALSE(ends[1]->withdraw(takes));
    EXPECT_EQ(2, asked);
    EXPECT_EQ(content, buffer);
    EXPECT_TRUE(ends[0]->try_to_finish(sending));
  }
}

/// What stands for the MPI library: receives in the order in which they were begun there.
struct Elsewhere {
  struct Waiting : Receiving {
    Elsewhere* library = nullptr;
    std::vector<char> buffer = std::vector<char>(100);
  };
  std::vector<Waiting*> order;
  bool refuses = false;

  void prepare(Waiting& waiting) {
    waiting.library = this;
    waiting.envelope = {9, kAny, 5};
    waiting.into = {waiting.buffer.data(), waiting.buffer.size(), nullptr};
    waiting.owner = &waiting;
    waiting.begin_elsewhere = [](void* owner) {
      auto* begun = static_cast<Waiting*>(owner);
      Elsewhere& library = *begun->library;
      if (library.refuses) {
        return false;
      }
      begun->claim_message = [](void* asked, int32_t, uint64_t) {
        return static_cast<Waiting*>(asked)->library->order.front() == asked;
      };
      std::erase(library.order, begun);
      library.order.push_back(begun);
      return true;
    };
  }
};

// A receive that may not have a message is never asked again. That it is asked in the right order is up to who begins it.
TEST_F(Endpoints, ReceivesHaveOneOrderHereAndElsewhere) {
  std::vector<char> content(100);
  Sending* sending = nullptr;
  Elsewhere library;
  Elsewhere::Waiting waiting[3];
  for (Elsewhere::Waiting& each : waiting) {
    library.prepare(each);
    EXPECT_TRUE(ends[1]->receive_elsewhere_too(each));
  }
  ends[1]->begin_elsewhere_again(waiting[0]);  // as after a message that went to another one
  library.refuses = true;
  ends[1]->begin_elsewhere_again(waiting[1]);  // which keeps its place
  for (const int next : {1, 2, 0}) {
    EXPECT_FALSE(waiting[next].complete.load());
    fill(content, static_cast<uint32_t>(next));
    ASSERT_EQ(SendOutcome::kComplete, send(0, 5, content, false, sending));
    take_all(1);
    EXPECT_TRUE(waiting[next].complete.load());
    EXPECT_EQ(content, waiting[next].buffer);
    library.order.erase(library.order.begin());
    library.refuses = false;
    ends[1]->begin_elsewhere_again(waiting[next]);  // it has its message
  }
  EXPECT_TRUE(library.order.empty());
}

TEST_F(Endpoints, WhatIsThereIsNotWaitedForElsewhere) {
  std::vector<char> content(100);
  Sending* sending = nullptr;
  Elsewhere library;
  library.refuses = true;
  Elsewhere::Waiting waiting[2];
  fill(content, 7);
  ASSERT_EQ(SendOutcome::kComplete, send(0, 5, content, false, sending));
  library.prepare(waiting[0]);
  EXPECT_TRUE(ends[1]->receive_elsewhere_too(waiting[0]));
  EXPECT_TRUE(waiting[0].complete.load());
  EXPECT_EQ(content, waiting[0].buffer);
  library.prepare(waiting[1]);
  EXPECT_FALSE(ends[1]->receive_elsewhere_too(waiting[1]));
  ASSERT_EQ(SendOutcome::kComplete, send(0, 5, content, false, sending));
  take_all(1);
  EXPECT_FALSE(waiting[1].complete.load());  // it was not posted
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
    asked.claim_message = yes;
    ends[1]->receive(asked);
    has_helper = true;
    ends[1]->go_away();
    Sending* sending = nullptr;
    ASSERT_EQ(SendOutcome::kPending, send(0, 5, first, true, sending));
    ends[0]->ring_away();
    while (!ends[0]->try_to_finish(sending)) {  // the helper has acknowledged it
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
      later.begin_elsewhere = [](void*) { return false; };
      EXPECT_TRUE(ends[1]->receive_elsewhere_too(later));
    }
    EXPECT_TRUE(asked.complete.load() && later.complete.load());
    EXPECT_EQ(first, buffers[0]);
    EXPECT_EQ(second, buffers[1]);
  }
}

}  // namespace
}  // namespace headroom::direct
