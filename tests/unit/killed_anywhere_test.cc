// A process that is killed at some instruction of the protocol of messages: the other one gets whole messages or learns of the
// loss; it never gets wrong content and never hangs. Content lies outside evictable memory here (endpoint_fixture.h); in it:
// killed_evictable_test.cc.
#if defined(__x86_64__)
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <limits>
#include <map>

#include "base/settings.h"
#include "base/system_calls.h"
#include "direct/attach.h"
#include "endpoint_fixture.h"
#include "stepping.h"
#include "trace/counters.h"

namespace headroom::direct {
namespace {

using test::kNobody;
using test::steps;
using trace::Counter;

constexpr int kWrong = 77;
constexpr int kOtherPath = 78;
constexpr int kSawLoss = 3;
constexpr int kEndedByHeadroom = 2;

struct Scenario {
  const char* name;
  uint64_t bytes;
  int before;  // messages that pass before the victim is stepped
  int stepped;
  bool synchronous;
  bool budget;  // what is copied aside has room
  bool attaches;
  Counter counter;    // counts that this path ran,
  int counts;         // on this side
  bool late = false;  // the receiver comes when the sender has ended
};

void PrintTo(const Scenario& scenario, std::ostream* out) { *out << scenario.name; }

class KilledAnywhere : public Endpoints, public ::testing::WithParamInterface<std::tuple<Scenario, int>> {
 protected:
  static const Scenario& scenario() { return std::get<0>(GetParam()); }
  static int victim() { return std::get<1>(GetParam()); }  // 0 sends, 1 receives

  /// A side's process does its part; the victim alone is stepped.
  [[noreturn]] void take_part(int side) {
    alarm(20);
    const int quiet = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(quiet, STDERR_FILENO);  // what Headroom says of the loss
    while (ledger->members[1 - side].pid.load() == 0) {
      relax();
    }
    ends[side]->progress();
    // The last message is not stepped: a sender waits until it has been received, so it learns of a receiver's death.
    const int end_of_steps = scenario().before + scenario().stepped;
    const int all = end_of_steps + (scenario().late ? 0 : 1);
    std::vector<std::vector<char>> contents(static_cast<size_t>(all), std::vector<char>(scenario().bytes));
    for (int number = 0; number < all && side == 0; ++number) {
      fill(contents[number], static_cast<uint32_t>(number));
    }
    uint64_t counted_before = 0;
    for (int number = 0; number < all; ++number) {
      if (number == scenario().before) {
        counted_before = trace::counted(scenario().counter);
        wait_for_sender(side);
      }
      if (side == victim() && number == scenario().before) {
        test::begin_stepping();
      }
      if (side == victim() && number == end_of_steps) {
        test::end_stepping();
      }
      side == 0 ? send_one(number, contents[number], number == end_of_steps) : receive_one(number, contents[number]);
    }
    if (side == victim()) {
      test::end_stepping();
    }
    ledger->members[side].state.store(static_cast<uint32_t>(node::MemberState::kLeft));
    _exit(side == scenario().counts && trace::counted(scenario().counter) == counted_before ? kOtherPath : 0);
  }

  /// A receiver that is late comes when the sender has ended.
  void wait_for_sender(int side) {
    const auto& sender = ledger->members[0].state;
    while (side == 1 && scenario().late && ledger->lost_at_ns.load() == 0 &&
           sender.load() != static_cast<uint32_t>(node::MemberState::kLeft)) {
      sched_yield();
    }
  }

  void send_one(int number, std::vector<char>& content, bool last) {
    Sending* sending = nullptr;
    // Whether attaching works is known when the first message has been received.
    const bool synchronous = last || scenario().synchronous || (scenario().attaches && number < scenario().before);
    if (send(0, number, content, synchronous, sending) != SendOutcome::kPending) {
      return;
    }
    for (int round = 0; !ends[0]->try_to_finish(sending); ++round) {
      if (round > 20 && !synchronous) {
        ends[0]->copy_aside(sending, false);
      }
      ends[0]->progress();
      give_up_if_lost(round);
    }
  }
  void receive_one(int number, std::vector<char>& buffer) {
    Receiving receiving;
    receiving.envelope = {9, number % 2 == 0 ? kAny : 0, number};
    receiving.into = {buffer.data(), buffer.size(), nullptr};
    ends[1]->receive(receiving);
    for (int round = 0; !receiving.complete.load(); ++round) {
      ends[1]->progress();
      give_up_if_lost(round);
    }
    if (victim() == 1) {
      return;
    }
    std::vector<char> expected(scenario().bytes);
    fill(expected, static_cast<uint32_t>(number));
    if (receiving.bytes != scenario().bytes || buffer != expected) {
      _exit(kWrong);
    }
  }
  /// What Endpoint::end_if_peers_are_lost does in a job: once all that was published has been looked at.
  void give_up_if_lost(int round) {
    if (round % 100 == 99 && ledger->lost_at_ns.load() != 0 && ++looks_after_loss_ > 3) {
      _exit(kSawLoss);
    }
    if (round % 16 == 15) {
      sched_yield();
    }
  }

