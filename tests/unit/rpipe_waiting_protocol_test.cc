// Ringing beside going to sleep, and freeing beside using again, in every order, with stores that other processors see late
// (rpipe/waiting.h, rpipe/descriptor.h, rpipe/writer.h). Each safeguard is also left out in turn, to see that its absence is
// found.
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <set>
#include <string>

#include "rpipe/shared.h"

namespace headroom::rpipe {
namespace {

/// Goes through all that can follow from the first world.
template <typename World, typename Move>
std::string explore(Move move, size_t* count = nullptr) {
  std::set<World> known{{World{}}};
  std::deque<World> worlds{{World{}}};
  std::string wrong;
  const auto add = [&](const World& world) {
    if (known.insert(world).second) {
      worlds.push_back(world);
    }
  };
  for (size_t at = 0; at < worlds.size() && wrong.empty(); ++at) {
    const World world = worlds[at];  // a copy: more come
    wrong = move(world, add);
  }
  if (count != nullptr) {
    *count = worlds.size();
  }
  return wrong;
}

// ---- ringing -------------------------------------------------------------------------------------------------------------

enum class LeftOut { kNothing, kWriterFence, kWaiterFence, kSecondLook, kBell, kOtherBit, kTakenBackFirst };

/// A process has a thread that sleeps by its bell and one that polls its descriptor; both wait for one word that a peer writes.
struct Ringing {
  bool is_written = false;
  bool is_written_late = false;  // in the writer's store buffer
  uint32_t sleeps = 0;
  std::array<uint32_t, 2> announced_late = {};  // in the buffer of each waiting thread, if that were no locked instruction
  uint8_t bell = 0;
  bool has_byte = false;
  uint8_t writer = 0;  // what each does next
  std::array<uint8_t, 2> waiter = {};
  uint32_t rung = 0;
  uint8_t bell_seen = 0;
  auto operator<=>(const Ringing&) const = default;
};

class Ringers {
 public:
  explicit Ringers(LeftOut left_out) : left_out_(left_out) {}

  template <typename Add>
  std::string operator()(const Ringing& world, Add add) const {
    let_stores_arrive(world, add);
    write(world, add);
    for (size_t thread : {kSleeper, kPoller}) {
      wait(world, thread, add);
    }
    const bool is_over = world.writer == kWritten && !world.is_written_late;
    const bool sleeps = world.waiter[kSleeper] == kAsleepNow || (world.waiter[kPoller] == kAsleepNow && !world.has_byte);
    return is_over && sleeps ? "somebody sleeps although it is there" : "";
  }

 private:
  static constexpr size_t kSleeper = 0;
  static constexpr size_t kPoller = 1;
  enum : uint8_t { kStore, kFence, kLook, kExchange, kRing, kWake, kWritten };
  enum : uint8_t { kBefore, kAnnounce, kWaiterFence, kLookAgain, kSleep, kAsleepNow, kSeen };

  template <typename Add>
  static void let_stores_arrive(Ringing world, Add add) {
    if (world.is_written_late) {
      Ringing after = world;
      after.is_written = true;
      after.is_written_late = false;
      add(after);
    }
    for (size_t thread : {kSleeper, kPoller}) {
      if (world.announced_late[thread] != 0) {
        Ringing after = world;
        after.sleeps |= after.announced_late[thread];
        after.announced_late[thread] = 0;
        add(after);
      }
    }
  }

  template <typename Add>
  void write(Ringing world, Add add) const {
    switch (world.writer) {
      case kStore:
        world.is_written_late = true;
        world.writer = left_out_ == LeftOut::kWriterFence ? kLook : kFence;
        break;
      case kFence:
        if (world.is_written_late) {
          return;
        }
        world.writer = kLook;
        break;
      case kLook:
        world.writer = world.sleeps != 0 ? kExchange : kWritten;
        break;
      case kExchange:  // locked: what was stored before is seen
        if (world.is_written_late) {
          return;
        }
        world.rung = world.sleeps;
        world.sleeps = 0;
        world.writer = kRing;
        break;
      case kRing:
        if ((world.rung & kAsleep) != 0 && left_out_ != LeftOut::kBell) {
          ++world.bell;
        }
        world.writer = kWake;
        break;
      case kWake:
        if ((world.rung & kAsleep) != 0 && world.waiter[kSleeper] == kAsleepNow) {
          world.waiter[kSleeper] = kBefore;
        }
        world.has_byte |= (world.rung & kArmed) != 0 && left_out_ != LeftOut::kOtherBit;
        world.writer = kWritten;
        break;
      default:
        return;
    }
    add(world);
  }

