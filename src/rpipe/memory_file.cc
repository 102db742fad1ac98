// See memory_file.h.
#include "rpipe/memory_file.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "rpipe/shared.h"

namespace headroom::rpipe {

namespace {

char* map(int file, uint64_t offset, uint64_t bytes) {
  const long place =
      base::system_call(SYS_mmap, nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, offset);
  return base::is_error(place) ? nullptr : reinterpret_cast<char*>(place);
}

}  // namespace

MemoryFile::~MemoryFile() {
  for (const Piece& piece : all_) {
    (void)munmap(piece.at, piece.bytes);  // as in release()
  }
  if (file_ >= 0) {
    (void)base::system_call(SYS_close, file_);
  }
}

bool MemoryFile::open() {
  const long file = base::system_call(SYS_memfd_create, "rpipe", MFD_CLOEXEC);
  file_ = base::is_error(file) ? -1 : static_cast<int>(file);
  return file_ >= 0;
}

MemoryFile::Piece MemoryFile::allocate(uint64_t bytes) {
  bytes = whole_pieces(bytes);
  const base::LockHolder lock(lock_);
  for (Piece& piece : free_) {
    if (piece.bytes == bytes) {
      const Piece found = piece;
      piece = free_.back();
      free_.pop_back();
      return found;
    }
  }
  Piece piece = {end_, bytes, nullptr};
  if (!base::file_may_have(end_ + bytes) || base::is_error(base::system_call(SYS_ftruncate, file_, end_ + bytes))) {
    return piece;
  }
  piece.at = map(file_, end_, bytes);
  if (piece.at != nullptr) {
    end_ += bytes;
    all_.push_back(piece);
  }
  return piece;
}

char* MemoryFile::at(uint64_t offset, uint64_t bytes) {
  const base::LockHolder lock(lock_);
  // By offset: that is how they were made.
  const auto after = std::upper_bound(all_.begin(), all_.end(), offset,
                                      [](uint64_t wanted, const Piece& piece) { return wanted < piece.offset; });
  if (after == all_.begin()) {
    return nullptr;
  }
  const Piece& piece = *(after - 1);
  const uint64_t within = offset - piece.offset;
  return within < piece.bytes && bytes <= piece.bytes - within ? piece.at + within : nullptr;
}

void MemoryFile::release(const Piece& piece) {
  // By the C library's function, and before the pages go: MPI libraries that keep memory registered with a network card listen
  // to that one, and not to the hole. Headroom knows nothing of this memory, and lets it pass.
  (void)madvise(piece.at, piece.bytes, MADV_DONTNEED);
  (void)base::system_call(SYS_fallocate, file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, piece.offset, piece.bytes);
  const base::LockHolder lock(lock_);
  free_.push_back(piece);
}

MemoryFile::Piece MemoryFile::allocate_populated(uint64_t bytes) {
  Piece piece = allocate(bytes);
  if (piece.at != nullptr && populate(piece, 0, bytes) != 0) {
    release(piece);
    piece.at = nullptr;
  }
  return piece;
}

int MemoryFile::populate(const Piece& piece, uint64_t from, uint64_t bytes) const {
  // A signal takes back all of a step: with long ones a profiler's timer would let none end.
  constexpr uint64_t kStep = 1 << 20;
  const uint64_t end = piece.offset + from + bytes;
  for (uint64_t at = piece.offset + from; at < end;) {
    const uint64_t step = std::min(kStep, end - at);
    const long result = base::system_call(SYS_fallocate, file_, 0, at, step);
    if (base::is_error(result) && result != -EINTR) {
      return result == -ENOSPC ? -ENOMEM : static_cast<int>(result);
    }
    at += base::is_error(result) ? 0 : step;
  }
  return 0;
}

PeerMemory::~PeerMemory() {
  for (const Mapping& mapping : mappings_) {
    (void)base::system_call(SYS_munmap, mapping.at, mapping.bytes);
  }
  if (file_ >= 0) {
    (void)base::system_call(SYS_close, file_);
  }
}

char* PeerMemory::at(uint64_t offset, uint64_t bytes) {
  if (mirror_ != nullptr) {
    return mirror_->at(offset, bytes);
  }
  const base::LockHolder lock(lock_);
  for (const Mapping& mapping : mappings_) {
    if (mapping.offset <= offset && bytes <= mapping.bytes && offset - mapping.offset <= mapping.bytes - bytes) {
      return mapping.at + (offset - mapping.offset);
    }
  }
  const uint64_t first = offset / kPieceBytes * kPieceBytes;
  const uint64_t end = whole_pieces(offset + bytes);
  struct stat status = {};
  if (end <= offset || base::is_error(base::system_call(SYS_fstat, file_, &status)) ||
      end > static_cast<uint64_t>(status.st_size)) {
    return nullptr;
  }
  char* const place = map(file_, first, end - first);
  if (place == nullptr) {
    return nullptr;
  }
  mappings_.push_back({first, end - first, place});
  return place + (offset - first);
}

void PeerMemory::forget(uint64_t offset, uint64_t bytes) {
  const base::LockHolder lock(lock_);
  for (Mapping& mapping : mappings_) {
    if (mapping.offset == offset && mapping.bytes == whole_pieces(bytes)) {
      (void)base::system_call(SYS_munmap, mapping.at, mapping.bytes);
      mapping = mappings_.back();
      mappings_.pop_back();
      return;
    }
  }
}

}  // namespace headroom::rpipe
