// The pager: keeps the blocks of this process's partition within the node's budget.
//
// One thread of Headroom's own in each process (the pager thread) does everything: it reads the faults that an engine
// catches, moves blocks between memory and the store, hands memory to other ranks when asked, and serves newcomers to the
// node session. Program threads only wait for it, so a block's state has one writer and needs no lock; holds alone are
// added and taken away by program threads, in the same word, atomically.
//
// While memory is enough nothing is watched: no registration, no protection, no faults (an allocation that is filled in order
// gets its memory ahead, first_touch.cc). The node becomes *short* when some process's allocation does not fit what the budget
// has free. Then each process *arms*: its views are given to the fault engine, its populated blocks are listed, and its
// reservation shrinks from what it allocated to what it has resident (arming.cc).
//
//   the states of a block, and the cause of each transition:
//
//                 first touch (fault.cc: serve)
//      FRESH ────────────────────────────────────► RESIDENT ◄─────────────────────────┐
//        ▲  ▲                                       │    │ ▲                          │
//        │  └── evicted clean and never stored,     │    │ └── written or held        │ read done
//        │      or all zero (eviction.cc: drop) ────┘    │     meanwhile (given up)   │ (ended_
//        │                                               │           │                │  transfers.cc)
//        │ discard()                evicted dirty        ▼           │                │
//        │ from any state           (eviction.cc) ──► WRITING ───────┘             READING
//        │                                               │ write done, still clean    ▲
//        │            evicted clean, copy on storage     ▼                            │ fault or read-ahead
//        └──────────────────────────────────────────── STORED ────────────────────────┘ (transfers.cc: start_read)
//
//   A block may be in SINGLE_PAGES between RESIDENT and STORED: from STORED when a page of it is read alone, from RESIDENT when
//   it is divided (divided_blocks.cc); to STORED when its last page leaves, to RESIDENT when nothing of it is missing (any
//   more).
//
// Invariants (check_invariants()):
//   P1  a block that is RESIDENT, READING or WRITING has been reserved in the ledger, once.
//   P2  a block with a hold is RESIDENT and mapped, or its holder is waiting for the pager.
//   P3  a block that is clean (not DIRTY) has a copy on storage, or is all zero, or undefined (the program will overwrite it).
//       One of which single pages are here, and others not, has a copy of these.
//   P4  WRITABLE implies DIRTY: a clean block's view is write-protected, so the first write is seen.
//   P5  a block whose memory forked children map (SHARED) is RESIDENT or WRITING, not WRITABLE, and every hold of it waits.
#pragma once

#include <signal.h>

#include <atomic>
#include <cstdint>

#include "arena/arena.h"
#include "base/settings.h"
#include "base/status.h"
#include "node/session.h"

