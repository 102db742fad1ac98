// The state of the pager thread. Private to src/pager; touched by the pager thread alone unless a line says otherwise.
#pragma once

#include <atomic>
#include <cstdint>

#include "arena/arena.h"
#include "base/system_calls.h"
#include "node/session.h"
#include "pager/engine.h"
#include "pager/replacement.h"
#include "pager/requests.h"
#include "pager/single_pages.h"
#include "pager/store.h"
#include "pager/waiting_accesses.h"

namespace headroom::pager {

inline constexpr int kStreams = 32;        // programs go over many arrays in step
inline constexpr uint64_t kUsesKnown = 8;  // of a stream
inline constexpr int kFreshRuns = 32;
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
  arena::Partition* partition = nullptr;
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
  uint64_t awake_until_ns = 0;    // the thread does not sleep before
  bool waits_for_others = false;  // asked other ranks for room
  bool collects = false;          // the blocks of a transfer that has ended are in no list yet
  uint64_t asked_at_ns = 0;
  int asked_member = -1;
  bool gave_nothing_yet = false;                   // to those: when transfers have ended there may be something
  uint64_t answered[node::kMaxMembers / 64] = {};  // the ranks that have asked us, a bit each, which are rung when that is gone
  int64_t other_bytes = 0;                         // reserved for memory outside the arena
  uint64_t other_measured_ns = 0;
  std::atomic<bool> idle{false};  // set by the program's thread
  std::atomic<bool> turn_is_watched{false};
  std::atomic<bool> turn_is_cut{false};    // faults on storage of threads that compute wait; set on the pager's thread
  std::atomic<uint32_t> turns{0};          // how often the program has waited
  std::atomic<int64_t> needed_in_turn{0};  // bytes of blocks that are read as a whole because the program jumps about in them
  std::atomic<uint64_t> came_back{0};  // of the turn (low 16 bits of its number): blocks that came back in it, and of these,
                                       // those that left again (24 bits each)
};

extern State state;

inline arena::BlockWord& word_of(uint64_t block) { return state.partition->blocks[block]; }

// fault.cc
/// Makes `block`, or at least that page of it, accessible if that is possible now; false if it waits for storage or room.
bool serve(uint64_t block, bool write, uint32_t page = kWholeBlock);
void take_fault(uint64_t block, uint32_t page, bool write, int32_t thread, Request* request);
/// The kernel has no memory although the budget allows it.
[[noreturn]] void die_without_memory();
/// Reserves room for so many blocks, if it is free.
bool reserve_blocks(uint64_t count);
/// Changes the bits of a word that are the pager's, keeping holds that are added meanwhile.
void change_word(arena::BlockWord& word, uint64_t clear, uint64_t set);
/// Starts to read `count` blocks from `first`, whose room is reserved.
void start_read(uint64_t first, uint64_t count);
void read_done(uint64_t first, uint64_t count);

// waiting_accesses.cc
/// Makes the request's blocks accessible, now or when that is possible, and ends the request then.
void bring(Request& request);
/// Serves faults that wait for these blocks (for that page of them) as far as that is possible now; true if there were any.
bool serve_waiting(uint64_t first, uint64_t count, uint32_t page = kWholeBlock);
/// Ends the faults that have got their rights with the blocks' content.
void end_satisfied(uint64_t first, uint64_t count);
/// Whether a thread waits for access to the block to write there.
bool has_waiting_writer(uint64_t block);
/// Whether room, if there is any, is for accesses that wait already. (Not for ever: a thread that needs less might hold the
/// memory that they need.)
bool older_ones_lack_room();
/// Retries everything that waits, and continues reading ahead.
void pump();

// streams.cc
/// Whether a reader that comes from the blocks beside goes on here; it then meets one of the nearest pages first.
bool continues_stream(uint64_t block, uint32_t page);
/// Notes that a reader is at `block`; widens or starts its window.
void extend_stream(uint64_t block);
/// Notes that blocks from `first` on have been read; as many more are to be read, so that the disk goes on meanwhile.
void note_arrival(uint64_t first, uint64_t count);
/// Whether the program writes to what it reads there, as far as its last markers tell.
bool is_likely_written(uint64_t block);
/// Begins to read blocks ahead that the program has announced.
void read_announced(uint64_t first, uint64_t count);
/// Reads ahead as far as the streams' windows and the room allow.
void read_streams_ahead();

