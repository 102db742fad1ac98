// The block-state protocol in every order: all interleavings of a program's thread that reads and writes a block, a holder (the
// kernel, or a peer) that does so by the alias, the disk, and the pager that evicts, hides, probes with a single
// page that the block's word does not call mapped, and brings back, each in the steps in which the others can see it. The
// transitions of the block's word are the pager's own (pager/block_transitions.h). No write may be lost, nothing may be read
// that is old, what is held must be there, and who waits must be able to go on. Each safeguard is also left out in turn, to see
// that its absence is found.
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "pager/block_transitions.h"

namespace headroom::pager {
namespace {

using namespace arena;

enum class LeftOut { kNothing, kLookAtHolds, kProtect, kLookAtWrites, kConcealFirst, kHoldFirst, kSayProbed };
enum class HolderKind { kKernelReads, kKernelWrites, kPeerReads };

using Cells = std::array<uint8_t, 2>;  // what the program's thread writes, and what the holder does
enum : uint8_t { kAbsent, kReadable, kReadWrite };
enum : uint8_t { kGoesOn, kWaitsToRead, kWaitsToWrite };
enum : uint8_t { kHoldsNot, kHasLooked, kWaitsForBlock, kHoldsBlock };
enum : uint8_t { kNoTransfer, kWriteBegun, kWriteMade, kReadBegun, kReadMade };
// What the pager is about to do; each step is one that others can come in between.
enum : uint8_t {
  kPagerIdle,
  kToProtect,
  kToStartWrite,
  kToConceal,
  kToPunch,
  kToDropWritten,
  kToEndWriting,
  kToHide,
  kToMapAfterHiding,
  kToSayMapped,
  kToSayProbed,
  kToSayThere,
  kToSayRead,
};

struct World {
  uint64_t word = kFresh;
  Cells memory{}, storage{}, buffer{}, last{};
  bool populated = false;
  uint8_t mapping = kAbsent, thread = kGoesOn, holder = kHoldsNot, transfer = kNoTransfer, pager = kPagerIdle;
  uint8_t writes_left = 2, holds_left = 2;
  bool looked_there = false, mapping_writable = false;
  auto operator<=>(const World&) const = default;
};

class Explorer {
 public:
  Explorer(LeftOut left_out, HolderKind kind) : left_out_(left_out), kind_(kind) {}

  /// What goes wrong, or "" after everything that can happen.
  std::string explore() {
    add(World{}, SIZE_MAX);
    for (size_t at = 0; at < worlds_.size() && wrong_.empty(); ++at) {
      now_ = at;
      const World world = worlds_[at];
      check_at_rest(world);
      move_thread(world);
      move_holder(world);
      move_disk(world);
      move_pager(world);
    }
    return wrong_.empty() ? who_is_stuck() : wrong_;
  }
  [[nodiscard]] size_t worlds() const { return worlds_.size(); }

 private:
  static uint64_t state_of(const World& world) { return world.word & kStateMask; }
  [[nodiscard]] bool writes() const { return kind_ == HolderKind::kKernelWrites; }
  [[nodiscard]] uint64_t hold() const { return kHold + (writes() ? kWriteHold : 0); }

  void add(const World& world, size_t from) {
    const auto [found, is_new] = numbers_.emplace(world, worlds_.size());
    if (is_new) {
      worlds_.push_back(world);
      reached_from_.emplace_back();
    }
    if (from != SIZE_MAX) {
      reached_from_[found->second].push_back(from);
    }
  }
  void go(const World& world) { add(world, now_); }
  void fail(const char* what) { wrong_ = wrong_.empty() ? what : wrong_; }

  template <typename Next>
  bool step_word(World& world, Next next) {
    uint64_t seen = world.word;
    const uint64_t holds = seen & (kHoldMask | kWriteHoldMask);
    seen &= left_out_ == LeftOut::kLookAtHolds ? ~holds : ~uint64_t{0};
    const uint64_t dirty = left_out_ == LeftOut::kLookAtWrites && state_of(world) == kWriting ? seen & kDirty : 0;
    const NextWord after = next(seen & ~dirty);
    world.word = after ? *after | holds : world.word;
    return after.has_value();
  }

  void check_at_rest(const World& world) {
    if (world.pager == kPagerIdle && world.transfer == kNoTransfer) {
      const Cells content = world.populated ? world.memory : state_of(world) == kStored ? world.storage : Cells{};
      if (content != world.last) {
        fail("a write is lost");
      }
    }
  }

  void move_thread(World world) {
    if (world.thread != kGoesOn) {
      return;
    }
    World reads = world;
    if (world.mapping == kAbsent) {
      reads.thread = kWaitsToRead;
      go(reads);
    } else if (!world.populated || world.memory[0] != world.last[0]) {
      fail("the program reads what is old");
    }
    if (world.writes_left > 0) {
      if (world.mapping == kReadWrite) {
        world.memory[0] = world.last[0] = static_cast<uint8_t>(world.last[0] + 1);
        --world.writes_left;
      } else {
        world.thread = kWaitsToWrite;
      }
      go(world);
    }
  }

