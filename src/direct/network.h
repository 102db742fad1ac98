// The network as the endpoint uses it: the functions that the MPI backend gives it so that messages between nodes are matched
// here, too.
//
// A *record* is up to kRecordBytes long and comes in the order in which its sender sent it. A *piece* of content comes where
// the receiver has asked for it: it names a tag of its own. A failure in the library ends the job there. Nothing here waits,
// and calls come from the program's threads alone, with the endpoint's lock.
#pragma once

#include <cstdint>

namespace headroom::direct {

/// A transfer under way: a request of the library's.
struct NetworkTransfer;

struct NetworkFunctions {
  /// Sends a record to a rank of the world; `record` stays until it is done.
  NetworkTransfer* (*send_record)(int rank, const void* record, uint64_t bytes);
  NetworkTransfer* (*send_piece)(int rank, int tag, const void* from, uint64_t bytes);
  NetworkTransfer* (*receive_piece)(int rank, int tag, void* into, uint64_t bytes);
  /// Whether it is done; then it is gone.
  bool (*test)(NetworkTransfer* transfer);
  /// The next record that has come, and the rank that sent it; nullptr if there is none. It stays until the next call.
  const void* (*next_record)(int& rank, uint64_t& bytes);
};

/// Of a record with its header (between_nodes.h).
inline constexpr uint64_t kRecordBytes = (64 << 10) + 72;
/// Tags of pieces.
inline constexpr int kFirstPieceTag = 1;
inline constexpr int kPieceTags = 16384;

}  // namespace headroom::direct