// room.cc
/// An allocation did not fit: every process of the node is told, once, and watches its memory from then on. Nothing need leave
/// yet.
void note_short();
enum class Urgency : uint8_t { kSomebodyWaits, kNobodyWaits };

/// Starts to free memory until `bytes` are free or on their way out; asks other ranks if they have more than their share.
void make_room(int64_t bytes, Urgency urgency = Urgency::kSomebodyWaits);
/// Something has to leave memory: ranks take turns from now on.
void note_lack_of_room();
/// If nothing has had to for some time, and all that there is would fit: they need not.
void end_lack_of_room();
/// The blocks that this rank uses in a turn do not fit its share: it may have more, at the expense of ranks that wait.
void start_wanting_all();
/// How many bytes of blocks one rank can have if all others wait.
int64_t memory_for_one();
/// How much memory this process may expect to have for blocks while it computes, in bytes.
uint64_t share_of_memory();
void answer_requests_for_room();
/// Others were asked for room that nobody wants by now (a reader that it was for has ended): no need to look for it.
void forget_old_question();
/// Rings the ranks that have asked when there is room.
void tell_of_room();

// placing.cc
/// Gives blocks that are READING their memory, with the content that was read, and maps those that can be; read_done() follows.
void place_content(uint64_t first, uint64_t count, const char* content);

// eviction.cc
/// Evicts up to `bytes` of this process's memory; returns how much is gone or on its way out. If that is nothing, since storage
/// is full, and a thread waits for it, the run pauses until there is room there.
int64_t evict(int64_t bytes, Urgency urgency);
/// Begins to evict these blocks, which the program will not need.
void evict_unneeded(uint64_t first, uint64_t count);
void write_done(uint64_t first, uint64_t count);
/// They could not be written, since storage is full: they stay.
void write_lacked_room(uint64_t first, uint64_t count);
/// Says in the block's word that it is not mapped, before it is hidden; false if it is held, or was not mapped.
bool take_access(uint64_t block);
/// The mark that a block with this word, which leaves, gets for having been out.
uint64_t out_marks(uint64_t word);
/// True if some process writes into the view by cross-memory attach right now (heap/system_call_wrappers.cc).
bool is_written_remotely(arena::View view);

// discard.cc
/// These blocks will be overwritten: their content need not be read again and, for those in memory if `resident_too`, need not
/// be written out.
void forget_content(uint64_t first, uint64_t count, bool resident_too);
/// The content of these blocks is given up: they are FRESH then.
void discard(uint64_t block, uint64_t count);

// pager_thread.cc
/// `requests`: the descriptor that says that there are some.
bool start_pager_thread(int requests);

// touched.cc
/// Counts the blocks that have been touched, which are known one by one while memory is watched. On the pager's thread.
void count_touched();

// turns.cc
/// Keeps the number of blocks that come back in a turn.
void follow_turns();
/// Whether that thread's fault on storage has to wait, since it is not this process's turn; `may_begin`: it may from now on.
bool must_wait_for_turn(int32_t thread, bool may_begin);
/// Has the rules look before a sample of the trace is taken.
void look_before_sample();
/// If such faults wait, or else the turn is watched: has the rules followed.
void look_at_turn();

// claims.cc
void become_armed();
/// If memory is not watched yet: makes the pages present where the kernel would fail on missing ones, and returns true. Called
/// by the program's threads; excludes arming meanwhile.
bool populate_while_unarmed(uintptr_t address, uint64_t bytes);
/// Whether blocks that were not there when they were held (by a seq_cst operation, before) have to be asked for: this process
/// is armed, or has begun to arm; the thread then waits for the end of that. No system call while memory is enough. Called by
/// the program's threads.
bool is_armed_once_settled();
/// Adds `bit` and a write hold to the block's word, unless the bit is there (false); `before` is the word as it was. Excludes
/// arming meanwhile.
bool mark_kept(uint64_t block, uint64_t bit, uint64_t& before);