  bool is_there(uint64_t word) const {
    const uint64_t wanted = kMapped | (writes() ? kWritable : 0);
    return (word & kStateMask) == kResident && (kind_ == HolderKind::kPeerReads || (word & wanted) == wanted);
  }

  void move_holder(World world) {
    if (world.holder == kHoldsNot && world.holds_left > 0) {
      --world.holds_left;
      world.looked_there = is_there(world.word);
      world.holder = kHasLooked;
      if (left_out_ != LeftOut::kHoldFirst) {
        world.word += hold();  // in the same instruction as the look
        world.holder = world.looked_there ? kHoldsBlock : kWaitsForBlock;
        world.looked_there = false;
      }
      go(world);
    } else if (world.holder == kHasLooked) {
      world.word += hold();
      world.holder = world.looked_there ? kHoldsBlock : kWaitsForBlock;
      world.looked_there = false;
      go(world);
    } else if (world.holder == kHoldsBlock) {
      if (!world.populated) {
        fail("what is held is not there");
      } else if (world.memory[1] != world.last[1]) {
        fail("the holder reads what is old");
      }
      if (writes() && world.last[1] < 2) {
        World written = world;
        written.memory[1] = written.last[1] = static_cast<uint8_t>(written.last[1] + 1);
        go(written);
      }
      world.word -= hold();
      world.holder = kHoldsNot;
      go(world);
    }
  }

  void move_disk(World world) {
    if (world.transfer == kWriteBegun) {
      world.storage = world.memory;
      world.transfer = kWriteMade;
      go(world);
    } else if (world.transfer == kReadBegun) {
      world.buffer = world.storage;
      world.transfer = kReadMade;
      go(world);
    }
  }

  void move_pager(const World& world) {
    if (world.pager != kPagerIdle) {
      go_on(world);
      return;
    }
    if (world.transfer == kNoTransfer) {
      evict(world);
    } else if (world.transfer == kWriteMade) {
      World done = world;
      done.transfer = kNoTransfer;
      (void)step_word(done, next::note_copy);
      done.pager = kToDropWritten;
      go(done);
    } else if (world.transfer == kReadMade) {
      World done = world;
      done.transfer = kNoTransfer;
      done.memory = world.buffer;
      done.populated = true;
      done.mapping_writable = world.thread == kWaitsToWrite;
      done.mapping = done.mapping_writable ? kReadWrite : kReadable;
      done.pager = kToSayRead;
      go(done);
    }
    if (state_of(world) == kResident) {
      World hidden = world;
      if (step_word(hidden, next::take_access)) {
        hidden.pager = kToHide;
        go(hidden);
      }
    }
    if (world.thread != kGoesOn) {
      serve(world, world.thread == kWaitsToWrite, true);
    }
    if (world.holder == kWaitsForBlock) {
      const uint64_t wanted = kMapped | (writes() ? kWritable : 0);
      if ((state_of(world) == kResident || state_of(world) == kWriting) && (world.word & wanted) == wanted) {
        World given = world;
        given.holder = kHoldsBlock;
        go(given);
      } else {
        serve(world, writes(), false);
      }
    }
  }

  void evict(World world) {
    if (step_word(world, [](uint64_t word) { return next::drop_clean(word, kResident, false); })) {
      world.pager = left_out_ == LeftOut::kConcealFirst ? kToPunch : kToConceal;
      go(world);
    } else if (step_word(world, next::begin_writing)) {
      world.pager = left_out_ == LeftOut::kProtect ? kToStartWrite : kToProtect;
      go(world);
    }
  }

  /// A fault, or a holder's wish. As serve() in fault.cc.
  void serve(World world, bool write, bool for_thread) {
    switch (state_of(world)) {
      case kFresh:
        world.populated = true;
        world.memory = {};
        world.mapping = write ? kReadWrite : kReadable;
        world.mapping_writable = write;
        world.pager = kToSayThere;
        break;
      case kResident:
      case kWriting: {
        if (for_thread && (world.word & kMapped) == 0) {
          probe(world, write);
        }
        if (write && (world.word & kMapped) != 0 && (world.word & kWritable) == 0 && step_word(world, next::take_access)) {
          world.mapping_writable = true;
          world.pager = kToMapAfterHiding;
          break;
        }
        const bool dirty = (world.word & kDirty) != 0 && state_of(world) == kResident;
        world.mapping_writable = write || dirty || (world.word & kWritable) != 0;
        if ((world.word & kMapped) == 0 && world.mapping != kAbsent) {  // pages of a probe
          world.mapping = kAbsent;
          world.pager = kToMapAfterHiding;
          break;
        }
        world.mapping = world.mapping_writable ? kReadWrite : kReadable;
        world.pager = kToSayMapped;
        break;
      }
      case kStored:
        if (world.transfer != kNoTransfer) {
          return;
        }
        (void)step_word(
            world, [](uint64_t word) { return next::change_bits(word, kStateMask | kDirty | kWritable | kMapped, kReading); });
        world.transfer = kReadBegun;
        go(world);  // and the thread goes on waiting
        return;
      default:
        return;
    }
    world.thread = for_thread ? static_cast<uint8_t>(kGoesOn) : world.thread;
    go(world);
  }

