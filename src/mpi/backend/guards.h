// Guards: objects by which a thread tells the core something for as long as a call lasts, from their making to their end.
#pragma once

#include <cstdint>

#include "base/threads_lock.h"
#include "mpi/backend/abi.h"
#include "mpi/backend/state.h"

namespace headroom::mpi {

// A variable of each thread's in the preloaded library, at the same distance from every thread's pointer.
inline intptr_t depth_offset = 0;

/// How many calls of the library this thread is in.
inline int& library_depth() { return *reinterpret_cast<int*>(static_cast<char*>(__builtin_thread_pointer()) + depth_offset); }

/// Locks only where several threads may call MPI at once: an atomic operation waits until earlier writes have reached the other
/// processors' caches, which is half of what sending a short message costs.
class LockAmongThreads {
 public:
  [[gnu::always_inline]] explicit LockAmongThreads(base::ThreadsLock& lock) : lock_(lock) {
    if (__builtin_expect(several_threads, 0)) {
      alone_ = enter(lock);
    }
  }
  [[gnu::always_inline]] ~LockAmongThreads() {
    if (__builtin_expect(several_threads, 0)) {
      lock_.leave(alone_);
    }
  }
  LockAmongThreads(const LockAmongThreads&) = delete;
  LockAmongThreads& operator=(const LockAmongThreads&) = delete;

 private:
  [[gnu::noinline]] static bool enter(base::ThreadsLock& lock) { return lock.enter(*calling_threads); }

  base::ThreadsLock& lock_;
  bool alone_ = false;
};

/// While one lives, this thread is inside the library: memory that it allocates is the library's.
class InsideLibrary {
 public:
  InsideLibrary() : depth_(library_depth()) { ++depth_; }
  ~InsideLibrary() { --depth_; }
  InsideLibrary(const InsideLibrary&) = delete;
  InsideLibrary& operator=(const InsideLibrary&) = delete;

 private:
  int& depth_;
};

/// The slot is given up around a call that may block and that is left to the library, and node-mates are looked after.
class WithoutSlot {
 public:
  WithoutSlot() {
    if (direct_on) {
      core->endpoint.go_away();
    }
    core->give_slot_up();
  }
  ~WithoutSlot() {
    core->take_slot();
    if (direct_on) {
      core->endpoint.come_back();
    }
  }
  WithoutSlot(const WithoutSlot&) = delete;
  WithoutSlot& operator=(const WithoutSlot&) = delete;
};

/// Around a blocking call of the library's outside turns: only a trace is told of the wait.
class WaitInLibrary {
 public:
  WaitInLibrary() { core->give_slot_up(); }
  ~WaitInLibrary() { core->take_slot(); }
  WaitInLibrary(const WaitInLibrary&) = delete;
  WaitInLibrary& operator=(const WaitInLibrary&) = delete;
};

/// Around a call that waits several times and computes little in between: its rank's turn comes at the end.
class SeveralWaits {
 public:
  explicit SeveralWaits(bool really = true) : really_(really) {
    if (really_) {
      core->begin_call_of_waits();
    }
  }
  ~SeveralWaits() {
    if (really_) {
      core->end_call_of_waits();
    }
  }
  SeveralWaits(const SeveralWaits&) = delete;
  SeveralWaits& operator=(const SeveralWaits&) = delete;

 private:
  bool really_;
};

/// Around calls after which there may be more ranks than before: then it is looked at anew how this one waits.
class WaysMayChange {
 public:
  WaysMayChange() = default;
  ~WaysMayChange() { core->choose_shortcuts(); }
  WaysMayChange(const WaysMayChange&) = delete;
  WaysMayChange& operator=(const WaysMayChange&) = delete;
};

}  // namespace headroom::mpi
