// The io_uring store: one ring, used by the pager thread alone, through the kernel's interface directly (three system calls
// and two shared rings; a library would have to be bundled for every architecture for no gain).
//
// Memory ordering: the kernel is the other side of both rings. Submission: entries are filled before the tail is stored
// with release; the kernel loads it with acquire. Completion: the tail is loaded with acquire before entries are read, and
// the head stored with release after.
#include <errno.h>
#include <linux/io_uring.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <new>

#include "base/log.h"
#include "base/own_descriptors.h"
#include "base/system_calls.h"
#include "pager/store.h"

namespace headroom::pager {
namespace {

using base::system_call;

class IoUringStore final : public Store {
 public:
  bool open(const StoreFiles& files) {
    files_ = &files;
    io_uring_params parameters = {};
    const long ring = system_call(SYS_io_uring_setup, kDepth, &parameters);
    if (base::is_error(ring)) {
      return false;
    }
    ring_ = base::own(ring);
    event_ = base::own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (event_ < 0 || (parameters.features & IORING_FEAT_SINGLE_MMAP) == 0 ||
        base::is_error(system_call(SYS_io_uring_register, ring_, IORING_REGISTER_EVENTFD, &event_, 1))) {
      return false;
    }
    return map_rings(parameters) && try_transfer();
  }

  void submit(const Transfer& transfer) override {
    int slot = 0;
    while (slots_[slot].used) {
      ++slot;
    }
    slots_[slot] = {true, false, 0, transfer};
    ++in_flight_;
    push(slot);
  }

  int collect(Completion* out, int most) override {
    const bool clears = !has_completions();
    if (clears) {
      uint64_t ignored = 0;
      (void)system_call(SYS_read, event_, &ignored, sizeof ignored);
    }
    int found = 0;
    uint32_t head = completion_head_->load(std::memory_order_relaxed);
    while (found < most && head != completion_tail_->load(std::memory_order_acquire)) {
      const io_uring_cqe& entry = completions_[head & completion_mask_];
      const int slot = static_cast<int>(entry.user_data);
      const int result = entry.res;
      completion_head_->store(++head, std::memory_order_release);
      if (finished(slot, result)) {
        out[found++] = {slots_[slot].transfer.tag, slots_[slot].transfer.write, slots_[slot].error};
        slots_[slot].used = false;
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
    return completion_head_->load(std::memory_order_relaxed) != completion_tail_->load(std::memory_order_acquire);
  }

  void begin_batch() override { ++batches_; }
  void end_batch() override {
    if (--batches_ == 0) {
      enter();
    }
  }

  [[nodiscard]] int descriptor() const override { return event_; }
  [[nodiscard]] base::StoreChoice kind() const override { return base::StoreChoice::kIoUring; }

 private:
  struct Slot {
    bool used;
    bool repeated;  // since it moved less than a page
    int error;
    Transfer transfer;
  };

  bool map_rings(const io_uring_params& parameters) {
    const uint64_t submission_bytes = parameters.sq_off.array + parameters.sq_entries * sizeof(uint32_t);
    const uint64_t completion_bytes = parameters.cq_off.cqes + parameters.cq_entries * sizeof(io_uring_cqe);
    const uint64_t bytes = std::max(submission_bytes, completion_bytes);
    void* rings = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring_, IORING_OFF_SQ_RING);
    void* entries = mmap(nullptr, parameters.sq_entries * sizeof(io_uring_sqe), PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_POPULATE, ring_, IORING_OFF_SQES);
    if (rings == MAP_FAILED || entries == MAP_FAILED) {
      return false;
    }
    madvise(rings, bytes, MADV_DONTFORK);
    char* base = static_cast<char*>(rings);
    submission_tail_ = reinterpret_cast<std::atomic<uint32_t>*>(base + parameters.sq_off.tail);
    submission_mask_ = *reinterpret_cast<uint32_t*>(base + parameters.sq_off.ring_mask);
    submission_array_ = reinterpret_cast<uint32_t*>(base + parameters.sq_off.array);
    submissions_ = static_cast<io_uring_sqe*>(entries);
    completion_head_ = reinterpret_cast<std::atomic<uint32_t>*>(base + parameters.cq_off.head);
    completion_tail_ = reinterpret_cast<std::atomic<uint32_t>*>(base + parameters.cq_off.tail);
    completion_mask_ = *reinterpret_cast<uint32_t*>(base + parameters.cq_off.ring_mask);
    completions_ = reinterpret_cast<io_uring_cqe*>(base + parameters.cq_off.cqes);
    return true;
  }

  /// Some sandboxes let the ring be made and refuse its use.
  bool try_transfer() {
    void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) {
      return false;
    }
    submit({true, 0, page, 4096, 0});
    long waited = 0;
    do {  // a signal of the program's says nothing against it
      waited = system_call(SYS_io_uring_enter, ring_, 0, 1, IORING_ENTER_GETEVENTS, nullptr, 0);
    } while (waited == -EINTR);
    Completion done = {};
    // A full disk says nothing else against it.
    const bool works = collect(&done, 1) == 1 && (done.error == 0 || done.error == ENOSPC || done.error == EDQUOT);
    munmap(page, 4096);
    return works;
  }

