// The file in memory that a process makes and its peers map.
//
// It is given out in pieces, which are populated as they are used: memory that is never touched costs addresses alone. A piece
// that is given back returns its memory to the system, and is used again for the next of the same size. System calls go past
// the C library, so that Headroom, if it is there, takes none of this for memory of the program's.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "base/system_calls.h"

namespace headroom::rpipe {

class MemoryFile {
 public:
  struct Piece {
    uint64_t offset = 0;
    uint64_t bytes = 0;
    char* at = nullptr;  // nullptr: it could not be had
  };

  MemoryFile() = default;
  /// Unmaps all pieces; peers keep what they have mapped.
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  /// False if the system has no descriptor for it.
  bool open();
  [[nodiscard]] int descriptor() const { return file_; }
  /// Where `bytes` from `offset` on are, which are within one piece; nullptr if no piece has them.
  [[nodiscard]] char* at(uint64_t offset, uint64_t bytes);

  /// Addresses and a place in the file for so many bytes, in multiples of kPieceBytes; zeroed.
  Piece allocate(uint64_t bytes);
  /// The same with memory, so that touching it does not fail.
  Piece allocate_populated(uint64_t bytes);
  /// Nobody looks at it any more, in any process.
  void release(const Piece& piece);
  /// Has the memory of `bytes` from `from` on in the piece, so that touching it does not fail. 0 or a negative error number.
  int populate(const Piece& piece, uint64_t from, uint64_t bytes) const;

 private:
  int file_ = -1;
  uint64_t end_ = 0;
  std::vector<Piece> all_;
  std::vector<Piece> free_;
  base::FutexLock lock_;
};

/// The parts of a peer's file that this process has mapped, or the file of its own that mirrors it.
class PeerMemory {
 public:
  PeerMemory() = default;
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  /// Takes the descriptor over.
  void open(int file) { file_ = file; }
  void open(MemoryFile& mirror) { mirror_ = &mirror; }
  /// Where `bytes` from `offset` on are, which are within one piece; mapped if they are not yet, and nullptr if they cannot be,
  /// or the file does not have them.
  char* at(uint64_t offset, uint64_t bytes);
  /// Unmaps what at() gave for exactly this.
  void forget(uint64_t offset, uint64_t bytes);

 private:
  struct Mapping {
    uint64_t offset;
    uint64_t bytes;
    char* at;
  };
  int file_ = -1;
  MemoryFile* mirror_ = nullptr;
  std::vector<Mapping> mappings_;
  base::FutexLock lock_;
};

}  // namespace headroom::rpipe
