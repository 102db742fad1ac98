// A process that is killed at some instruction of a message whose content lies in evictable memory, on both sides: the other
// one gets whole messages, all that were sent, or ends with an error that names the dead one. (Other content:
// killed_anywhere_test.cc.)
#if defined(__x86_64__)
#include "direct/transfer.h"
#include "killed_ranks.h"
#include "trace/counters.h"

namespace headroom::direct {
namespace {

using test::Rank;
using trace::Counter;

constexpr int kOtherPath = 79;
constexpr uint64_t kPiece = 1000;  // of content with gaps, each as long
constexpr uint64_t kBallastBytes = 12 << 20;

struct Scenario {
  const char* name;
  uint64_t bytes;
  int before;  // messages that pass before those in which the victim is killed
  int parts;
  Counter counter;  // counts that this path ran,
  int counts;       // on this side: 0 sends, 1 receives
  SendKind kind = SendKind::kStandard;
  bool has_gaps = false;
  bool is_late = false;   // the receiver comes when the sender has ended
  bool is_short = false;  // memory is, so that the content has left it
};
void PrintTo(const Scenario& scenario, std::ostream* out) { *out << scenario.name; }

/// A side of the messages.
class Side {
 public:
  Side(Rank& rank, const Scenario& scenario, int victim)
      : rank_(rank), scenario_(scenario), victim_(victim), buffer_(Rank::allocate(2 * scenario.bytes)) {
    ballast_ = scenario.is_short ? Rank::allocate(kBallastBytes) : nullptr;
    if (scenario.has_gaps) {
      LayoutBuilder pieces;
      pieces.add(0, kPiece, 1, 0);
      layout_ = pieces.finish(endpoint().memory(), 2 * kPiece);
      pieces.drop();
    }
    rank.meet();
  }

  void run() {
    const bool sends = rank_.self() == 0;
    const uint64_t counted_before = trace::counted(scenario_.counter);
    if (!sends && scenario_.is_late) {
      while (rank_.done() < all() && !Rank::is_lost()) {
        sched_yield();
      }
    }
    for (int number = 0; number < all(); ++number) {
      if (sends) {
        fill(number);
      }
      drive_out();
      const int part = number - scenario_.before;
      const bool may_be_killed = rank_.self() == victim_ && part >= 0;
      if (may_be_killed) {
        test::begin_part(part);
      } else if (part >= 0 && scenario_.bytes >= kHelpedFrom) {
        test::begin_stepping(test::on_slow_step);  // who is stepped has its share then
      }
      sends ? send_one(number) : receive_one(number);
      may_be_killed ? test::end_part(part) : test::end_stepping();
      if (sends) {
        rank_.count_done();
      } else if (victim_ != 1) {
        check(number);
      }
    }
    if (rank_.self() == scenario_.counts && trace::counted(scenario_.counter) == counted_before) {
      _exit(kOtherPath);
    }
  }

 private:
  [[nodiscard]] int all() const { return scenario_.before + scenario_.parts; }
  [[nodiscard]] Content content() const { return {buffer_, scenario_.bytes, layout_}; }
  [[nodiscard]] char* place_of(uint64_t at) const {
    return buffer_ + (layout_ != nullptr ? at / kPiece * 2 * kPiece + at % kPiece : at);
  }
  static char value(uint64_t at, int number) { return static_cast<char>(at * 13 + (at >> 8) + static_cast<uint64_t>(number)); }

  void fill(int number) {
    for (uint64_t at = 0; at < scenario_.bytes; ++at) {
      *place_of(at) = value(at, number);
    }
  }
  void check(int number) const {
    for (uint64_t at = 0; at < scenario_.bytes; ++at) {
      if (*place_of(at) != value(at, number)) {
        _exit(test::kWrong);
      }
    }
  }
  void drive_out() {
    if (ballast_ != nullptr) {
      pager::will_not_need(buffer_, 2 * scenario_.bytes);
    }
    for (uint64_t at = 0; ballast_ != nullptr && at < kBallastBytes; at += arena::kPageBytes) {
      ++ballast_[at];
    }
  }

  void send_one(int number) {
    Sending* sending = nullptr;
    if (endpoint().send(rank_.member(1), {9, 0, number}, content(), scenario_.kind, 0, sending) != SendOutcome::kPending) {
      return;
    }
    Rank::wait_until([&] {
      if (scenario_.is_late) {
        endpoint().copy_aside(sending, false);
      }
      return endpoint().try_to_finish(sending);
    });
  }
  void receive_one(int number) {
    Receiving receiving;
    receiving.envelope = {9, number % 2 == 0 ? kAny : 0, number};
    receiving.member = number % 2 == 0 ? -1 : rank_.member(0);
    receiving.into = content();
    endpoint().receive(receiving);
    int looks = 0;
    Rank::wait_until([&] {
      constexpr int kMany = 400;  // fewer than before this process is ended
      if (Rank::is_lost() && rank_.done() > number && ++looks > kMany) {
        _exit(test::kWrong);  // it was sent
      }
      return receiving.complete.load();
    });
    if (receiving.bytes != scenario_.bytes) {
      _exit(test::kWrong);
    }
  }

  Rank& rank_;
  const Scenario& scenario_;
  int victim_;
  char* buffer_;
  char* ballast_;
  Layout* layout_ = nullptr;
};

class KilledAnywhereWithEvictable : public test::KilledRanks,
                                    public ::testing::WithParamInterface<std::tuple<Scenario, int>> {};

TEST_P(KilledAnywhereWithEvictable, TheOtherOneGetsWholeMessagesOrLearnsOfIt) {
  const auto& [scenario, victim] = GetParam();
  kill_at_moments(victim, scenario.is_short ? "24M" : "1G", scenario.parts,
                  [&, victim = victim, &scenario = scenario](Rank& rank) { Side(rank, scenario, victim).run(); });
  if (!scenario.is_late) {
    EXPECT_GT(ends_seen[test::kEndedByHeadroom], 0);
  }
}

const Scenario kScenarios[] = {
    {"Fetched", 20'000, 2, 6, Counter::kMessagesFetched, 1},
    {"Synchronous", 100, 2, 8, Counter::kMessagesFetched, 1, SendKind::kSynchronous},
    {"Gaps", 20'000, 2, 4, Counter::kMessagesFetched, 1, SendKind::kStandard, true},
    {"Shared", 3 * kSharedFrom + 5000, 1, 2, Counter::kMessagesHelped, 0},
    {"Helped", kHelpedFrom + 500, 1, 2, Counter::kMessagesHelped, 0, SendKind::kStandard, true},
    {"Late", 20'000, 2, 6, Counter::kMessagesAside, 0, SendKind::kStandard, false, true},
    {"Short", kSharedFrom + 5000, 1, 2, Counter::kBlocksBroughtForMessages, 0, SendKind::kStandard, false, false, true},
};

INSTANTIATE_TEST_SUITE_P(Messages, KilledAnywhereWithEvictable,
                         ::testing::Combine(::testing::ValuesIn(kScenarios), ::testing::Values(0, 1)), [](const auto& which) {
                           return std::string(std::get<0>(which.param).name) +
                                  (std::get<1>(which.param) == 0 ? "SenderDies" : "ReceiverDies");
                         });

}  // namespace
}  // namespace headroom::direct
#endif
