// This process's end of a pipe: how it meets the peer's, what it writes and reads, how it closes and how it breaks.
//
//   open ──meet──► met ──► broken (the peer has died or closed, or the ends do not fit)
//     └───────────────┴────────┴──close──► retired ──► gone
//
// An end has a record in this process's file, in the list of those for its peer; two ends meet when each has found the other's
// record by its key. A direction's record is its writer's. An end that was closed is retired until its peer has closed, too, or
// has died: buffers of it that the peer still holds lie in this process's file.
//
// Thread-safe as rpipe.h says: `write_lock` and `read_lock` are taken where a pipe was opened with RPIPE_THREADS.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "headroom/rpipe.h"
#include "rpipe/mirror.h"
#include "rpipe/peers.h"
#include "rpipe/reader.h"
#include "rpipe/waiting.h"
#include "rpipe/writer.h"

namespace headroom::rpipe {

class End {
 public:
  static constexpr uint32_t kLooksPerPoll = 16;    // of a wait on a node: those on other nodes take several system calls
  static constexpr uint32_t kLooksPerDeath = 256;  // of a caller that only looks: to see a death takes a system call

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
  int begin();

  /// FREE -> WRITER'S; -EAGAIN: no room now. `may_grow`: the caller has waited, or does not want to (writer.h).
  int try_allocate(uint64_t bytes, bool may_grow, raddr_t& buffer);
  int write(uint32_t buffer, uint64_t bytes);
  /// Whether a small message could be written, or an error would be had.
  bool try_for_room();
  /// How long the next message is; -EAGAIN: there is none.
  int try_peek(uint64_t& bytes);
  /// Takes what was found by try_peek() before, by the same thread.
  int take(raddr_t& buffer);
  /// READER'S -> RETURNED; false if another thread was faster. By any thread.
  bool release(uint32_t buffer);
  /// Calls look(has_waited) until it says something else than -EAGAIN, or the time is over. `waits_for`: what a look waits for;
  /// `has_waited`: it has done so for as long as it does without sleeping, or will not.
  template <typename Look>
  int wait(int64_t timeout_ns, WaitsFor waits_for, Look look);

  /// 0 if the peer was met; -EAGAIN: not yet; -EPIPE, -EPROTO: it never will be.
  int meet();
  /// Says that nothing more is written or read here.
  void begin_close();
  int close(int64_t timeout_ns);
  /// Whether nobody looks at this process's part of it any more; then that is given back.
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
  /// The peer's record that fits this end's by its key; nullptr: the peer has not opened its end, or its file is not here.
  Record* look_up_theirs(Peer& peer) const;
  int find_theirs();
  /// Tells the peer, met or not, that this end does not use its record any more; false: there is none yet.
  bool tell_closed();
  int check_fit(const Record& theirs);
  int break_by(int error, const char* format, ...) __attribute__((format(printf, 3, 4)));
  int break_by_death(const char* what);
  int broken_now();
  /// A wait's knowledge of the peer's.
  struct Watch {
    bool is_on = false;
    uint64_t waits = 0;  // Root::waits of the peer when it was begun to be watched
  };
  /// Whether nothing but the peer can end a wait for it.
  [[nodiscard]] bool may_tell_waits(WaitsFor waits_for) const;
  /// Whether both wait for each other for good.
  [[nodiscard]] bool look_for_deadlock(WaitsFor waits_for, Watch& watch) const;

  ::rpipe& handle_;
  Peer& peer_;
  const rpipe_role role_;
  const rpipe_options options_;
  uint32_t opening_ = 0;
  uint64_t own_offset_ = 0;
  Record* own_ = nullptr;
  std::atomic<Record*> theirs_{nullptr};
  bool has_told_ = false;
  std::atomic<int> broken_{0};
  char reason_[160] = {};
  base::FutexLock meeting_;
  std::atomic<uint64_t> waits_for_room_{0};
  std::atomic<uint64_t> sleeps_{0};
  std::atomic<uint32_t> looks_{0};  // in vain, of calls that do not wait
};

/// This thread uses pipes in a way that could end another one's wait.
void note_thread();

template <typename Look>
int End::wait(int64_t timeout_ns, WaitsFor waits_for, Look look) {
  note_thread();
  if (peer_.is_mirrored) {
    poll_mirrors(true, timeout_ns == RPIPE_NOWAIT);
  }
  uint64_t handled = handled_from_nodes();
  int result = look(timeout_ns == RPIPE_NOWAIT);
  if (result != -EAGAIN) {
    return result;
  }
  if (timeout_ns == RPIPE_NOWAIT) {
    return looks_.fetch_add(1, std::memory_order_relaxed) % kLooksPerDeath == 0 && look_whether_dead(peer_) ? look(true)
                                                                                                            : result;
  }
  if (const int error = wait_for_connection(timeout_ns)) {
    return error;
  }
  Root& own = own_root();
  if (timeout_ns < 0 && !peer_.is_mirrored) {  // a message to another node is not seen when it is written
    own.waits_for.store(static_cast<uint64_t>(waits_for) << 32 | static_cast<uint32_t>(peer_.rank), std::memory_order_release);
  }
  Watch watch;
  bool has_told_waits = false;
  Waiter waiter(timeout_ns);
  uint32_t looks = 0;
  const auto look_again = [&] {
    handled = handled_from_nodes();
    return look(waiter.is_patient());
  };
  while ((result = look_again()) == -EAGAIN) {
    if (const int over = waiter.pause()) {
      result = look_whether_dead(peer_) ? look(true) : over;
      result = result == -EAGAIN ? over : result;
      break;
    }
    if (waiter.is_long()) {
      own.waits.fetch_add(1, std::memory_order_acq_rel);
      (void)look_for_peers();  // one may wait for an answer
      (void)look_whether_dead(peer_);
      if (timeout_ns < 0 && peer_.is_mirrored && (has_told_waits || may_tell_waits(waits_for))) {
        has_told_waits = true;
        tell_waits(peer_, may_tell_waits(waits_for) ? waits_for : WaitsFor::kNothing, handled);
      }
      if (timeout_ns < 0 && look_for_deadlock(waits_for, watch)) {
        result = look(true);
        result = result == -EAGAIN ? -EDEADLK : result;
        break;
      }
    }
    // After this wait was told of, and before the next look: so what was told has been looked at.
    if (peer_.is_mirrored || ++looks % kLooksPerPoll == 0) {
      poll_mirrors(peer_.is_mirrored);
    }
  }
  own.waits_for.store(0, std::memory_order_release);
  if (has_told_waits) {
    tell_waits(peer_, WaitsFor::kNothing, handled);
  }
  count_wait(waiter.sleeps(), waits_for == WaitsFor::kRoom);
  return result;
}

}  // namespace headroom::rpipe