  void push(int slot) {
    const Transfer& transfer = slots_[slot].transfer;
    const uint32_t tail = submission_tail_->load(std::memory_order_relaxed);
    const uint32_t index = tail & submission_mask_;
    io_uring_sqe& entry = submissions_[index];
    memset(&entry, 0, sizeof entry);
    entry.opcode = transfer.write ? IORING_OP_WRITE : IORING_OP_READ;
    const StorePlace place = place_of(*files_, transfer.offset);
    entry.fd = place.descriptor;
    entry.off = place.offset;
    entry.addr = reinterpret_cast<uint64_t>(transfer.memory);
    entry.len = static_cast<uint32_t>(transfer.bytes);
    entry.user_data = static_cast<uint64_t>(slot);
    submission_array_[index] = index;
    submission_tail_->store(tail + 1, std::memory_order_release);
    ++pushed_;
    if (batches_ == 0) {
      enter();
    }
  }

  /// Gives the kernel what was pushed.
  void enter() {
    while (pushed_ > 0) {
      const long result = system_call(SYS_io_uring_enter, ring_, pushed_, 0, 0, nullptr, 0);
      if (!base::is_error(result)) {
        pushed_ -= static_cast<uint32_t>(result);
      } else if (result != -EINTR && result != -EAGAIN && result != -EBUSY) {
        base::die(
            "storage: io_uring_enter failed: %s; the kernel no longer lets this process use io_uring (a seccomp profile set by "
            "the program, say): use --store threads",
            strerror(static_cast<int>(-result)));
      }
    }
  }

  /// True when the slot's transfer is over; a short or interrupted one goes on with the rest.
  bool finished(int slot, int result) {
    Transfer& transfer = slots_[slot].transfer;
    if (result == -EINTR || result == -EAGAIN) {
      push(slot);
      return false;
    }
    if (result < 0) {
      slots_[slot].error = -result;
      return true;
    }
    if (static_cast<uint64_t>(result) == transfer.bytes) {
      return true;
    }
    const uint64_t whole = whole_pages(static_cast<uint64_t>(result));
    if (result == 0 || (whole == 0 && slots_[slot].repeated)) {
      slots_[slot].error = EIO;
      return true;
    }
    slots_[slot].repeated = whole == 0;
    transfer.offset += whole;
    transfer.memory = static_cast<char*>(transfer.memory) + whole;
    transfer.bytes -= whole;
    push(slot);
    return false;
  }

  const StoreFiles* files_ = nullptr;
  int ring_ = -1;
  int event_ = -1;
  int batches_ = 0;
  uint32_t pushed_ = 0;  // entries that the kernel has not been told of
  std::atomic<uint32_t>* submission_tail_ = nullptr;
  uint32_t submission_mask_ = 0;
  uint32_t* submission_array_ = nullptr;
  io_uring_sqe* submissions_ = nullptr;
  std::atomic<uint32_t>* completion_head_ = nullptr;
  std::atomic<uint32_t>* completion_tail_ = nullptr;
  uint32_t completion_mask_ = 0;
  io_uring_cqe* completions_ = nullptr;
  Slot slots_[kDepth] = {};
};

}  // namespace

Store* make_io_uring_store(const StoreFiles& files) {
  alignas(IoUringStore) static char place[sizeof(IoUringStore)];
  auto* store = new (place) IoUringStore;
  return store->open(files) ? store : nullptr;
}

}  // namespace headroom::pager
