// See folding.h.
#include "mpi/backend/collectives/folding.h"

#include <cstdint>
#include <cstring>

#include "mpi/backend/abi.h"
#include "mpi/backend/collectives/collectives.h"
#include "mpi/backend/collectives/exchange.h"
#include "mpi/backend/collectives/numbers.h"
#include "mpi/backend/objects/communicators.h"
#include "mpi/backend/objects/datatypes.h"
#include "mpi/backend/objects/operations.h"
#include "mpi/backend/state.h"

namespace headroom::mpi {

uint64_t foldable_bytes(const Datatype& known, MPI_Datatype datatype) {
  const bool gapless = known.layout == nullptr && known.extent == static_cast<int64_t>(known.bytes);
  if (!known.usable || known.bytes == 0 || known.extent > static_cast<int64_t>(kReducedChunk) ||
      !(gapless || is_pair(datatype))) {
    return 0;
  }
  return static_cast<uint64_t>(known.extent);
}

bool is_reduced_directly(const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
                         Communicator*& communicator, uint64_t& element_bytes) {
  communicator = collective_on(comm);
  if (communicator == nullptr || op == MPI_OP_NULL || count < 0) {
    return false;
  }
  const Order order = order_on(*communicator, op, datatype);
  const bool same_bits = order == Order::kAny || (order == Order::kAmongMore && communicator->size == 2);
  if (order == Order::kUndefined || !(same_bits || reductions_direct)) {
    return false;
  }
  const Datatype* known = reduced_type(sendbuf == MPI_IN_PLACE ? recvbuf : sendbuf, count, datatype);
  element_bytes = known != nullptr ? foldable_bytes(*known, datatype) : 0;
  return element_bytes > 0;
}

void expect_result(const char* own, uint64_t own_bytes, char* result, uint64_t bytes) {
  core->endpoint.expect_overwriting({result, bytes, nullptr}, {const_cast<char*>(own), own_bytes, nullptr});
}

void expect_result(const Reduction& reduction) {
  expect_result(reduction.own, reduction.bytes(), reduction.result, reduction.bytes());
}

void expect_result_of_library(Communicator& communicator, int filled_rank, const void* sendbuf, void* recvbuf, MPI_Count count,
                              MPI_Datatype datatype, MPI_Op op) {
  if (!communicator.direct || communicator.rank != filled_rank || sendbuf == MPI_IN_PLACE || count <= 0 || op == MPI_OP_NULL ||
      order_on(communicator, op, datatype) == Order::kUndefined) {
    return;
  }
  const Datatype* known = operand_type(sendbuf, count, datatype);
  const uint64_t bytes = known != nullptr ? foldable_bytes(*known, datatype) * static_cast<uint64_t>(count) : 0;
  expect_result(static_cast<const char*>(sendbuf), bytes, static_cast<char*>(recvbuf), bytes);
}

const char* fold_operands(const Reduction& reduction, char* operands) {
  const int last = reduction.communicator->size - 1;
  const uint64_t bytes = reduction.bytes();
  const auto operand = [&](int of) { return operands + bytes * static_cast<uint64_t>(of); };
  memcpy(operand(reduction.communicator->rank), reduction.own, bytes);
  for (int peer = last - 1; peer >= 0; --peer) {
    reduction.folding(operand(peer), operand(last), bytes);
  }
  return operand(last);
}

void fold_into_result(const Reduction& reduction, char* operands) {
  const uint64_t bytes = reduction.bytes();
  if (reduction.folds == Folds::kAll) {
    memcpy(reduction.result, fold_operands(reduction, operands), bytes);
    return;
  }
  const auto operand = [&](int of) { return operands + bytes * static_cast<uint64_t>(of); };
  const int rank = reduction.communicator->rank;
  const int last = reduction.folds == Folds::kThrough ? rank : rank - 1;
  if (last == rank) {
    memcpy(operand(rank), reduction.own, bytes);
  }
  for (int peer = 1; peer <= last; ++peer) {
    reduction.folding(operand(peer - 1), operand(peer), bytes);
  }
  if (last >= 0) {
    memcpy(reduction.result, operand(last), bytes);
  }
}

void fold_whole(Exchange& exchange, const Reduction& reduction) {
  const int size = reduction.communicator->size;
  const int rank = reduction.communicator->rank;
  const uint64_t bytes = reduction.bytes();
  Scratch scratch(bytes * static_cast<uint64_t>(size));
  const auto operand = [&](int of) { return scratch.at(bytes * static_cast<uint64_t>(of)); };
  for (int peer = 0; peer < size; ++peer) {
    if (peer != rank) {
      exchange.receive(peer, {operand(peer), bytes, nullptr});
    }
  }
  exchange.wait_for_receives();
  const char* folded = fold_operands(reduction, operand(0));
  exchange.wait_for_sends();  // they may be fetched from where the result goes
  memcpy(reduction.result, folded, bytes);
}

void fold_chunk(Exchange& exchange, const Reduction& reduction, const char* own, char* into, uint64_t bytes) {
  const int last = reduction.communicator->size - 1;
  for (int peer = last; peer >= 0; --peer) {
    if (peer != reduction.communicator->rank) {
      exchange.receive(peer, {into, bytes, nullptr, peer != last ? &reduction.folding : nullptr});
      exchange.wait_for_receives();
    } else if (peer == last) {
      memcpy(into, own, bytes);
    } else {
      reduction.folding(own, into, bytes);
    }
  }
}

Segment segment_of(int rank, int size, uint64_t count, Numbers counts) {
  if (!counts.are_given()) {
    const uint64_t each = (count + static_cast<uint64_t>(size) - 1) / static_cast<uint64_t>(size);
    return Segment{0, count}.chunk(static_cast<uint64_t>(rank), each);
  }
  Segment segment = {0, static_cast<uint64_t>(counts[rank])};
  for (int before = 0; before < rank; ++before) {
    segment.begin += static_cast<uint64_t>(counts[before]);
  }
  return segment;
}

}  // namespace headroom::mpi
