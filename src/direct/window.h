// Windows: memory of each rank of a node that the others read and write without its help (MPI's one-sided communication).
//
// A window is direct if each rank's part of it lies in that rank's evictable memory, which all processes of the node can map,
// and nothing of it happens elsewhere: the rank that asks for content copies it, under holds of the blocks (peer_hold.h), and
// ranks synchronise by words that lie in message memory, one WindowControl a rank. So no target takes part in anything, and the
// MPI library never hears of it.
//
//   fence            a barrier of direct messages (mpi/backend/windows/windows.h)
//   post and start   `posted`, counted by the target in the origin's control
//   complete, wait   `completed`, counted by the origin in the target's control
//   lock             `lock` of the target's control; a rank that must wait leaves its mark in `waiting` and is rung
//   accumulate       under `folding` of the target's control, a short spin lock held for at most one hold's content
//
// Stores of a rank that has written come before the counter or lock word that tells of it (release), and non-temporal ones end
// with a fence of their own (copy.cc).
#pragma once

#include <atomic>
#include <cstdint>

#include "direct/channel.h"
#include "direct/layout.h"
#include "node/session.h"

namespace headroom::direct {

class Endpoint;

struct WindowControl {
  struct Counts {
    std::atomic<uint32_t> posted;     // to the owner, by that rank
    std::atomic<uint32_t> completed;  // towards the owner, by that rank
  };
  alignas(kLineBytes) std::atomic<uint32_t> lock;                             // kExclusiveLock, or how many share it
  alignas(kLineBytes) std::atomic<uint32_t> folding;                          // member + 1 that accumulates now, or 0
  alignas(kLineBytes) std::atomic<uint64_t> waiting[node::kMaxMembers / 64];  // members to be rung when the lock is free
  alignas(kLineBytes) Counts counts[];                                        // by rank of the window
};
inline constexpr uint32_t kExclusiveLock = uint32_t{1} << 31;
inline uint64_t control_bytes(int ranks) {
  return sizeof(WindowControl) + static_cast<uint64_t>(ranks) * sizeof(WindowControl::Counts);
}

/// The description of its part that each rank gives the others.
struct WindowPart {
  uint64_t control;  // of its WindowControl in message memory; 0: the window cannot be direct
  uint64_t offset;   // in its partition
  uint64_t bytes;
  int64_t unit;  // of displacements, in bytes
  int32_t member;
  int32_t padding;
  char* address;  // good in its process only
};

/// Describes this process's part of a window of so many ranks, and makes its control.
WindowPart make_window_part(Endpoint& endpoint, void* address, uint64_t bytes, int64_t unit, int ranks);
void drop_window_part(Endpoint& endpoint, const WindowPart& part, int ranks);
/// Whether this process can read and write the part.
bool open_window_part(const WindowPart& part);

/// An operation on a part's elements. `kNothing` leaves them, and `kReplace` overwrites them.
struct Fold {
  enum class What : uint8_t { kNothing, kReplace, kCombine };
  What what;
  uint64_t packed_bytes;  // of an element without gaps
  int64_t extent;         // of an element in an array
  const Layout* layout;   // of an element, nullptr if it has no gaps
  /// Folds `count` elements, `extent` apart, into others.
  void (*combine)(const Fold& self, const void* from, void* into, uint64_t count);
};

/// Where this process finds `displacement` bytes into a part. Not to be used but by the functions below.
char* address_in_part(const WindowPart& part, int64_t displacement);

/// Copies between a part, in which `there` lies, and this process's memory, as far as both reach.
void put(Endpoint& endpoint, const WindowPart& part, const Content& there, const Content& from);
void get(Endpoint& endpoint, const WindowPart& part, const Content& there, const Content& into);

/// Folds `from` into `there`, atomically for each element with respect to other folds; the previous content goes to `before`
/// unless that is nullptr. All three have as many bytes; `from` may be nullptr for kNothing.
void fold(Endpoint& endpoint, const WindowPart& part, const Content& there, const Content* from, const Content* before,
          const Fold& how);

/// Takes the lock if it is free.
bool try_lock(WindowControl& control, bool exclusive);
/// The same, or `member`, this process, is rung when the lock may be free.
bool lock_or_mark(WindowControl& control, bool exclusive, int member);
void unlock(Endpoint& endpoint, WindowControl& control, bool exclusive);

/// Rank `target` of the window, whose call this is, exposes its part to the owner of `origin`; whether it has done so once more
/// than `used` times.
inline void count_posted(WindowControl& origin, int target) {
  // release: the target's writes in its part are there for the origin. Pairs with was_posted().
  origin.counts[target].posted.fetch_add(1, std::memory_order_release);
}
inline bool was_posted(const WindowControl& origin, int target, uint32_t used) {
  return origin.counts[target].posted.load(std::memory_order_acquire) != used;
}

/// Rank `origin`, whose call this is, has done with the part of the owner of `target`; whether it has said so once more than
/// `concluded` times.
inline void count_completed(WindowControl& target, int origin) {
  // release: the origin's puts are there for the target. Pairs with was_completed().
  target.counts[origin].completed.fetch_add(1, std::memory_order_release);
}
inline bool was_completed(const WindowControl& target, int origin, uint32_t concluded) {
  return target.counts[origin].completed.load(std::memory_order_acquire) != concluded;
}

/// Windows for code that does not link with them: the MPI backends. As above, of this process's endpoint.
struct WindowFunctions {
  WindowPart (*make_part)(void* address, uint64_t bytes, int64_t unit, int ranks);
  void (*drop_part)(const WindowPart& part, int ranks);
  bool (*open_part)(const WindowPart& part);
  WindowControl* (*control)(const WindowPart& part);
  char* (*address)(const WindowPart& part, int64_t displacement);
  void (*put)(const WindowPart& part, const Content& there, const Content& from);
  void (*get)(const WindowPart& part, const Content& there, const Content& into);
  void (*fold)(const WindowPart& part, const Content& there, const Content* from, const Content* before, const Fold& how);
  bool (*try_lock)(WindowControl& control, bool exclusive);
  bool (*lock_or_mark)(WindowControl& control, bool exclusive);
  void (*unlock)(WindowControl& control, bool exclusive);
  void (*wake)(int member);
  Span (*span)(const Content& content);
  void (*count)(bool direct);
};
WindowFunctions window_functions();

}  // namespace headroom::direct
