// Folding operands among ranks of one node: see collective_reductions.h, which says in which order, and why.
//
// A Reduction is one call's operands. Whole operands are sent and folded by the rank that gets the result; of long ones each
// rank folds a segment, chunk by chunk, each while it is in a cache.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "direct/endpoint.h"
#include "mpi/backend/abi.h"
#include "mpi/backend/collectives/exchange.h"
#include "mpi/backend/collectives/numbers.h"
#include "mpi/backend/guards.h"
#include "mpi/backend/memory.h"

namespace headroom::mpi {

struct Communicator;
struct Datatype;

constexpr uint64_t kWholeBytes = 16 << 10;
constexpr uint64_t kReducedChunk = direct::kSharedFrom - 64;
constexpr int kAllFold = 4;

/// An operation on contiguous elements.
struct Folding : direct::Combine {
  MPI_Op op;
  MPI_Datatype datatype;
  uint64_t element_bytes;
  mutable int error = MPI_SUCCESS;  // of the library's

  Folding(MPI_Op with, MPI_Datatype of, uint64_t bytes) : Combine{fold}, op(with), datatype(of), element_bytes(bytes) {}
  static void fold(const direct::Combine& self, const void* from, void* into, uint64_t bytes) {
    const auto& folding = static_cast<const Folding&>(self);
    if (bytes > 0) {
      const InsideLibrary inside;
      const auto count = static_cast<int>(bytes / folding.element_bytes);
      const int error = real.Reduce_local[1](from, into, count, folding.datatype, folding.op);
      folding.error = error != MPI_SUCCESS ? error : folding.error;
    }
  }
  void operator()(const void* from, void* into, uint64_t bytes) const { fold(*this, from, into, bytes); }
};

/// Memory for the time of one call: on the stack if it is little.
class Scratch {
 public:
  explicit Scratch(uint64_t bytes) : at_(bytes <= sizeof here_ ? here_ : static_cast<char*>(memory_or_abort(bytes))) {}
  ~Scratch() {
    if (at_ != here_) {
      free(at_);
    }
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  [[nodiscard]] char* at(uint64_t offset) { return at_ + offset; }

 private:
  alignas(64) char here_[1024];
  char* at_;
};

/// The operands that are folded for a rank: all of them, those up to its own, or those before it.
enum class Folds : uint8_t { kAll, kThrough, kBefore };

/// One call's operands, and where each rank's segment of them is.
struct Reduction {
  Communicator* communicator;
  const char* own;
  char* result;
  uint64_t count;
  Folding folding;
  Folds folds = Folds::kAll;

  [[nodiscard]] uint64_t element_bytes() const { return folding.element_bytes; }
  [[nodiscard]] uint64_t bytes() const { return count * element_bytes(); }
};

/// Bytes of an element where operands are copied and folded as they lie; 0 if they cannot be. Pairs are structures of C: the
/// bytes between a value and its place belong to the element.
uint64_t foldable_bytes(const Datatype& known, MPI_Datatype datatype);

/// Whether the call is ours, and the bytes of an element.
bool is_reduced_directly(const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
                         Communicator*& communicator, uint64_t& element_bytes);

/// The result fills its place whole: the place is not read from storage first, unless this rank's operand lies there, too.
void expect_result(const char* own, uint64_t own_bytes, char* result, uint64_t bytes);

/// The same of a reduction whose result has the operands' length.
void expect_result(const Reduction& reduction);

/// The same of one that the library does, if it will not refuse it. (Between groups a root is another group's.)
void expect_result_of_library(Communicator& communicator, int filled_rank, const void* sendbuf, void* recvbuf, MPI_Count count,
                              MPI_Datatype datatype, MPI_Op op);

/// Folds the operands of all ranks, which lie one after the other, from the last to the first; this rank's is filled in.
/// Returns where the result is.
const char* fold_operands(const Reduction& reduction, char* operands);

/// Folds operands that lie so into the result, in the order that the blocking forms have.
void fold_into_result(const Reduction& reduction, char* operands);

/// Folds what all ranks have sent to this one into `result`.
void fold_whole(Exchange& exchange, const Reduction& reduction);

/// Folds one chunk that all ranks have sent to this one; `own` is this rank's and lies elsewhere.
void fold_chunk(Exchange& exchange, const Reduction& reduction, const char* own, char* into, uint64_t bytes);

/// A range of elements, cut into chunks.
struct Segment {
  uint64_t begin;
  uint64_t count;

  [[nodiscard]] Segment chunk(uint64_t number, uint64_t most) const {
    const uint64_t from = std::min<uint64_t>(number * most, count);
    return {begin + from, std::min(count - from, most)};
  }
};

/// The segments of a reduction: equal ones, or as MPI_Reduce_scatter says.
Segment segment_of(int rank, int size, uint64_t count, Numbers counts);

/// Folds segments in chunks. `place(chunk)` is where this rank's folded chunk goes, `share(chunk number)` what is done with it.
template <typename Place, typename Share>
void fold_segments(Exchange& exchange, const Reduction& reduction, Numbers counts, Place place, Share share) {
  const int size = reduction.communicator->size;
  const int rank = reduction.communicator->rank;
  const uint64_t most = kReducedChunk / reduction.element_bytes();
  uint64_t longest = 0;
  for (int peer = 0; peer < size; ++peer) {
    const uint64_t here = segment_of(peer, size, reduction.count, counts).count;
    longest = std::max(here, longest);
  }
  const Segment mine = segment_of(rank, size, reduction.count, counts);
  Scratch kept(mine.count > 0 ? std::min(mine.count, most) * reduction.element_bytes() : 0);
  for (uint64_t number = 0; number * most < longest; ++number) {
    for (int step = 1; step < size; ++step) {
      const int peer = (rank + step) % size;
      const Segment chunk = segment_of(peer, size, reduction.count, counts).chunk(number, most);
      if (chunk.count > 0) {
        exchange.send(peer, {const_cast<char*>(reduction.own) + chunk.begin * reduction.element_bytes(),
                             chunk.count * reduction.element_bytes(), nullptr});
      }
    }
    const Segment chunk = mine.chunk(number, most);
    if (chunk.count > 0) {
      const uint64_t bytes = chunk.count * reduction.element_bytes();
      const char* own = reduction.own + chunk.begin * reduction.element_bytes();
      char* into = place(chunk);
      if (own == into) {
        memcpy(kept.at(0), own, bytes);
        own = kept.at(0);
      }
      fold_chunk(exchange, reduction, own, into, bytes);
    }
    share(number, most, chunk);
    exchange.wait();
  }
}

}  // namespace headroom::mpi
