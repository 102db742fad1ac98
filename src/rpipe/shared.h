// All that processes see of each other: the layout of the file in memory that each process of a node makes, and its peers map.
//
//   Root            one for each process: what rings it, and for each peer the list of its records
//   Record          one for each end of a pipe. The writer's is the direction: what the reader polls and what it says
//   Line            a notice of a message, in a ring: the first in the record, longer ones elsewhere in the file
//   heap            content that is longer than a line holds; elsewhere in the file
//
// Only the process itself writes in its file, except in the parts marked as the peer's. Memory that the program writes to never
// shares a cache line with a word that is polled. Offsets count from the beginning of the file they stand in. A file that a
// peer has damaged can make this process read wrong content, but not outside of what it has mapped (PeerMemory::at).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace headroom::rpipe {

inline constexpr uint32_t kMagic = 0x52504950;  // "RPIP"
inline constexpr uint32_t kLayout = 1;
// Pieces of a file begin and end at multiples of the largest page that there is.
inline constexpr uint64_t kPieceBytes = 64 << 10;
inline constexpr uint64_t whole_pieces(uint64_t bytes) { return (bytes + kPieceBytes - 1) / kPieceBytes * kPieceBytes; }
inline constexpr uint32_t kInlineBytes = 48;  // content that a notice holds itself
inline constexpr uint32_t kFirstLines = 8;
inline constexpr uint32_t kFirstMarks = 64;
inline constexpr uint32_t kMostBuffers = 65535;  // of a direction that are not FREE

enum class Notice : uint8_t { kInline = 1, kHeap, kNextRing };

struct HeapPlace {
  uint64_t offset;  // in the heap
  uint64_t bytes;
};
struct RingPlace {
  uint64_t offset;  // in the file
  uint64_t lines;
};

/// Written by the writer: all of it, and then `number`, by release; the reader looks at `number` by acquire.
struct alignas(64) Line {
  std::atomic<uint32_t> number;  // stamp_of() the notice's number
  uint16_t buffer;
  uint16_t generation;
  Notice kind;
  uint8_t inline_bytes;
  uint16_t padding;
  uint32_t more_padding;
  union {
    char content[kInlineBytes];
    HeapPlace heap;
    RingPlace ring;
  };
};
static_assert(sizeof(Line) == 64 && offsetof(Line, content) == 16);

/// The stamp in the line of the notice with this number: never 0, which is what a new ring has.
inline constexpr uint32_t stamp_of(uint64_t number) { return static_cast<uint32_t>(number) | uint32_t{1} << 31; }

/// kLost: of a mirrored record (mirror.h), there was no memory for what the peer has written.
enum class EndState : uint32_t { kUnused = 0, kOpen, kClosed, kLost };

inline constexpr uint16_t kMirrored = 1 << 15;  // among a record's flags: the end is met by messages

struct alignas(64) Record {
  // Written before the key.
  uint64_t next;  // the next older record for the same peer, or 0
  uint32_t index;
  uint16_t role;
  uint16_t flags;
  std::atomic<uint64_t> key;    // channel and number of the opening (key_of); release, when all else is there
  std::atomic<uint32_t> state;  // EndState
  uint32_t width;               // buffers of the direction that are not FREE at a time
  // Written before the first notice that needs them.
  std::atomic<uint64_t> more_marks;  // where there are marks for all buffers; 0: not yet
  std::atomic<uint64_t> heap;
  std::atomic<uint64_t> heap_limit;

  // Of the direction's reader.
  alignas(64) std::atomic<uint64_t> taken;  // notices, release: their lines may be used again
  std::atomic<uint32_t> peer_closed;        // the peer's last access to this record

  // A byte for each buffer: 1, by either side, when it was freed; 0 by the writer, which has seen it.
  alignas(64) std::atomic<uint8_t> marks[kFirstMarks];

  alignas(64) Line lines[kFirstLines];
};
inline constexpr uint64_t kRecordBytes = 768;
static_assert(sizeof(Record) <= kRecordBytes && kRecordBytes % 64 == 0);

inline constexpr uint64_t key_of(uint32_t channel, uint32_t opening) { return uint64_t{channel} << 32 | (opening + 1); }

/// The event that a process waits for, if it will wait for ever; for the peer, which looks whether both wait for each other.
enum class WaitsFor : uint32_t { kNothing = 0, kRoom, kMessage };

// The ways in which a process is to be rung: by its bell, and by a byte on its connection (descriptor.h).
inline constexpr uint32_t kAsleep = 1;
inline constexpr uint32_t kArmed = 2;

struct Root {
  uint32_t magic, layout;
  int32_t rank;
  uint32_t padding;
  uint64_t nonce;

  alignas(64) std::atomic<uint32_t> bell;  // by peers: a futex that changes when it is rung
  std::atomic<uint32_t> sleeps;            // kAsleep, kArmed: ring; taken back by the peer that rings

  // (WaitsFor << 32 | the peer's rank), and how often that changed; for the peer.
  alignas(64) std::atomic<uint64_t> waits_for;
  std::atomic<uint64_t> waits;
  std::atomic<uint32_t> has_threads;  // several threads use pipes, so nobody knows who could end a wait

  alignas(64) std::atomic<uint64_t> records[1];  // the newest for each rank; as many as there are ranks
};

}  // namespace headroom::rpipe
