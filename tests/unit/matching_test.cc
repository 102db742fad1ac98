// Matching against a model: two plain lists searched from the front. And that many entries do not cost many comparisons.
#include "direct/matching.h"

#include <gtest/gtest.h>

#include <list>
#include <memory>
#include <random>
#include <vector>

namespace headroom::direct {
namespace {

bool fits(const Envelope& receive, const Envelope& message) {
  return receive.context == message.context && (receive.source == kAny || receive.source == message.source) &&
         (receive.tag == kAny || receive.tag == message.tag);
}

struct Receive : PostedReceive {
  int number = 0;
};
struct Message : UnexpectedMessage {
  int number = 0;
};

/// Both queues, and the model beside them.
class Matching : public ::testing::Test {
 protected:
  PostedReceive* take(const Envelope& envelope) {
    PostedReceive* found = posted.find(envelope);
    if (found != nullptr) {
      posted.remove(found);
    }
    return found;
  }

  /// A message arrives: the number of the receive that gets it, or -1.
  int arrive(const Envelope& envelope, int number) {
    int expected = -1;
    for (auto it = model_posted.begin(); it != model_posted.end(); ++it) {
      if (fits((*it)->envelope, envelope)) {
        expected = (*it)->number;
        model_posted.erase(it);
        break;
      }
    }
    auto* taken = static_cast<Receive*>(take(envelope));
    EXPECT_EQ(expected, taken != nullptr ? taken->number : -1);
    if (taken == nullptr) {
      messages.push_back(std::make_unique<Message>());
      Message* message = messages.back().get();
      message->envelope = envelope;
      message->number = number;
      unexpected.append(message);
      model_unexpected.push_back(message);
    }
    return expected;
  }

  /// A receive is posted: the number of the message that it gets, or -1.
  int post(const Envelope& envelope, int number) {
    int expected = -1;
    for (auto it = model_unexpected.begin(); it != model_unexpected.end(); ++it) {
      if (fits(envelope, (*it)->envelope)) {
        expected = (*it)->number;
        model_unexpected.erase(it);
        break;
      }
    }
    auto* found = static_cast<Message*>(unexpected.find(envelope));
    EXPECT_EQ(expected, found != nullptr ? found->number : -1);
    if (found != nullptr) {
      unexpected.remove(found);
      return expected;
    }
    receives.push_back(std::make_unique<Receive>());
    Receive* receive = receives.back().get();
    receive->envelope = envelope;
    receive->number = number;
    posted.append(receive);
    model_posted.push_back(receive);
    return expected;
  }

  PostedQueue posted;
  UnexpectedQueue unexpected;
  std::list<Receive*> model_posted;
  std::list<Message*> model_unexpected;
  std::vector<std::unique_ptr<Receive>> receives;
  std::vector<std::unique_ptr<Message>> messages;
};

TEST_F(Matching, DoesWhatTwoPlainListsDo) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    const int spread = 1 + static_cast<int>(seed % 5);
    const unsigned wildcards = seed % 4 == 0 ? 0 : 25 * (seed % 4);
    auto pick = [&] { return static_cast<int32_t>(random() % static_cast<unsigned>(spread)); };
    for (int step = 0; step < 3000; ++step) {
      Envelope envelope = {1 + random() % 3, pick(), pick()};
      const bool sends_more = (step / 500) % 2 == 0;  // queues grow long, and empty again
      if (random() % 100 < (sends_more ? 60U : 40U)) {
        arrive(envelope, step);
      } else {
        envelope.source = random() % 100 < wildcards ? kAny : envelope.source;
        envelope.tag = random() % 100 < wildcards ? kAny : envelope.tag;
        post(envelope, step);
      }
      if (random() % 50 == 0 && !model_posted.empty()) {  // cancelled
        auto it = model_posted.begin();
        std::advance(it, static_cast<long>(random() % model_posted.size()));
        posted.remove(*it);
        model_posted.erase(it);
      }
    }
    EXPECT_EQ(model_posted.size(), posted.count());
    EXPECT_EQ(model_unexpected.size(), unexpected.count());
  }
}

TEST_F(Matching, TenThousandReceivesCostFewComparisons) {
  for (int tag = 0; tag < 10000; ++tag) {
    post({7, 3, tag}, tag);
  }
  for (int tag = 9999; tag >= 0; --tag) {
    EXPECT_EQ(tag, take({7, 3, tag}) != nullptr ? tag : -1);
  }
  EXPECT_LT(posted.comparisons(), 40000U);
}

TEST_F(Matching, TenThousandMessagesCostFewComparisonsWithAnyWildcard) {
  for (int tag = 0; tag < 10000; ++tag) {
    arrive({7, tag % 10, tag}, tag);
  }
  for (int tag = 9999; tag >= 7500; --tag) {
    const int32_t source = tag % 10;
    for (const Envelope& wanted : {Envelope{7, source, tag}, Envelope{7, kAny, tag}, Envelope{7, source, kAny}}) {
      ASSERT_NE(nullptr, unexpected.find(wanted));
    }
    UnexpectedMessage* found = unexpected.find({7, kAny, tag});
    unexpected.remove(found);
  }
  ASSERT_NE(nullptr, unexpected.find({7, kAny, kAny}));
  EXPECT_EQ(0, unexpected.find({7, kAny, kAny})->envelope.tag);  // the earliest
  EXPECT_LT(unexpected.comparisons(), 200000U);
}

TEST_F(Matching, ContextsDoNotMix) {
  arrive({1, 0, 0}, 1);
  EXPECT_EQ(-1, post({2, kAny, kAny}, 2));
  EXPECT_EQ(2, arrive({2, 5, 9}, 3));
  EXPECT_EQ(1, post({1, kAny, 0}, 4));
}

}  // namespace
}  // namespace headroom::direct
