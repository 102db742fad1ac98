// A store in front of another that keeps a checksum of each page written, in memory (1/1024 of what is on storage), and
// compares what comes back (setting checksums). A page that differs ends its transfer with EBADMSG. See store.h.
#include <errno.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <new>

#include "arena/arena.h"
#include "base/system_calls.h"
#include "pager/store.h"
#include "trace/counters.h"

namespace headroom::pager {
namespace {

using arena::kPageBytes;

uint32_t* checksums = nullptr;  // of each page of the file; nullptr: not wanted

uint32_t checksum_of(const char* page) { return static_cast<uint32_t>(XXH3_64bits(page, kPageBytes)); }

class CheckedStore final : public Store {
 public:
  explicit CheckedStore(Store* behind) : behind_(behind) {}

  void submit(const Transfer& transfer) override {
    ++in_flight_;
    const auto* memory = static_cast<const char*>(transfer.memory);
    if (transfer.write) {
      // The memory is write-protected; one that is written to nevertheless is dirty again, and will be written again.
      for (uint64_t at = 0; at < transfer.bytes; at += kPageBytes) {
        checksums[(transfer.offset + at) / kPageBytes] = checksum_of(memory + at);
      }
    } else {
      remember(transfer);
    }
    behind_->submit(transfer);
  }

  int collect(Completion* out, int most) override {
    const int found = behind_->collect(out, most);
    for (int index = 0; index < found; ++index) {
      if (!out[index].write && out[index].error == 0 && !is_right(out[index].tag)) {
        out[index].error = EBADMSG;
      }
    }
    in_flight_ -= found;
    return found;
  }

  [[nodiscard]] int descriptor() const override { return behind_->descriptor(); }
  [[nodiscard]] base::StoreChoice kind() const override { return behind_->kind(); }

 private:
  void remember(const Transfer& transfer) {
    for (Transfer& slot : reads_) {
      if (slot.memory == nullptr) {
        slot = transfer;
        return;
      }
    }
  }

  bool is_right(uint64_t tag) {
    for (Transfer& slot : reads_) {
      if (slot.memory != nullptr && slot.tag == tag) {
        const bool right = is_what_was_written(slot.offset, slot.memory, slot.bytes);
        slot = {};
        return right;
      }
    }
    return true;
  }

  Store* behind_;
  Transfer reads_[kDepth] = {};
};

}  // namespace

bool is_what_was_written(uint64_t offset, const void* memory, uint64_t bytes) {
  bool right = true;
  for (uint64_t at = 0; checksums != nullptr && at < bytes; at += kPageBytes) {
    right = right && checksums[(offset + at) / kPageBytes] == checksum_of(static_cast<const char*>(memory) + at);
    trace::count(trace::Counter::kPagesChecked);
  }
  return right;
}

Store* make_checked_store(Store* behind) {
  alignas(CheckedStore) static char place[sizeof(CheckedStore)];
  checksums = static_cast<uint32_t*>(base::reserve_memory(arena::kPartitionBytes / kPageBytes * sizeof *checksums));
  return checksums != nullptr ? new (place) CheckedStore(behind) : nullptr;
}

}  // namespace headroom::pager