  /// How the other one ended, where the victim died at that instruction; and the victim itself, at last.
  int survive(long killed_at) {
    TearDown();
    SetUp();
    ledger->free_bytes.store(scenario().budget ? int64_t{1} << 30 : 0);
    steps->taken = 0;
    steps->killed_at = killed_at;
    pid_t processes[2] = {};
    ledger->members[0].pid.store(0);
    ledger->members[1].pid.store(0);
    for (int side = 0; side < 2; ++side) {
      processes[side] = fork();
      EXPECT_GE(processes[side], 0);
      if (processes[side] == 0) {
        if (scenario().attaches) {
          allow_attaching();
        }
        ledger->members[side].pid.store(getpid());
        take_part(side);
      }
    }
    int status = 0;
    waitpid(processes[victim()], &status, 0);
    if (killed_at == kNobody) {
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    } else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
      ledger->members[victim()].state.store(static_cast<uint32_t>(node::MemberState::kDied));
      ledger->lost_at_ns.store(base::monotonic_ns());
      ++deaths_;
    } else {
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "the victim at " << killed_at << ": " << status;
    }
    waitpid(processes[1 - victim()], &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  int deaths_ = 0;

 private:
  int looks_after_loss_ = 0;
};

TEST_P(KilledAnywhere, TheOtherOneGetsWholeMessagesOrLearnsOfIt) {
  setenv("HEADROOM_ATTACH", scenario().attaches ? "auto" : "off", 1);
  base::load_settings();
  test::open_steps();
  // A victim that waits steps, too, and longer where the machine is busy: the shortest of a few runs is what every run has.
  long all = std::numeric_limits<long>::max();
  for (int run = 0; run < 4; ++run) {
    ASSERT_EQ(0, survive(kNobody));
    all = std::min(all, steps->taken.load());
  }
  ASSERT_GT(all, 100);
  // Densely where it begins and where it ends, and evenly between, where a long message is mostly copied.
  constexpr long kDense = 400;
  constexpr long kAffordable = 200'000;
  std::vector<long> moments;
  for (long moment = 1; moment < all; moment += std::max(all / std::clamp(kAffordable / all, 6L, 20L), 1L)) {
    moments.push_back(moment);
  }
  for (long near = 1; near < std::min(kDense, all); near += all < kAffordable / 20 ? 37 : 97) {
    moments.push_back(near);
    moments.push_back(all - near);
  }
  std::map<int, int> ends_seen;
  for (const long moment : moments) {
    const int end = survive(moment);
    ++ends_seen[end];
    ASSERT_TRUE(end == 0 || end == kSawLoss || end == kEndedByHeadroom)
        << scenario().name << ", killed at " << moment << " of " << all << ": " << end;
  }
  EXPECT_GE(deaths_ * 4, static_cast<int>(moments.size())) << scenario().name;
  if (victim() == 0 || !scenario().late) {  // a sender that is not waited for has ended before
    EXPECT_GT(ends_seen[kSawLoss] + ends_seen[kEndedByHeadroom], 0) << scenario().name;
  }
  test::close_steps();
}

// Records of 8 bytes are half a line each, but for the first two.
const Scenario kScenarios[] = {
    {"Short", 8, 3, 6, false, true, false, Counter::kMessagesInline, 0},
    {"NextChunk", 8, kChunkHalves - kFirstHalf - 15, 20, false, true, false, Counter::kMessagesInline, 0},
    {"InARecord", 1000, 3, 6, false, true, false, Counter::kMessagesInline, 0},
    {"Aside", 20000, 1, 2, false, true, false, Counter::kMessagesAside, 0},
    {"Synchronous", 600, 1, 3, true, true, false, Counter::kMessagesAside, 0},
    {"Stream", kRingBytes + 300'000, 0, 1, false, false, false, Counter::kMessagesStreamed, 0},
    {"Attached", kAttachSharedFrom + 5000, 1, 2, true, true, true, Counter::kMessagesAttached, 1},
    {"AttachedLate", kAttachSharedFrom + 5000, 1, 1, false, true, true, Counter::kMessagesAside, 0, true},
};

INSTANTIATE_TEST_SUITE_P(Messages, KilledAnywhere, ::testing::Combine(::testing::ValuesIn(kScenarios), ::testing::Values(0, 1)),
                         [](const auto& which) {
                           return std::string(std::get<0>(which.param).name) +
                                  (std::get<1>(which.param) == 0 ? "SenderDies" : "ReceiverDies");
                         });

}  // namespace
}  // namespace headroom::direct
#endif
