// The fall-back store: a few threads with pread and pwrite, for kernels and containers that refuse io_uring. See store.h.
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <new>

#include "base/own_descriptors.h"
#include "base/own_threads.h"
#include "base/system_calls.h"
#include "pager/store.h"

namespace headroom::pager {
namespace {

using base::system_call;

class ThreadStore final : public Store {
 public:
  static constexpr int kThreads = 4;  // as deep as a disk gains much; threads cost memory

  bool open(const StoreFiles& files) {
    files_ = &files;
    event_ = base::own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (event_ < 0) {
      return false;
    }
    for (int index = 0; index < kThreads; ++index) {
      if (!base::start_thread("headroom-store", &ThreadStore::worker, this)) {
        return index > 0;
      }
    }
    return true;
  }

  void submit(const Transfer& transfer) override {
    ++in_flight_;
    int place = next_submitted_;
    while (slots_[place].state.load(std::memory_order_acquire) != kIdle) {
      place = (place + 1) % kDepth;
    }
    next_submitted_ = (place + 1) % kDepth;
    slots_[place].transfer = transfer;
    // release: pairs with the acquire exchange in worker().
    slots_[place].state.store(kWaiting, std::memory_order_release);
    work_.fetch_add(1, std::memory_order_release);
    base::futex_wake(&work_, 1, false);
  }

  int collect(Completion* out, int most) override {
    const bool clears = !has_completions();
    if (clears) {
      uint64_t ignored = 0;
      (void)system_call(SYS_read, event_, &ignored, sizeof ignored);
    }
    int found = 0;
    const int begin = next_collected_;
    for (int each = 0; each < kDepth && found < most; ++each) {
      const int place = (begin + each) % kDepth;
      Slot& slot = slots_[place];
      if (slot.state.load(std::memory_order_acquire) == kDone) {
        out[found++] = {slot.transfer.tag, slot.transfer.write, slot.error};
        slot.state.store(kIdle, std::memory_order_release);
        next_collected_ = (place + 1) % kDepth;
        --in_flight_;
      }
    }
    if (clears && has_completions()) {  // also for transfers that ended just before it was cleared
      const uint64_t one = 1;
      (void)system_call(SYS_write, event_, &one, sizeof one);
    }
    return found;
  }

  [[nodiscard]] bool has_completions() const override {
    return std::any_of(std::begin(slots_), std::end(slots_),
                       [](const Slot& slot) { return slot.state.load(std::memory_order_acquire) == kDone; });
  }

  [[nodiscard]] int descriptor() const override { return event_; }
  [[nodiscard]] base::StoreChoice kind() const override { return base::StoreChoice::kThreads; }

 private:
  enum : uint32_t { kIdle, kWaiting, kBusy, kDone };
  struct Slot {
    std::atomic<uint32_t> state{kIdle};
    int error = 0;
    Transfer transfer = {};
  };

  int perform(const Transfer& transfer) const {
    uint64_t done = 0;
    bool repeated = false;  // since it moved less than a page
    while (done < transfer.bytes) {
      const StorePlace place = place_of(*files_, transfer.offset + done);
      const long result = system_call(transfer.write ? SYS_pwrite64 : SYS_pread64, place.descriptor,
                                      static_cast<char*>(transfer.memory) + done, transfer.bytes - done, place.offset);
      if (result == -EINTR) {
        continue;
      }
      if (base::is_error(result)) {
        return static_cast<int>(-result);
      }
      const uint64_t moved = whole_pages(static_cast<uint64_t>(result));
      if (result == 0 || (moved == 0 && repeated)) {
        return EIO;
      }
      repeated = moved == 0;
      done += moved;
    }
    return 0;
  }

  static void* worker(void* argument) {
    auto& self = *static_cast<ThreadStore*>(argument);
    for (;;) {
      const uint32_t seen = self.work_.load(std::memory_order_acquire);
      bool worked = false;
      for (Slot& slot : self.slots_) {
        uint32_t expected = kWaiting;
        if (slot.state.compare_exchange_strong(expected, kBusy, std::memory_order_acq_rel)) {
          slot.error = self.perform(slot.transfer);
          slot.state.store(kDone, std::memory_order_release);
          const uint64_t one = 1;
          (void)system_call(SYS_write, self.event_, &one, sizeof one);
          worked = true;
        }
      }
      if (!worked) {
        base::futex_wait(&self.work_, seen, -1, false);
      }
    }
    return nullptr;
  }

  const StoreFiles* files_ = nullptr;
  int event_ = -1;
  std::atomic<uint32_t> work_{0};
  int next_submitted_ = 0;  // where to look first, so that each slot has its turn
  int next_collected_ = 0;
  Slot slots_[kDepth];
};

}  // namespace

Store* make_thread_store(const StoreFiles& files) {
  alignas(ThreadStore) static char place[sizeof(ThreadStore)];
  auto* store = new (place) ThreadStore;
  return store->open(files) ? store : nullptr;
}

}  // namespace headroom::pager
