// A tally: one number in shared memory that the ranks of a communicator count themselves with, for barriers where ranks share
// processors; and places beside it for short operands that all fold.
//
// Along a tree of messages a barrier needs the root to run between the last rank that comes and the first that goes on; where
// that root has no processor, everybody waits for the switch to it, and then for another. By a tally the last one that comes
// goes on at once, and each of the others is over at its next turn: one switch each. With a processor for each rank a tree is
// faster, since the ranks of a tally all write one line.
//
// Only the rank that has made it gives it back, into a list for tallies alone, and its count never starts again: a rank that
// still looks whether its last barrier is over finds that it is. Operands lie in two sets of places that are used in turn. A
// rank that writes to one again has passed the barrier after its last use, and no rank passes that barrier while it still reads
// there. That holds within one communicator; another one has the tally only when all ranks of the one before have let go of it.
#pragma once

#include <atomic>
#include <cstdint>

namespace headroom::direct {

/// More ranks than this use a tree: each that comes takes the line from all that look at it.
inline constexpr int kMostInTally = 32;
inline constexpr uint64_t kTalliedBytes = 64;

struct Tally {
  alignas(64) std::atomic<uint64_t> arrived;  // in all barriers so far
  alignas(64) Tally* next;                    // among those given back; its owner's
  uint32_t ranks;                             // of the communicator that had it; its owner's
  alignas(64) std::atomic<uint32_t> let_go;   // by how many of them
  alignas(64) char operands[2][kMostInTally][kTalliedBytes];
};

}  // namespace headroom::direct