// hold.cc
/// Ends pin()'s and try_lock()'s holds on a block whose content is given up.
void unpin(uint64_t block);

// peer_requests.cc
/// Takes other members' requests for this one's blocks, when the doorbell rings.
void take_requests_of_peers();
/// Tells the members for which it is done.
void answer_peers();

// arming.cc
/// `claimed_bytes`: the bytes that are reserved for allocations. From then on the resident bytes are reserved instead.
void arm(int64_t claimed_bytes);
void cover_new_memory();
/// Watches static region `index` and lists its populated blocks.
void cover_static_region(int index);

// huge_pages.cc
/// Whether this kernel keeps to what the engine needs of it. (Before Linux 6.12 it maps huge pages as a whole again although
/// the mapping says not to; where its own accesses are not served, blocks then vanish from the page table while it counts on
/// them.)
bool may_have_huge_pages();
/// Before memory is watched: no mapping of it is a huge one from now on.
void map_in_small_pages();
/// Sees to it that the block can be evicted or given up without touching others: splits the huge page that it is a part of, if
/// need be. False if that cannot be done safely now (a part of the page is in use, say).
bool set_apart(uint64_t block);
/// The blocks' content is given up all together, so that huge pages that they cover whole need not be split.
void forget_huge_pages(uint64_t first, uint64_t count);

// first_touch.cc; all with transition_lock held, but for the first
/// Whether there is something to look at. Any time.
bool watches_first_touch();
/// Looks at the allocations whose time has come; returns in how many ms the next look is due, or -1.
int look_at_first_touch();
void watch_first_touch(uint64_t offset, uint64_t bytes);
/// Allocations that overlap are watched no longer. `given_up`: the content is about to end.
void forget_first_touch(uint64_t offset, uint64_t bytes, bool given_up);
/// Memory becomes short: nothing is looked at any more.
void end_first_touch();

// other_memory.cc
/// Measures the memory that is resident outside the arena and reserves it.
void reserve_other_memory();
/// A size in /proc/self/status ("VmPTE:", say), in bytes; 0 if it is not there. On the pager's thread, and in MPI's beginning.
int64_t measure_status(const char* name);
// pins.cc
/// Counts the memory that the kernel keeps for network cards, and warns if it grows while memory is short.
void look_at_pins();
// other_memory.cc
/// As reserve_other_memory(), while memory is enough; true if the node has more resident than its budget, and something that
/// could leave.
bool look_at_other_memory();
/// So much more is in use from now on, until it is measured again.
void count_more_other_memory(int64_t bytes);
/// Measures and reserves it roughly, in a few microseconds, while memory is enough; with the lock held that excludes arming.
void count_other_memory_roughly();

// transfers.cc
bool can_transfer();
/// How many blocks from `block` on, at most, one transfer can move: up to the end of a stripe of the store.
inline uint64_t transfer_room(uint64_t block) { return kTransferBlocks - block % kTransferBlocks; }
void start_transfer(bool write, uint64_t first, uint64_t count);
/// The same for pages of one block; the memory is the pages'.
void start_page_transfer(bool write, uint64_t block, uint64_t first_page, uint64_t count, void* memory);
/// Reads a block into a buffer.
void start_fill_transfer(uint64_t block, void* buffer);
/// Ends the process: memory cannot be moved.
[[noreturn]] void die_of_transfer(bool write, uint64_t bytes, int error);
/// Collects one finished transfer and acts on it; false if there is none.
bool collect_transfer();
/// Collects finished transfers and acts on them; true if there were any.
bool collect_transfers();

// invariants.cc
/// True if P1, P3 and P4 hold for every block, and the list is whole; else it says what is wrong. (P2 is a holder's affair.)
bool check_invariants();
/// In builds for debugging: some of them each 64th round of the pager's thread, and the process ends where one is broken.
void check_now_and_then();

}  // namespace headroom::pager