  /// The thread gets the page that it has asked for, and the word says nothing of it but that there is something to write.
  void probe(World world, bool write) {
    world.mapping_writable = write;
    world.mapping = write                      ? static_cast<uint8_t>(kReadWrite)
                    : world.mapping == kAbsent ? static_cast<uint8_t>(kReadable)
                                               : world.mapping;
    world.pager = kToSayProbed;
    world.thread = kGoesOn;
    go(world);
  }

  void go_on(World world) {
    const uint64_t rights = kMapped | (world.mapping_writable ? kDirty | kWritable : 0);
    uint8_t then = kPagerIdle;
    switch (world.pager) {
      case kToProtect:
        world.mapping = world.mapping == kReadWrite ? static_cast<uint8_t>(kReadable) : world.mapping;
        then = kToStartWrite;
        break;
      case kToStartWrite:
        if (world.memory == Cells{} && step_word(world, [](uint64_t word) { return next::drop_clean(word, kWriting, true); })) {
          then = kToConceal;
        } else {
          world.transfer = kWriteBegun;
        }
        break;
      case kToDropWritten:
        then = step_word(world, [](uint64_t word) { return next::drop_clean(word, kWriting, false); })
                   ? static_cast<uint8_t>(left_out_ == LeftOut::kConcealFirst ? kToPunch : kToConceal)
                   : static_cast<uint8_t>(kToEndWriting);
        break;
      case kToEndWriting:
        (void)step_word(world, next::end_writing);
        break;
      case kToConceal:
        world.mapping = kAbsent;
        then = left_out_ == LeftOut::kConcealFirst ? kPagerIdle : kToPunch;
        break;
      case kToPunch:
        world.memory = {};
        world.populated = false;
        then = left_out_ == LeftOut::kConcealFirst ? kToConceal : kPagerIdle;
        break;
      case kToHide:
        world.mapping = kAbsent;
        break;
      case kToMapAfterHiding:
        world.mapping = world.mapping_writable ? kReadWrite : kReadable;
        then = kToSayMapped;
        break;
      case kToSayMapped:
        (void)step_word(world, [=](uint64_t word) { return next::change_bits(word, 0, rights); });
        break;
      case kToSayProbed:
        if (world.mapping_writable && left_out_ != LeftOut::kSayProbed) {
          (void)step_word(world, [](uint64_t word) { return next::change_bits(word, 0, kDirty | kWritable); });
        }
        break;
      case kToSayThere:
        (void)step_word(world, [=](uint64_t word) {
          return next::change_bits(word, kStateMask | kDirty | kHasCopy | kWritable, kResident | rights);
        });
        break;
      default:  // kToSayRead
        (void)step_word(world,
                        [=](uint64_t word) { return next::change_bits(word, kStateMask, kResident | kHasCopy | rights); });
        break;
    }
    world.pager = then;
    world.mapping_writable = then != kPagerIdle && world.mapping_writable;
    go(world);
  }

  /// From everywhere something must lead on to where nobody waits.
  std::string who_is_stuck() {
    std::vector<bool> goes_on(worlds_.size(), false);
    std::deque<size_t> known;
    for (size_t at = 0; at < worlds_.size(); ++at) {
      if (worlds_[at].thread == kGoesOn && worlds_[at].holder != kWaitsForBlock) {
        goes_on[at] = true;
        known.push_back(at);
      }
    }
    for (; !known.empty(); known.pop_front()) {
      for (const size_t before : reached_from_[known.front()]) {
        if (!goes_on[before]) {
          goes_on[before] = true;
          known.push_back(before);
        }
      }
    }
    for (const bool each : goes_on) {
      if (!each) {
        return "somebody waits for ever";
      }
    }
    return "";
  }

  LeftOut left_out_;
  HolderKind kind_;
  std::map<World, size_t> numbers_;
  std::deque<World> worlds_;
  std::vector<std::vector<size_t>> reached_from_;
  size_t now_ = 0;
  std::string wrong_;
};

constexpr std::array kKinds = {HolderKind::kKernelReads, HolderKind::kKernelWrites, HolderKind::kPeerReads};

TEST(BlockProtocol, NothingIsLostInAnyOrder) {
  for (const HolderKind kind : kKinds) {
    Explorer explorer(LeftOut::kNothing, kind);
    EXPECT_EQ("", explorer.explore()) << static_cast<int>(kind);
    EXPECT_GT(explorer.worlds(), 10'000U);
  }
}

TEST(BlockProtocol, EachSafeguardIsNeeded) {
  for (const LeftOut left_out : {LeftOut::kLookAtHolds, LeftOut::kProtect, LeftOut::kLookAtWrites, LeftOut::kConcealFirst,
                                 LeftOut::kHoldFirst, LeftOut::kSayProbed}) {
    bool found = false;
    for (const HolderKind kind : kKinds) {
      found = found || !Explorer(left_out, kind).explore().empty();
    }
    EXPECT_TRUE(found) << static_cast<int>(left_out);
  }
}

}  // namespace
}  // namespace headroom::pager
