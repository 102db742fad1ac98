// The state of the pager. Private to src/pager; touched by the pager thread alone unless a line says otherwise.
//
// Most sources have a header of their name; what the others do is in engine.h, store.h and fork.h, or in pager.h, which is for
// the other layers.
#pragma once

#include <atomic>
#include <cstdint>

#include "arena/arena.h"
#include "base/system_calls.h"
#include "node/session.h"
#include "pager/engine.h"
#include "pager/random_access.h"
#include "pager/replacement.h"
#include "pager/store.h"
#include "pager/waiting_accesses.h"

namespace headroom::pager {

inline constexpr int kStreams = 32;             // programs go over many arrays in step
inline constexpr uint64_t kUsesKnown = 8;       // of a stream: readers that were seen since go on beside it
inline constexpr int kFreshRuns = 32;           // as many as streams
inline constexpr uint64_t kTransferBlocks = 4;  // 1 MiB a transfer: the disk's best, and 16 of them fill its queue
static_assert(kTransferBlocks * arena::kBlockBytes == kStripeBytes);
inline constexpr uint64_t kPagesOfBlock = arena::kBlockBytes / arena::kPageBytes;
inline constexpr int64_t kWaitingFloorBytes = 1 << 20;  // a rank may keep so much while it waits

/// A sequential reader: blocks up to `end`, and without it, are to be read ahead.
struct Stream {
  int64_t last;                    // last block that faulted
  int64_t next;                    // first block not yet looked at
  int64_t end;                     // read ahead up to here
  int64_t window;                  // in blocks; doubles while the reader goes on
  uint64_t used_at;                // for replacement
  int64_t direction;               // 1, -1, or 0 while it is not known
  int64_t marker;                  // block that was left unmapped; behind `last` if there is none ahead
  int64_t sample = -1;             // the marker before
  int64_t written_samples = 0;     // how many markers in a row the program has written to
  bool followed = false;           // a reader was there; else it was only announced
  uint64_t extended = 0;           // how often its reader was seen to go on
  uint64_t uses[kUsesKnown] = {};  // when, the last times
};

/// A reader that touches fresh blocks in order.
struct FreshRun {
  uint64_t next;     // where the reader will go on
  uint64_t window;   // how many blocks it gets ahead
  uint64_t used_at;  // for replacement
};

struct State {
  // Looked at by threads of the program in frequent calls; apart from the rest, which is written all the time.
  alignas(64) std::atomic<bool> armed_for_all{false};  // is_armed()
  std::atomic<bool> forked_child{false};               // is_forked_child()
  alignas(64) arena::Partition* partition = nullptr;
  node::Session* session = nullptr;
  Store* store = nullptr;
  StoreFiles files;
  FaultEngine* engine = nullptr;
  bool armed = false;
  uint64_t covered = 0;       // bytes of the arena view that the engine watches
  Replacement resident;       // which of the resident blocks leave first
  int64_t leaving_bytes = 0;  // being written out, to be dropped
  WaitingAccesses waiting;
  uint64_t oldest_lacks_since_ns = 0;  // since when the oldest that waits has found no room; 0: it has, or none waits
  int lacking_blocks = 0;              // for which there was no room when all that wait were tried last, and since
  Stream streams[kStreams] = {};
  uint64_t stream_clock = 0;
  std::atomic<bool>* may_touch_ahead = nullptr;  // by block; set by the program's threads
  std::atomic<bool>* may_be_huge = nullptr;      // by 2 MiB of the partition (huge_pages.cc)
  FreshRun fresh_runs[kFreshRuns] = {};
  uint64_t fresh_clock = 0;
  RandomAccess random_access;
  uint64_t awake_until_ns = 0;    // the thread does not sleep before
  bool waits_for_others = false;  // asked other ranks for room
  bool collects = false;          // the blocks of a transfer that has ended are in no list yet
  uint64_t asked_at_ns = 0;
  int asked_member = -1;
  bool gave_nothing_yet = false;                   // to those: when transfers have ended there may be something
  uint64_t answered[node::kMaxMembers / 64] = {};  // the ranks that have asked us, a bit each, which are rung when that is gone
  int64_t other_bytes = 0;                         // reserved for memory outside the arena
  uint64_t other_measured_ns = 0;
  std::atomic<uint64_t> pinned_bytes{0};  // pinned_bytes_now(); changed by any thread
  std::atomic<bool> idle{false};          // set by the program's thread
  std::atomic<bool> turn_is_watched{false};
  std::atomic<bool> turn_is_cut{false};    // faults on storage of threads that compute wait; set on the pager's thread
  std::atomic<uint32_t> turns{0};          // how often the program has waited
  std::atomic<int64_t> needed_in_turn{0};  // bytes of blocks that are read as a whole because the program jumps about in them
  std::atomic<uint64_t> came_back{0};  // of the turn (low 16 bits of its number): blocks that came back in it, and of these,
                                       // those that left again (24 bits each)
};

extern State state;

inline arena::BlockWord& word_of(uint64_t block) { return state.partition->blocks[block]; }

}  // namespace headroom::pager