  template <typename Add>
  void wait(Ringing world, size_t thread, Add add) const {
    uint8_t& next = world.waiter[thread];
    switch (next) {
      case kBefore:
        world.bell_seen = thread == kSleeper ? world.bell : world.bell_seen;
        world.has_byte = world.has_byte && (thread == kSleeper || left_out_ == LeftOut::kTakenBackFirst);
        next = kAnnounce;
        break;
      case kAnnounce:
        (left_out_ == LeftOut::kWaiterFence ? world.announced_late[thread] : world.sleeps) |=
            thread == kSleeper ? kAsleep : kArmed;
        next = left_out_ == LeftOut::kWaiterFence ? kLookAgain : kWaiterFence;
        break;
      case kWaiterFence:
        next = kLookAgain;
        break;
      case kLookAgain:
        next = world.is_written && left_out_ != LeftOut::kSecondLook ? kSeen : kSleep;
        break;
      case kSleep:
        if (thread == kPoller && left_out_ == LeftOut::kTakenBackFirst) {
          world.has_byte = false;  // taken back after it was armed, not before
        }
        next = thread == kSleeper && world.bell != world.bell_seen ? kBefore : kAsleepNow;
        break;
      case kAsleepNow:
        if (thread == kSleeper || !world.has_byte) {
          return;
        }
        next = kBefore;
        break;
      default:
        return;
    }
    add(world);
  }

  LeftOut left_out_;
};

TEST(RpipeWaitingProtocol, NobodySleepsThroughWhatWasWritten) {
  size_t worlds = 0;
  EXPECT_EQ("", explore<Ringing>(Ringers(LeftOut::kNothing), &worlds));
  EXPECT_GT(worlds, 100U);
}

TEST(RpipeWaitingProtocol, EachSafeguardIsNeeded) {
  for (const LeftOut left_out : {LeftOut::kWriterFence, LeftOut::kWaiterFence, LeftOut::kSecondLook, LeftOut::kBell,
                                 LeftOut::kOtherBit, LeftOut::kTakenBackFirst}) {
    EXPECT_NE("", explore<Ringing>(Ringers(left_out))) << static_cast<int>(left_out);
  }
}

// ---- freeing -------------------------------------------------------------------------------------------------------------

enum class Order { kAsItIs, kMarkAfterNotice, kFreedAtOnce };

/// One buffer goes round twice: written, read, freed, collected. Stores of one process are seen in any order, but for what is
/// stored by release.
struct Freeing {
  uint8_t notice = 0;  // the last that was written
  bool mark = false;
  uint8_t content = 0;                 // of the message of that number
  bool mark_late = false;              // the writer's taking it back is on its way
  bool freed_late = false;             // the reader's mark is
  uint8_t content_read_late = 0;       // a read of the content that has not been done when the mark is seen
  uint8_t written = 0, collected = 0;  // by the writer
  uint8_t taken = 0, freed = 0;        // by the reader
  bool is_wrong = false;
  auto operator<=>(const Freeing&) const = default;
};

template <typename Add>
std::string free_and_use_again(const Freeing& now, Order order, Add add) {
  constexpr uint8_t kRounds = 3;
  if (now.is_wrong) {
    return "the content is another message's";
  }
  bool moves = false;
  const auto go = [&](const Freeing& next) {
    moves = true;
    add(next);
  };
  if (now.mark_late) {
    Freeing next = now;
    next.mark = next.mark_late = false;
    go(next);
  }
  if (now.freed_late) {
    Freeing next = now;
    next.mark = true;
    next.freed_late = false;
    go(next);
  }
  // The writer: a buffer that it has back, and whose mark others see to be 0 before they see the notice.
  if (now.written == now.collected && now.written < kRounds && (order == Order::kMarkAfterNotice || !now.mark_late)) {
    Freeing next = now;
    next.content = next.notice = ++next.written;
    go(next);
  }
  if (now.collected < now.written && now.mark) {
    Freeing next = now;
    ++next.collected;
    next.mark_late = true;
    go(next);
  }
  // The reader.
  if (now.taken < now.notice && now.taken == now.freed) {
    Freeing next = now;
    ++next.taken;
    next.content_read_late = order == Order::kFreedAtOnce ? next.taken : 0;
    next.is_wrong = next.content != next.taken;
    go(next);
  }
  if (now.content_read_late != 0) {
    Freeing next = now;
    next.is_wrong = next.content != next.content_read_late;
    next.content_read_late = 0;
    go(next);
  }
  if (now.freed < now.taken) {
    Freeing next = now;
    ++next.freed;
    next.freed_late = true;
    go(next);
  }
  return moves || (now.collected == kRounds && now.freed == kRounds) ? "" : "a buffer that was freed never comes back";
}

std::string explore_freeing(Order order) {
  return explore<Freeing>([order](const Freeing& now, auto add) { return free_and_use_again(now, order, add); });
}

TEST(RpipeWaitingProtocol, WhatWasFreedComesBackOnceAndIsUsedAgainAfterItWasRead) {
  EXPECT_EQ("", explore_freeing(Order::kAsItIs));
}

TEST(RpipeWaitingProtocol, AMarkIsTakenBackBeforeTheNextNotice) { EXPECT_NE("", explore_freeing(Order::kMarkAfterNotice)); }

TEST(RpipeWaitingProtocol, WhatIsReadIsReadBeforeItIsFreed) {
  EXPECT_EQ("the content is another message's", explore_freeing(Order::kFreedAtOnce));
}

}  // namespace
}  // namespace headroom::rpipe
