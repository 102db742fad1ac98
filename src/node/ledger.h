// The ledger: the node's shared bookkeeping.
//
// One memfd, mapped by every process of the node (node/session.h passes its descriptor). It answers: how much memory may
// be resident, which rank has how much of it, which ranks compute and which wait, and what each has counted. It holds no
// pointers.
//
// Invariants (check_invariants() tests them):
//   L1  free_bytes = budget - sum of reserved_bytes over members that are alive.
//   L2  memory is reserved before it is populated, so that a hard limit never kills; free_bytes falls below 0 only by what
//       was found in use outside the arena (pager/other_memory.cc), and is then brought back by evicting.
//   L3  a member that is not armed has reserved everything it has allocated, so it needs no fault tracking;
//       a member that is armed has reserved what is resident or on its way in. Either has reserved what it has outside the
//       arena, as far as that is measured (other_bytes), and copies of messages (message_bytes), each byte once.
//   L4  at most `slots` members hold a slot, but for those admitted as overdue, or beside members that jump about in memory
//       that is on storage and so leave their core idle (both counted).
//
// A dead member's claims are given back by the member that notices first (session.h); the exchange of `state` makes that once
// only.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "trace/counter_table.h"

namespace headroom::node {

inline constexpr uint64_t kLedgerMagic = 0x314d4f4f52444148;  // "HADROOM1"
inline constexpr uint32_t kLedgerVersion = 12;                // to be changed with the layout of anything that ranks share
// A session has kFewestPlaces, or as many times two as its node's processes need (session.h); kMaxMembers at most.
inline constexpr int kFewestPlaces = 256;
inline constexpr int kMaxMembers = 1024;
inline constexpr int kMaxModeChanges = 128;

enum class MemberState : uint32_t {
  kEmpty = 0,
  kAlive,    // joined, process running
  kLeaving,  // ends in order; its memory is still there
  kLeft,     // ended in order
  kDied,     // ended without leaving; its claims were given back by another member
  kJoining,  // its place is taken, and the entry's content is not yet its own
  kRetired,  // it has ended, and another member is giving back what it had
};

// A member's word has its state in the lowest bits, and in the upper half the number of times that the place was taken: a
// process that has looked at the word, and then at whose place it is, changes it only if no other process has taken the place
// meanwhile.
inline constexpr uint32_t kStateBits = 0x7;
inline constexpr uint32_t kOneUse = 1U << 16;
inline constexpr uint32_t kUseBits = ~(kOneUse - 1);

inline MemberState state_in(uint32_t word) { return static_cast<MemberState>(word & kStateBits); }
/// The word of the same use of the place, in another state.
inline uint32_t in_state(uint32_t word, MemberState state) { return (word & kUseBits) | static_cast<uint32_t>(state); }

// While the state is kRetired, the bits between the two hold the next state, and the member that is giving the claims back:
// should that one end meanwhile, too, the member that notices goes on with it.
inline constexpr int kNextShift = 3;
inline constexpr int kRetirerShift = 6;
inline uint32_t in_retirement(uint32_t word, MemberState next, int retirer) {
  return in_state(word, MemberState::kRetired) | static_cast<uint32_t>(next) << kNextShift |
         static_cast<uint32_t>(retirer) << kRetirerShift;
}
inline MemberState next_in(uint32_t word) { return state_in(word >> kNextShift); }
inline bool is_retired_by(uint32_t word, int member) {
  return state_in(word) == MemberState::kRetired && (word >> kRetirerShift) % kMaxMembers == static_cast<uint32_t>(member);
}
static_assert(kMaxMembers <= 1 << (16 - kRetirerShift));

/// Where a rank stands in the scheduler; see sched/scheduler.h.
enum class RunState : uint32_t {
  kRunning = 0,  // computes; holds a slot when memory is short
  kBlocked,      // waits in MPI
  kReady,        // could go on, waits for a slot
};

/// Whether a process is between MPI_Init and the end of MPI_Finalize. (One that uses sessions alone is outside.)
enum class MpiState : uint32_t { kOutside = 0, kInside, kFinalized };

/// Some of the members, told by their indices. Any of them may change it.
struct MemberSet {
  std::atomic<uint64_t> words[kMaxMembers / 64];

