// See message_memory.h.
#include "direct/message_memory.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>

#include "arena/addresses.h"
#include "base/kernel_abi.h"
#include "base/log.h"

namespace headroom::direct {
namespace {

using base::Status;
using base::system_call;

constexpr uint64_t kAlignment = 1 << 20;      // of the mapping; larger pieces are aligned to this only
constexpr uint64_t kLargePiece = 1 << 20;     // from here on memory goes back to the system
constexpr uint64_t kMiddlePiece = 256 << 10;  // the same, unless it may be kept
constexpr uint64_t kSmallPieces = 64 << 10;   // pieces that small sizes are cut from

int size_class(uint64_t bytes) {
  const uint64_t units = (bytes + kSmallestPiece - 1) / kSmallestPiece;
  return units <= 1 ? 0 : 64 - __builtin_clzll(units - 1);
}

uint64_t bytes_of(int size) { return kSmallestPiece << size; }

uint64_t aligned(uint64_t offset, uint64_t alignment) { return (offset + alignment - 1) & ~(alignment - 1); }

// Where stacks are unlimited, so that x86 puts everything else low: above programs at random addresses, below a middle (like
// those of arena/addresses.h) of what is left above them.
constexpr uint64_t kPlaceAboveArena = 0x601000000000;

}  // namespace

Status MessageMemory::map(uint64_t bytes) {
  // Reserved larger than needed, so that the file can lie at an aligned address in it.
  const auto reserve = [=](uint64_t hint) {
    return system_call(SYS_mmap, hint, bytes + kAlignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  };
  long place = reserve(0);
  if (!base::is_error(place) && arena::meets_arena(static_cast<uint64_t>(place), bytes + kAlignment)) {
    (void)system_call(SYS_munmap, place, bytes + kAlignment);
    place = reserve(kPlaceAboveArena);
  }
  if (base::is_error(place)) {
    return Status::kNoMemory;
  }
  const uint64_t begin = aligned(static_cast<uint64_t>(place), kAlignment);
  const long mapped =
      system_call(SYS_mmap, begin, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file_, 0);
  if (base::is_error(mapped)) {
    (void)system_call(SYS_munmap, place, bytes + kAlignment);
    return Status::kNoMemory;
  }
  (void)system_call(SYS_madvise, begin, bytes, MADV_DONTFORK);
  (void)system_call(SYS_madvise, begin, bytes, MADV_DONTDUMP);
  base_ = reinterpret_cast<char*>(begin);
  return Status::kOk;
}

Status MessageMemory::open(int file, int index, int areas, char* mapped) {
  area_bytes_ = std::min(kAreaBytes, kMappedBytes / static_cast<uint64_t>(areas));
  const uint64_t bytes = static_cast<uint64_t>(areas) * area_bytes_;
  if (!base::file_may_have(bytes) || base::is_error(system_call(SYS_ftruncate, file, bytes))) {
    return Status::kNoMemory;
  }
  file_ = file;
  base_ = mapped;
  if (mapped == nullptr && map(bytes) != Status::kOk) {
    return Status::kNoMemory;
  }
  next_ = static_cast<uint64_t>(index) * area_bytes_ + kRootBytes;
  end_ = next_ - kRootBytes + area_bytes_;
  used_bytes_.store(kRootBytes, std::memory_order_relaxed);
  return Status::kOk;
}

void* MessageMemory::allocate(uint64_t bytes) {
  const int size = size_class(bytes);
  if (size >= kSizes) {
    return nullptr;
  }
  const base::LockHolder hold(lock_);
  if (FreePiece* piece = free_[size]) {
    free_[size] = piece->next;
    kept_bytes_ -= piece->kept_bytes;
    return piece;
  }
  const uint64_t piece_bytes = bytes_of(size);
  const uint64_t alignment = std::min(piece_bytes, kAlignment);
  const uint64_t cut = std::max(piece_bytes, kSmallPieces);
  const uint64_t begin = aligned(next_, std::max(alignment, kSmallPieces));
  if (begin + cut > end_) {
    return nullptr;
  }
  next_ = begin + cut;
  used_bytes_.fetch_add(cut, std::memory_order_relaxed);
  for (uint64_t at = begin + cut - piece_bytes; at > begin; at -= piece_bytes) {
    auto* rest = reinterpret_cast<FreePiece*>(base_ + at);
    *rest = {free_[size], 0};
    free_[size] = rest;
  }
  return base_ + begin;
}

void MessageMemory::release(void* piece, uint64_t bytes, bool may_keep) {
  const int size = size_class(bytes);
  const uint64_t piece_bytes = bytes_of(size);
  const base::LockHolder hold(lock_);
  uint64_t kept = 0;
  if (piece_bytes >= kLargePiece || (piece_bytes >= kMiddlePiece && !may_keep)) {
    if (may_keep && kept_bytes_ + piece_bytes <= kMostKept) {
      kept = piece_bytes;
      kept_bytes_ += kept;
    } else {
      (void)system_call(SYS_fallocate, file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset_of(piece), piece_bytes);
    }
  }
  auto* freed = static_cast<FreePiece*>(piece);
  *freed = {free_[size], kept};
  free_[size] = freed;
}

void MessageMemory::die_without(const char* what) const {
  base::die(
      "no message memory is left for %s: %llu GiB of this rank's messages wait to be received, or the system has no more "
      "memory; "
      "receive them sooner, or leave messages to the MPI library with --direct off",
      what, static_cast<unsigned long long>(area_bytes_ >> 30));
}

}  // namespace headroom::direct
