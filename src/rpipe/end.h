// This process's end of a pipe: how it meets the peer's, what it writes and reads, how it closes and how it breaks.
//
//   open ──meet──► met ──► broken (the peer has died or closed, or the ends do not fit)
//     └───────────────┴────────┴──close──► retired ──► gone
//
// An end has a record in this process's file, in the list of those for its peer; two ends meet when each has found the other's
// record by its key. A direction's record is its writer's. An end that was closed is retired until its peer has closed, too, or
// has died: what the peer still holds of it lies in this process's file.
//
// Thread-safe as rpipe.h says: `write_lock` and `read_lock` are taken where a pipe was opened with RPIPE_THREADS.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "headroom/rpipe.h"
#include "rpipe/peers.h"
#include "rpipe/reader.h"
#include "rpipe/waiting.h"
#include "rpipe/writer.h"

namespace headroom::rpipe {

class End {
 public:
  End(::rpipe& handle, Peer& peer, rpipe_role role, const rpipe_options& options)
      : handle_(handle), peer_(peer), role_(role), options_(options) {}
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  [[nodiscard]] bool writes() const { return role_ != RPIPE_READER; }
  [[nodiscard]] bool reads() const { return role_ != RPIPE_WRITER; }
  [[nodiscard]] bool is_for_threads() const { return (options_.flags & RPIPE_THREADS) != 0; }
  [[nodiscard]] Peer& peer() const { return peer_; }
  [[nodiscard]] ::rpipe& handle() const { return handle_; }

  /// Makes its record. 0 or -ENOMEM.
  int begin(uint32_t opening);

  /// FREE -> WRITER'S; -EAGAIN: no room now. `may_grow`: the caller has waited, or does not want to (writer.h).
  int try_allocate(uint64_t bytes, bool may_grow, raddr_t& buffer);
  int write(uint32_t buffer, uint64_t bytes);
  /// Whether a small message could be written, or an error would be had.
  bool has_room();
  /// How long the next message is; -EAGAIN: there is none.
  int try_peek(uint64_t& bytes);
  /// Takes what was found by try_peek() before, by the same thread.
  int take(raddr_t& buffer);
  /// Calls look(has_waited) until it says something else than -EAGAIN, or the time is over. `waits_for`: what a look waits for;
  /// `has_waited`: it has done so for as long as it does without sleeping, or will not.
  template <typename Look>
  int wait(int64_t timeout_ns, WaitsFor waits_for, Look look);

  /// 0 if the peer was met; -EAGAIN: not yet; -EPIPE, -EPROTO: it never will be.
  int meet();
  int close(int64_t timeout_ns);
  /// Whether nobody looks at what is this process's of it any more; then it is given back.
  bool try_to_go();

  [[nodiscard]] const char* reason() const { return broken_.load(std::memory_order_acquire) != 0 ? reason_ : nullptr; }
  [[nodiscard]] bool is_met() const { return theirs_.load(std::memory_order_acquire) != nullptr; }
  void count_wait(uint32_t sleeps, bool for_room);
  void fill_state(rpipe_state& state);

  Writer writer;
  Reader reader;
  base::FutexLock write_lock;
  base::FutexLock read_lock;

 private:
  /// Until the peer's file is here, or never will be; `timeout_ns` is less by the time that this took.
  int wait_for_connection(int64_t& timeout_ns);
  int find_theirs();
  int check_fit(const Record& theirs);
  int break_by(int error, const char* format, ...) __attribute__((format(printf, 3, 4)));
  int broken_now();
  /// What a wait knows of the peer's.
  struct Watch {
    bool is_on = false;
    uint64_t waits = 0;  // Root::waits of the peer when it was begun to be watched
  };
  /// Whether both wait for each other for good.
  [[nodiscard]] bool is_deadlock(WaitsFor waits_for, Watch& watch) const;

  ::rpipe& handle_;
  Peer& peer_;
  const rpipe_role role_;
  const rpipe_options options_;
  uint32_t opening_ = 0;
  uint64_t own_offset_ = 0;
  Record* own_ = nullptr;
  std::atomic<Record*> theirs_{nullptr};
  std::atomic<int> broken_{0};
  char reason_[160] = {};
  base::FutexLock meeting_;
  std::atomic<uint64_t> waits_for_room_{0};
  std::atomic<uint64_t> sleeps_{0};
};

/// More than one thread of this process has waited in a pipe.
void note_thread();
bool has_many_threads();

template <typename Look>
int End::wait(int64_t timeout_ns, WaitsFor waits_for, Look look) {
  int result = look(timeout_ns == RPIPE_NOWAIT);
  if (result != -EAGAIN || timeout_ns == RPIPE_NOWAIT) {
    return result;
  }
  note_thread();
  if (const int error = wait_for_connection(timeout_ns)) {
    return error;
  }
  Root& own = own_root();
  if (timeout_ns < 0) {
    own.waits_for.store(static_cast<uint64_t>(waits_for) << 32 | static_cast<uint32_t>(peer_.rank), std::memory_order_release);
  }
  Watch watch;
  Waiter waiter(timeout_ns);
  while ((result = look(waiter.is_patient())) == -EAGAIN) {
    if (const int over = waiter.pause()) {
      result = over;
      break;
    }
    if (waiter.is_long()) {
      own.waits.fetch_add(1, std::memory_order_acq_rel);
      (void)look_whether_dead(peer_);
      if (timeout_ns < 0 && is_deadlock(waits_for, watch)) {
        result = look(true);
        result = result == -EAGAIN ? -EDEADLK : result;
        break;
      }
    }
  }
  own.waits_for.store(0, std::memory_order_release);
  count_wait(waiter.sleeps(), waits_for == WaitsFor::kRoom);
  return result;
}

}  // namespace headroom::rpipe