  void add(int member) { words[member / 64].fetch_or(bit_of(member), std::memory_order_release); }
  void remove(int member) { words[member / 64].fetch_and(~bit_of(member), std::memory_order_relaxed); }
  [[nodiscard]] bool has(int member) const {
    return (words[member / 64].load(std::memory_order_acquire) & bit_of(member)) != 0;
  }
  /// Takes them out, and calls `use` with each.
  template <typename Use>
  void take_each(Use use) {
    for (int word = 0; word < kMaxMembers / 64; ++word) {
      if (words[word].load(std::memory_order_relaxed) == 0) {
        continue;
      }
      for (uint64_t bits = words[word].exchange(0, std::memory_order_acq_rel); bits != 0; bits &= bits - 1) {
        use(word * 64 + __builtin_ctzll(bits));
      }
    }
  }
  void clear() {
    for (auto& word : words) {
      word.store(0, std::memory_order_relaxed);
    }
  }

 private:
  static uint64_t bit_of(int member) { return uint64_t{1} << (member % 64); }
};

/// A member's turns (sched/).
struct MemberTurns {
  std::atomic<uint32_t> run_state;     // RunState
  std::atomic<uint32_t> slots;         // that it holds
  std::atomic<uint32_t> slots_wanted;  // for its next turn: one for each busy thread; 0 is 1
  std::atomic<uint32_t> slot_bell;     // futex: a slot may be free
  std::atomic<uint64_t> ready_since_ns;
  std::atomic<uint64_t> looked_at_ns;  // when it last looked whether it may have a slot: a sign of life while it waits for one
  std::atomic<uint64_t> blocked_since_ns;
  std::atomic<uint64_t> read_page_at_ns;   // when it last had to wait for a single page from storage
  std::atomic<int64_t> working_set_bytes;  // of blocks, that its next turn is expected to need
  std::atomic<uint32_t> wants_all;         // 1: it cannot keep what it uses in a turn (pager/shares.h)
};

/// A member's part of the budget, and the memory that others ask it to give back (pager/room.cc).
struct MemberMemory {
  std::atomic<int64_t> reserved_bytes;
  std::atomic<int64_t> other_bytes;    // of these, outside the arena: cannot be given back
  std::atomic<int64_t> beyond_bytes;   // resident outside the arena beyond other_bytes, which is half a share at most
  std::atomic<int64_t> message_bytes;  // of these, for messages that lie in message memory (direct/), and not in other_bytes
  std::atomic<int64_t> asked_bytes;    // the most that any other member would like this one to give back
  MemberSet asked_by;                  // which members they are: added after asked_bytes
  MemberSet answered_by;               // those that have said, asked by this member, that they have given what they can
  std::atomic<uint64_t> refused_ns;    // when it last had less to give than was asked: the rest is in use
};

/// How a member's memory is moved (pager/).
struct MemberPager {
  std::atomic<uint32_t> armed;         // fault tracking is on (L3)
  std::atomic<uint32_t> arms;          // 1: its memory is watched, or is going to be: peers must ask before they use it
  std::atomic<uint32_t> engine;        // EngineChoice that ran, 0 = none yet
  std::atomic<uint32_t> store;         // StoreChoice that ran, 0 = none yet
  std::atomic<uint32_t> store_direct;  // 1 = the store bypasses the page cache
  std::atomic<uint32_t> waits_for_storage_room;  // 1: its memory stands still, since storage is full
};

/// A member's request to another's pager, to bring blocks of the other's that the asker holds (pager/peer_requests.cc).
struct BlocksToBring {
  std::atomic<uint32_t> state;  // futex: PeerRequestState
  std::atomic<int32_t> from;
  std::atomic<uint64_t> first;
  std::atomic<uint64_t> count;
  std::atomic<uint64_t> ahead;
  std::atomic<uint32_t> write;
};

/// Where node-mates find a member's partition (direct/peer_memory.h). Descriptors are those of its process.
struct MemberPartition {
  std::atomic<int32_t> descriptor;        // of the memfd
  std::atomic<uint64_t> inode;            // tells whether that is still the same file
  std::atomic<uint64_t> bytes;            // of addresses that it has
  std::atomic<int32_t> table_descriptor;  // the same of its block table
  std::atomic<uint64_t> table_inode;
};

/// A write into another process by cross-memory attach (heap/system_call_wrappers.cc).
struct RemoteWrite {
  std::atomic<int32_t> target;  // pid, or 0
  std::atomic<uint64_t> begin;  // the addresses that it may write there
  std::atomic<uint64_t> end;
};

/// The facts of its MPI library (mpi/).
struct MemberMpi {
  std::atomic<uint32_t> nonblocking_collectives;  // 1: it waits in collectives by their nonblocking forms
  char abi[16];                                   // its binary interface
};

/// A process of the node session: the part of it that others see, by layer.
struct alignas(64) Member {
  std::atomic<uint32_t> state;  // MemberState, and the number of the place's use: state_of(), state_in()
  std::atomic<int32_t> pid;
  std::atomic<uint32_t> counted;    // 1: it is one of `alive`; the process that sets it to 0 takes it off
  std::atomic<int32_t> rank;        // of MPI_COMM_WORLD; -1 before MPI_Init
  std::atomic<uint32_t> in_mpi;     // MpiState
  std::atomic<uint32_t> replacing;  // execve() has been called: unless that fails, everything of it is gone
  MemberTurns turns;
  MemberMemory memory;
  MemberPager pager;
  BlocksToBring bring;
  MemberPartition partition;
  RemoteWrite remote_write;
  std::atomic<uint64_t> counters[trace::kCounterCount];
  MemberMpi mpi;
  char executable[64];
};

inline bool is_in_mpi(const Member& member) {
  return member.in_mpi.load(std::memory_order_relaxed) == static_cast<uint32_t>(MpiState::kInside);
}

inline bool has_finalized(const Member& member) {
  return member.in_mpi.load(std::memory_order_relaxed) == static_cast<uint32_t>(MpiState::kFinalized);
}

inline MemberState state_of(const Member& member) { return state_in(member.state.load(std::memory_order_acquire)); }

/// Whether it has ended, and others may wait for messages that it did not send.
inline bool is_missed(const Member& member) {
  const MemberState state = state_of(member);
  return state == MemberState::kDied || ((state == MemberState::kLeaving || state == MemberState::kLeft) && is_in_mpi(member));
}

inline bool is_alive(const Member& member) {
  return state_in(member.state.load(std::memory_order_relaxed)) == MemberState::kAlive;
}

struct ModeChange {
  std::atomic<uint64_t> at_ns;  // since the ledger was made; 0 = unused but for the first
  std::atomic<uint32_t> mode;   // ModeChoice
};

/// The time that reading so much from storage takes, as far as it was measured (pager/store_speed.h).
struct ReadTime {
  std::atomic<uint32_t> median_ns;
  std::atomic<uint32_t> samples;
};

inline constexpr int kMostAddedDirectories = 8;

/// A directory that takes memory from now on, if others are full; a process outside the job has written it down
/// (top/add_directory.cc).
struct AddedDirectory {
  std::atomic<uint32_t> taken;  // by the member that is writing it
  std::atomic<uint32_t> ready;  // it is written
  char path[1024];
};

inline constexpr int kMaxCores = 1024;

struct Ledger {
  uint64_t magic;
  uint32_t version;
  uint32_t bytes;
  int64_t budget;
  uint64_t started_ns;
  uint64_t id;                                      // random: ranks that name the same one are on the same node
  uint32_t asked_slots;                             // as set by the user; 0 = as many as cores
  uint32_t quota_cores;                             // the cores that the cgroup's processor quota allows, rounded up
  uint32_t places;                                  // that members can have
  std::atomic<uint32_t> used_places;                // those before it were taken at some time, and no others
  std::atomic<uint64_t> core_mask[kMaxCores / 64];  // union of the members' affinities: launchers bind ranks to cores
  std::atomic<uint32_t> cores_in_mask;              // its number of cores, since every MPI call compares with it
  std::atomic<int64_t> free_bytes;
  std::atomic<int64_t> peak_reserved_bytes;
  std::atomic<int64_t> beyond_bytes;         // of all members
  std::atomic<int64_t> peak_resident_bytes;  // the most that was reserved, and resident beyond that, at one time
  std::atomic<uint64_t> short_at_ns;         // when short_memory was set
  std::atomic<uint32_t> short_memory;        // 1 once some member's allocation did not fit: every member's memory is watched
  std::atomic<uint32_t> lacks_room;          // 1 while some member's memory has to leave, and some time after
  std::atomic<uint64_t> lacked_room_ns;      // when it last had to
  std::atomic<uint32_t> held_slots;
  std::atomic<uint32_t> most_held_slots;      // without those that were lent
  std::atomic<uint32_t> most_held_with_lent;  // with them
  std::atomic<uint64_t> slot_freed_ns;        // when a member last gave slots up, or was overdue; 0: it gave its own up
  std::atomic<uint32_t> alive;
  std::atomic<uint32_t> joined;              // how often a process has, ever; counted after `alive`
  std::atomic<uint32_t> reported;            // `joined` as it was when the last one left, and wrote the report
  std::atomic<uint64_t> failed_at_ns;        // when a member ended with an error of Headroom's; 0 = none did
  std::atomic<uint64_t> lost_at_ns;          // when a member ended without leaving; 0 = none did
  std::atomic<uint32_t> ended;               // 1: the process of a member has, in whatever way (lost_claims.h)
  std::atomic<uint32_t> reporter;            // 1: a member that fails or aborts the job writes the report; 2: it has written it
  std::atomic<uint32_t> told_of_launcher;    // whether a member has said why none of the node's can run
  std::atomic<uint32_t> told_of_transports;  // 1: a member has warned of them, once a node; so for the next ones
  std::atomic<uint32_t> told_of_other_memory;
  std::atomic<uint32_t> told_of_full_storage;
  std::atomic<uint32_t> told_of_static_data;
  std::atomic<uint32_t> told_of_pins;
  std::atomic<uint32_t> told_of_withheld_views;
  ReadTime read_page;
  ReadTime read_block;
  ReadTime read_transfer;  // of 1 MiB
  AddedDirectory added_directories[kMostAddedDirectories];
  std::atomic<uint32_t> mode_changes;
  ModeChange modes[kMaxModeChanges];
  Member members[kMaxMembers];

