// Message memory: the memory into which the processes of a node write messages for each other.
//
// One file in memory, mapped whole by every process, with an area for each: the owner of an area allocates from it, everybody
// reads and writes there. Processes pass each other offsets from the beginning of the mapping. Message memory never pages: it
// is neither evictable nor locked, grows as it is used, and its size is counted in the ledger (docs/dev/direct.md). Small
// pieces are for channels and transfers, large ones for content that is copied aside; a piece that is given back is kept for
// the next of that size.
//
// Thread-safe. Allocates nothing elsewhere.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "base/system_calls.h"

namespace headroom::direct {

inline constexpr uint64_t kAreaBytes = uint64_t{16} << 30;   // at most
inline constexpr uint64_t kMappedBytes = uint64_t{4} << 40;  // at most, by all areas together
inline constexpr uint64_t kSmallestPiece = 64;
inline constexpr int kSizes = 28;  // 64 bytes to 8 GiB

class MessageMemory {
 public:
  /// Makes the file, which may be empty, large enough for `areas` areas, maps it and takes area `index`. The mapping is aligned
  /// so that a piece's address has its size's alignment. `mapped`: where it is mapped already, or nullptr. kNoMemory where
  /// RLIMIT_AS or RLIMIT_FSIZE forbid it.
  base::Status open(int file, int index, int areas, char* mapped = nullptr);

  [[nodiscard]] char* base() const { return base_; }
  [[nodiscard]] uint64_t offset_of(const void* piece) const {
    return static_cast<uint64_t>(static_cast<const char*>(piece) - base_);
  }
  template <typename T>
  [[nodiscard]] T* at(uint64_t offset) const {
    return reinterpret_cast<T*>(base_ + offset);
  }
  /// Whether this process allocated the piece at `offset`.
  [[nodiscard]] bool is_own(uint64_t offset) const { return end_ - area_bytes_ <= offset && offset < end_; }
  /// Where the owner of area `index` publishes what others look for first; `kRootBytes`, zeroed at the beginning.
  template <typename T>
  [[nodiscard]] T* root(int index) const {
    static_assert(sizeof(T) <= kRootBytes);
    return reinterpret_cast<T*>(base_ + static_cast<uint64_t>(index) * area_bytes_);
  }

  /// A piece of at least `bytes` (a power of two is not exceeded), aligned to its size; nullptr if the area is full.
  void* allocate(uint64_t bytes);
  /// Gives a piece back. Those from 256 KiB on return their memory to the system, unless they may be kept for the next; of
  /// those from 1 MiB on no more than kMostKept is.
  void release(void* piece, uint64_t bytes, bool may_keep = false);

  /// Ends the process, since allocate() had nothing for `what`, which cannot do without.
  [[noreturn]] void die_without(const char* what) const;

  [[nodiscard]] uint64_t used_bytes() const { return used_bytes_.load(std::memory_order_relaxed); }

  static constexpr uint64_t kRootBytes = 64 << 10;
  static constexpr uint64_t kMostKept = 4 << 20;

 private:
  struct FreePiece {
    FreePiece* next;
    uint64_t kept_bytes;  // that still have memory, of a large piece
  };

  base::Status map(uint64_t bytes);

  char* base_ = nullptr;
  int file_ = -1;
  uint64_t area_bytes_ = 0;
  uint64_t next_ = 0;  // offset of what was never allocated
  uint64_t end_ = 0;
  std::atomic<uint64_t> used_bytes_{0};  // changed under the lock
  uint64_t kept_bytes_ = 0;
  FreePiece* free_[kSizes] = {};
  base::FutexLock lock_;
};

}  // namespace headroom::direct