namespace headroom::pager {

/// The memory that a rank must be able to have while it computes, in bytes.
inline constexpr int64_t kFloorBytes = 4 << 20;

/// Joins the node session, opens the partition and starts the pager thread; once a process: any thread may call it, and all
/// wait for the first. kUnavailable or kNoMemory if this process cannot have evictable memory (said once).
base::Status start();

/// True once start() has succeeded in this process (false in a forked child).
inline bool is_running();

inline node::Session& session();
inline arena::Partition& partition();
/// Ends this process's partition before address `from`, for a library that needs the addresses behind; false if it is in use.
/// Not while memory is allocated.
bool give_addresses_up(uintptr_t from);

/// True if [address, ...) lies in this process's evictable memory. Safe in signal handlers, a few ns when it does not.
inline bool covers(const void* address);

/// True if any of [address, address + bytes) does. Looks at the address only.
__attribute__((access(none, 1))) bool overlaps(const void* address, uint64_t bytes);

/// The other mapping of the memory at `address`, which must lie in evictable memory: no faults, no rights of the program's. To
/// be used under a hold.
void* alias_of(const void* address);

/// Whether the engine lets the kernel touch absent memory (userfaultfd without restriction).
bool engine_serves_kernel();
/// Whether it will; asked before there is an engine, of the kernel (a userfaultfd is opened and closed).
bool engine_will_serve_kernel();
base::EngineChoice engine();

/// Whether faults are tracked now.
bool is_armed();

/// Has `function` called, on the pager thread, when memory has become short and, before that, when members have joined. One
/// function.
void call_when_changed(void (*function)());

/// The functions by which the pager's thread asks about turns.
struct TurnRules {
  /// At each fault on storage: whether it has to wait. `thread`: whose, as the kernel numbers it (perhaps of another process);
  /// `may_begin`: the content is not under way, so the turn may be cut here.
  bool (*must_wait)(int32_t thread, bool may_begin);
  /// Again and again while the turn is cut, or watched.
  void (*look)();
  /// Before each sample of the trace.
  void (*before_sample)();
};

/// Has the pager follow these rules from now on; they must stay.
void follow_turn_rules(const TurnRules& rules);

/// Whether some thread waits for storage or for room.
bool accesses_wait();

/// Says that faults on storage have to wait because it is not this process's turn, or no longer; on the pager's thread.
void set_turn_cut(bool cut);
bool is_turn_cut();

/// Has the rules' look() called every few milliseconds, or no longer. Any thread may ask for it.
void set_turn_watched(bool watched);

/// Claims budget for `count` more blocks that allocations will use. While memory is enough this reserves them; the call
/// that does not fit makes the node short and arms this process.
void claim_blocks(uint64_t count);

/// Says whether fresh blocks from `block` on may get memory ahead of their first touch: they belong to an allocation, and
/// nothing else is going to be put there. The caller ends this before it discards them. Thread-safe.
void let_touch_ahead(uint64_t block, uint64_t count, bool may);

/// Lets the kernel use huge pages for the parts of these allocations that are touched from now on, or ends that. Does nothing
/// where the memory cannot have huge pages, and once it is short. Thread-safe.
void let_have_huge_pages(const void* address, uint64_t bytes, bool may);

/// If a new allocation turns out to be filled in order, memory is made ready for the rest of it. Thread-safe.
void look_for_first_touch(const void* address, uint64_t bytes);

/// Ends that look: the allocation has ended and its memory stays for the next one (discard_blocks() ends it otherwise), or it
/// is to have small pages. Thread-safe.
void end_first_touch(uint64_t offset, uint64_t bytes);

/// Gives the claim on `count` blocks back, after their content was discarded (while memory is enough; later the reservation
/// follows what is resident).
void unclaim_blocks(uint64_t count);

/// The blocks' content is given up: they become fresh and their memory is free. Nothing is moved.
void discard_blocks(uint64_t block, uint64_t count);

/// The program has unmapped this part of the partition, which is free: it faults from now on.
void take_access_away(uint64_t offset, uint64_t bytes);
/// This part is to be used again. False if the kernel has no mappings left for that.
bool give_access_back(uint64_t offset, uint64_t bytes);
/// Whether the program has unmapped any of the range.
__attribute__((access(none, 1))) bool has_unmapped(const void* address, uint64_t bytes);

/// Makes the partition at least `bytes` long.
base::Status grow(uint64_t bytes);

/// Maps partition [offset, offset + bytes) at `address`, replacing what is there, when `copy` has put its content into the
/// memfd. The blocks must be fresh. Memory does not become short in the middle: blocks that nobody watches yet would be
/// evicted.
base::Status add_static_region(uintptr_t address, uint64_t bytes, uint64_t offset,
                               bool (*copy)(uintptr_t address, uint64_t bytes, uint64_t offset));

/// Whether the address is in evictable memory, and where in the partition.
bool find_evictable(const void* address, uint64_t& offset);

/// Keeps [address, address + bytes) resident and accessible, for reading or for writing, until the matching drop_hold().
/// Addresses outside the partition are ignored. The caller keeps holds small (see largest_hold()).
void hold(const void* address, uint64_t bytes, bool write);
void drop_hold(const void* address, uint64_t bytes, bool write);

/// Keeps [address, address + bytes), which lies in one view of the partition, resident for a peer that reads or writes it by
/// its own mapping of the memory; until drop_hold(). False, and nothing is held, if it does not lie there. Costs an atomic
/// addition a block where the memory is there. `offset`: where in the partition it begins.
bool hold_for_peer(const void* address, uint64_t bytes, bool write, uint64_t& offset);

/// Keeps [address, address + bytes), which lies in one view of the partition, resident and accessible until drop_hold(), if it
/// is there now; false, and nothing is held, if it is not. For threads that may not wait.
bool try_hold(const void* address, uint64_t bytes, bool write);

/// Has another member's pager make blocks of its partition present, which this process holds by that member's block table, for
/// writing if `write`; waits for it. `ahead`: so many after them will be needed next. False if that member has died. One thread
/// of a process at a time; others wait.
bool ask_peer_to_bring(int member, uint64_t first, uint64_t count, uint64_t ahead, bool write);

/// A write hold for as long as the content of these blocks lives (until they are discarded); once however often it is asked.
void pin(const void* address, uint64_t bytes);
/// The same, if no more than half of the blocks that this process may have are then pinned (less where it may have few); else
/// false, and nothing is pinned.
bool try_pin(const void* address, uint64_t bytes);
/// As try_pin(), until unlock(); for mlock(), which does not count either.
bool try_lock(const void* address, uint64_t bytes);
void unlock(const void* address, uint64_t bytes);
/// For munlockall().
void unlock_all();

/// A write hold for as long as a device may use the range, until the matching drop_long_hold(): for memory that a network card
/// has registered. Counts with the pinned blocks, each block once. False, and nothing is held, where so much may not be held.
bool try_long_hold(const void* address, uint64_t bytes);
void drop_long_hold(const void* address, uint64_t bytes);
/// The bytes that may still be held so; the bytes that are held so, or are pinned.
uint64_t long_hold_room();
uint64_t pinned_bytes_now();

/// Whether the pager watches the memory that the kernel keeps for network cards.
void watch_pins(bool watched);
/// Whether the MPI library's registrations are to be safe: what windows register is held.
void expect_registrations(bool expected);
bool registrations_are_expected();
/// The memory that the kernel keeps for them now is the library's own; the pager counts memory beyond it.
void note_pins_of_library();

/// This process calls execve(), or that has failed.
void program_is_replaced(bool replaced);
/// Whether the block that `address`, in evictable memory, lies in is pinned.
bool is_pinned(const void* address);

/// The program will use the range soon: it is read in as far as there is room. Does not wait.
void will_need(const void* address, uint64_t bytes);
/// The program will not use the range for long: it leaves before anything else, if memory is short. Does not wait for that.
void will_not_need(const void* address, uint64_t bytes);
/// The program will write the whole range before it reads it: the content of its whole blocks is neither written out nor read
/// again. No other thread uses the range meanwhile.
void will_overwrite(const void* address, uint64_t bytes);

/// The same for blocks that are on storage now, and for nothing else: a block that a message is about to fill need not be read.
/// Costs a look at each block.
void will_fill(const void* address, uint64_t bytes);

/// The most that a caller should hold at one time, in bytes: as bytes_of_hold() counts them, or one range of so many.
uint64_t largest_hold();
/// The most bytes, in all, that may be held of memory that could as well be copied: 0 where there is hardly room for holds of
/// memory that cannot.
uint64_t largest_optional_hold();
/// The bytes that a hold of the part of [address, address + bytes) that lies in one view keeps in memory: whole blocks.
uint64_t bytes_of_hold(const void* address, uint64_t bytes);

/// The rank blocks in MPI without a slot (true) or goes on (false).
void set_idle(bool idle);

/// The program has waited in MPI, or might have, and goes on: memory that it uses now is used in another turn. Costs an
/// addition.
void begin_turn();

/// The bytes that came back from storage more than once in this turn, and the bytes that had come back and have left again: the
/// memory that the rank could not keep (replacement.h).
struct CameBack {
  int64_t all;
  int64_t left_again;
};
CameBack came_back_in_turn();
/// The bytes that the rank has to have in memory at a time, as far as that is known in the middle of its turn: the blocks in
/// which it jumps about, if one rank can have them all in memory. 0: not known.
int64_t needed_in_turn();
/// If less than one part in so many of the resident memory has come back, hardly anything has.
inline constexpr int64_t kPartThatMayComeBack = 8;

/// Processor time that the pager's thread has used.
int64_t own_processor_ns();

/// Whether a fork would find the descriptors that it needs now. It is tried: the number of open descriptors cannot be compared
/// with limits.
bool try_descriptors_for_fork();
/// Whether the last fork of this thread went wrong since there were none, or no memory, after all: the child has ended then.
bool take_fork_failure();
/// This process has forked `process`: memory that the child has for itself counts as memory of this one's (forked_memory.h).
void note_forked(int process);

/// Called around fork() by the forking thread; see fork.cc. In the child the pager no longer runs afterwards.
void before_fork();
void after_fork_in_parent();
void after_fork_in_child();

/// True in a forked child that has a copy of its parent's evictable memory.
bool is_forked_child();

/// From here until go_on() with the number that this returns, the pager writes nothing and serves no absent memory. Only for a
/// moment in which the asking thread touches no evictable memory, nor the kernel for it; after two seconds the pager goes on by
/// itself. Async-signal-safe; a second thread that asks waits for the first.
uint32_t stand_still();
void go_on(uint32_t asker);

/// While memory is enough: looks how much of it has been touched (touched.cc). Before memory is given up. Takes no lock and
/// allocates nothing.
void note_touched();

/// The same for memory that cannot move, for callers that come a while after the last look.
void note_other_memory();

/// Whether this process has more than `bytes` of anonymous memory. At any time; allocates nothing.
bool own_memory_exceeds(int64_t bytes);

/// Has `function` called, on the pager's thread, when more of this process cannot move than half of its share. One function.
void call_when_crowded(void (*function)());

/// Whether SIGSEGV is Headroom's, as the engine sigsegv has it (signals.h).
bool fault_handler_installed();
/// sigaction() for SIGSEGV as the program sees it.
void exchange_program_action(const struct sigaction* action, struct sigaction* old);
/// A mask of the program's without SIGSEGV, where our handler must stay deliverable; it may be put into `place`.
const sigset_t* without_fault_signal(const sigset_t* set, sigset_t& place);

/// Called at the orderly end of the process: nothing that others need is lost with it.
void prepare_to_leave();

namespace detail {
extern arena::Partition the_partition;
extern node::Session the_session;
extern std::atomic<int> progress;  // 0 not started, 1 starting, 2 running, 3 failed
}  // namespace detail
inline bool is_running() { return detail::progress.load(std::memory_order_acquire) == 2; }
inline node::Session& session() { return detail::the_session; }
inline arena::Partition& partition() { return detail::the_partition; }
inline bool covers(const void* address) {
  uint64_t offset = 0;
  return detail::the_partition.base != 0 &&
         arena::find_offset(detail::the_partition, reinterpret_cast<uintptr_t>(address), offset);
}
}  // namespace headroom::pager