  /// Every place that is or was a member's. Places behind them are not looked at, so that memory for them is never taken.
  [[nodiscard]] std::span<Member> used_members() { return {members, used_places.load(std::memory_order_acquire)}; }
  [[nodiscard]] std::span<const Member> used_members() const { return {members, used_places.load(std::memory_order_acquire)}; }

  /// The cores that this job may use on the node.
  [[nodiscard]] uint32_t cores() const {
    const uint32_t in_mask = cores_in_mask.load(std::memory_order_relaxed);
    const uint32_t count = std::min(in_mask, quota_cores);
    return count > 0 ? count : 1;
  }
  [[nodiscard]] uint32_t slots() const { return asked_slots != 0 ? asked_slots : cores(); }
};

static_assert(offsetof(Ledger, members) % 64 == 0);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

/// Takes `bytes` of the budget for `member`; false (and nothing taken) if that much is not free. Thread-safe.
bool reserve(Ledger& ledger, Member& member, int64_t bytes);

/// Takes `bytes` whether or not that much is free: the memory is in use already (L2). Thread-safe.
void take(Ledger& ledger, Member& member, int64_t bytes);

/// Gives `bytes` back. Thread-safe.
void release(Ledger& ledger, Member& member, int64_t bytes);

/// The same for copies of messages, which are told apart: memory becomes short while they are there, and the use of message
/// memory is measured, too (pager/other_memory.cc).
bool reserve_for_message(Ledger& ledger, Member& member, int64_t bytes);
void take_for_message(Ledger& ledger, Member& member, int64_t bytes);
void release_of_message(Ledger& ledger, Member& member, int64_t bytes);

/// The member has so much resident outside the arena beyond its other_bytes. By one thread of each member at a time.
void note_beyond(Ledger& ledger, Member& member, int64_t bytes);

/// The bytes that all members have resident, as far as that is known: those that they have reserved, and those that were
/// measured beyond.
inline int64_t resident_bytes(const Ledger& ledger) {
  return ledger.budget - ledger.free_bytes.load(std::memory_order_relaxed) +
         ledger.beyond_bytes.load(std::memory_order_relaxed);
}

/// The bytes that the member has reserved and that cannot leave by eviction.
inline int64_t bytes_besides_blocks(const Member& member) {
  return member.memory.other_bytes.load(std::memory_order_relaxed) +
         member.memory.message_bytes.load(std::memory_order_relaxed);
}
/// The bytes that it has reserved for blocks of the arena.
inline int64_t bytes_of_blocks(const Member& member) {
  return member.memory.reserved_bytes.load(std::memory_order_relaxed) - bytes_besides_blocks(member);
}

/// Members may be at these places, from the first on, from now on. Thread-safe.
void note_used_places(Ledger& ledger, uint32_t places);

/// Records that the node now waits in `mode` (ModeChoice), if it did not before.
void record_mode(Ledger& ledger, uint32_t mode);

/// Whether the ledger was written by a program that has this same layout: tools and ranks of another version must not touch it.
inline bool is_of_this_version(const Ledger& ledger) {
  return ledger.magic == kLedgerMagic && ledger.version == kLedgerVersion && ledger.bytes == sizeof(Ledger);
}

/// True if L1 to L4 hold. Only meaningful while nobody changes the ledger.
bool check_invariants(const Ledger& ledger);

}  // namespace headroom::node
