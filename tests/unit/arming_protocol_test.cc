// A hold beside the beginning of arming, in every order, with stores that other processors see late: who holds a block and is
// told that memory is not watched yet uses it without asking (pager/while_unarmed.cc), so arming must find the hold
// (pager/arming.cc). Each safeguard is also left out in turn, to see that its absence is found.
#include <gtest/gtest.h>

#include <deque>
#include <set>
#include <string>

#include "arena/arena.h"

namespace headroom::pager {
namespace {

using namespace arena;

enum class LeftOut { kNothing, kFence, kHoldFirst, kLockedHold, kLookAtHolds, kHeldBeforePopulated };

struct World {
  uint64_t word = kFresh;
  bool arms = false;
  bool arms_on_its_way = false;  // in the store buffer of the pager's thread
  bool hold_on_its_way = false;  // in the holder's, if that were no locked instruction
  bool populated = false;
  bool must_ask = false;  // what the holder was told
  uint8_t memory = 0;
  uint8_t storage = 0;
  uint8_t written = 0;
  uint8_t holder = 0;  // what each does next
  uint8_t armer = 0;
  auto operator<=>(const World&) const = default;
};

class Explorer {
 public:
  explicit Explorer(LeftOut left_out) : left_out_(left_out) {}

  std::string explore() {
    add({});
    for (size_t at = 0; at < worlds_.size() && wrong_.empty(); ++at) {
      const World world = worlds_[at];
      let_stores_arrive(world);
      move_holder(world);
      move_armer(world);
    }
    return wrong_;
  }
  [[nodiscard]] size_t worlds() const { return worlds_.size(); }

 private:
  enum : uint8_t { kFirst, kSecond, kAsk, kUse, kDrop, kOver };            // the holder
  enum : uint8_t { kSay, kFenceNext, kListHeld, kListPopulated, kArmed };  // who arms

  void add(const World& world) {
    if (known_.insert(world).second) {
      worlds_.push_back(world);
    }
  }
  static bool is_held(const World& world) { return (world.word & kHoldMask) != 0; }
  static uint64_t state_in(const World& world) { return world.word & kStateMask; }

  void let_stores_arrive(World world) {
    if (world.arms_on_its_way) {
      World seen = world;
      seen.arms = true;
      seen.arms_on_its_way = false;
      add(seen);
    }
    if (world.hold_on_its_way) {
      world.word += kHold + kWriteHold;
      world.hold_on_its_way = false;
      add(world);
    }
  }

  void hold(World& world) const {
    if (left_out_ == LeftOut::kLockedHold) {
      world.hold_on_its_way = true;
    } else {
      world.word += kHold + kWriteHold;
    }
  }
  static void look(World& world) { world.must_ask = world.arms; }

  void move_holder(World world) {
    const bool holds_first = left_out_ != LeftOut::kHoldFirst;
    switch (world.holder) {
      case kFirst:
        holds_first ? hold(world) : look(world);
        world.holder = kSecond;
        break;
      case kSecond:
        holds_first ? look(world) : hold(world);
        world.holder = world.must_ask ? kAsk : kUse;
        break;
      case kAsk:
        if (world.armer != kArmed || world.hold_on_its_way) {
          return;  // waits for the lock
        }
        make_resident(world, true);  // the pager brings it
        world.holder = kUse;
        break;
      case kUse:  // by another mapping
        world.memory = world.written = 1;
        world.populated = true;
        world.holder = kDrop;
        break;
      case kDrop:
        if (world.hold_on_its_way) {
          return;
        }
        world.word -= kHold + kWriteHold;
        world.holder = kOver;
        break;
      default:
        return;
    }
    add(world);
  }

  static void make_resident(World& world, bool dirty) {
    if (state_in(world) == kStored) {
      world.memory = world.storage;
    }
    world.populated = true;
    world.word = (world.word & ~kStateMask) | kResident | (dirty ? kDirty : 0);
  }

  void move_armer(World world) {
    switch (world.armer) {
      case kSay:
        world.arms_on_its_way = true;
        world.armer = left_out_ == LeftOut::kFence ? kListHeld : kFenceNext;
        break;
      case kFenceNext:
        if (world.arms_on_its_way) {
          return;
        }
        world.armer = kListHeld;
        break;
      case kListHeld:
      case kListPopulated: {
        const bool lists_held = (world.armer == kListHeld) != (left_out_ == LeftOut::kHeldBeforePopulated);
        const bool is_listed = lists_held ? is_held(world) && left_out_ != LeftOut::kLookAtHolds : world.populated;
        if (is_listed && state_in(world) == kFresh) {
          make_resident(world, true);
        }
        ++world.armer;
        break;
      }
      default:
        if (!world.arms_on_its_way) {
          run_pager(world);
        }
        return;
    }
    add(world);
  }

  /// The owner reads, blocks leave, and in the end what was written must be there.
  void run_pager(World world) {
    if (world.holder == kOver) {
      const uint8_t content = state_in(world) == kStored ? world.storage : state_in(world) == kResident ? world.memory : 0;
      if (content != world.written) {
        wrong_ = "a write is lost";
      }
    }
    if (state_in(world) == kFresh) {
      make_resident(world, false);
      add(world);
    } else if (state_in(world) == kResident && !is_held(world)) {
      const bool dirty = (world.word & kDirty) != 0;
      world.storage = dirty ? world.memory : 0;
      world.word = dirty ? uint64_t{kStored} : uint64_t{kFresh};
      world.memory = 0;
      world.populated = false;
      add(world);
    }
  }

  LeftOut left_out_;
  std::set<World> known_;
  std::deque<World> worlds_;
  std::string wrong_;
};

TEST(ArmingProtocol, WhoIsToldThatNothingIsWatchedIsFound) {
  Explorer explorer(LeftOut::kNothing);
  EXPECT_EQ("", explorer.explore());
  EXPECT_GT(explorer.worlds(), 40U);
}

TEST(ArmingProtocol, EachSafeguardIsNeeded) {
  for (const LeftOut left_out :
       {LeftOut::kFence, LeftOut::kHoldFirst, LeftOut::kLockedHold, LeftOut::kLookAtHolds, LeftOut::kHeldBeforePopulated}) {
    EXPECT_NE("", Explorer(left_out).explore()) << static_cast<int>(left_out);
  }
}

}  // namespace
}  // namespace headroom::pager
