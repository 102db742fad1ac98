// The engine's messages: a table of functions that the backend fills in, and the formats.
//
// A transfer is known by its slot, a number below slots_needed() (call.h); each has one at a time. Nothing here blocks. A
// message that cannot be sent ends the job: the others would wait.
#pragma once

#include <cstdint>

namespace headroom::collio {

struct Messages {
  void* context;
  void (*send)(void* context, int slot, int rank, int tag, const void* from, int64_t bytes);
  void (*receive)(void* context, int slot, int rank, int tag, void* into, int64_t bytes);
  /// Whether the slot's transfer is over; makes progress. `bytes` may be nullptr: how many have been received.
  bool (*test)(void* context, int slot, int64_t* bytes);
};

inline constexpr int kTagOfAsk = 1;
inline constexpr int kTagOfData = 2;
inline constexpr int kTagOfList = 3;

/// An aggregator's request to a rank. Of a nest: bytes [begin, begin + bytes) of its access, of which the first `valid` travel
/// (none after an error; no bytes behind the end of the file). Of a list: the bytes in the file from `begin` on, in a batch of
/// `bytes` bytes at most, before `valid`.
struct Ask {
  int64_t begin;
  int64_t bytes;
  int64_t valid;
  int64_t kind;
};
enum AskKind : int64_t { kOfNest = 0, kOfList, kDiscardList };

inline constexpr int64_t kHalfChunk = 64 << 10;  // neither the part before the content nor the content is longer

/// The head of a batch of a list: `pieces` gaps and lengths in `code_bytes` bytes (piece_list.h), counted from the asked
/// position on; then, where it is written, as many bytes as they say.
struct Batch {
  int64_t pieces;
  int64_t code_bytes;
  int64_t data_bytes;
  int64_t next;  // where in the file the next piece behind them lies; INT64_MAX if there is none in the aggregator's part
};

}  // namespace headroom::collio
