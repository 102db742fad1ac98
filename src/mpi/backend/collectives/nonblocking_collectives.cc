// See nonblocking_collectives.h.
#include "mpi/backend/collectives/nonblocking_collectives.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "direct/endpoint.h"
#include "mpi/backend/abi.h"
#include "mpi/backend/collectives/collective_reductions.h"
#include "mpi/backend/collectives/collectives.h"
#include "mpi/backend/collectives/exchange.h"
#include "mpi/backend/collectives/folding.h"
#include "mpi/backend/collectives/numbers.h"
#include "mpi/backend/guards.h"
#include "mpi/backend/memory.h"
#include "mpi/backend/messages/direct_requests.h"
#include "mpi/backend/objects/communicators.h"
#include "mpi/backend/objects/operations.h"

namespace headroom::mpi {
namespace {

StartedCollective* free_collectives = nullptr;

/// The operands of all ranks go to every rank that folds: no more than this in all.
constexpr uint64_t kMostGathered = 64 << 10;

/// Whether the call is made here.
bool may_start_reduction(const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
                         Communicator*& communicator, uint64_t& element_bytes) {
  return operation_of(op) != Operation::kPrograms &&
         is_reduced_directly(sendbuf, recvbuf, count, datatype, op, comm, communicator, element_bytes) &&
         static_cast<uint64_t>(count) <= kMostGathered / element_bytes / static_cast<uint64_t>(communicator->size);
}

/// `root` -1: everybody folds.
bool start_reduction(Starts& ending, const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op,
                     int root, MPI_Comm comm, int& error) {
  Communicator* communicator = nullptr;
  uint64_t element_bytes = 0;
  if (!may_start_reduction(sendbuf, recvbuf, count, datatype, op, comm, communicator, element_bytes) ||
      root >= communicator->size) {
    return false;
  }
  const Reduction reduction = {communicator, static_cast<const char*>(sendbuf == MPI_IN_PLACE ? recvbuf : sendbuf),
                               static_cast<char*>(recvbuf), static_cast<uint64_t>(count), Folding(op, datatype, element_bytes)};
  const int size = communicator->size;
  const int rank = communicator->rank;
  Exchange& exchange = ending.begin(*communicator, size, size);
  const direct::Content own = {const_cast<char*>(reduction.own), reduction.bytes(), nullptr};
  const bool folds = root < 0 || root == rank;
  char* const gathered = folds ? ending.gather(reduction) : nullptr;
  for (int step = 1; step < size; ++step) {
    const int to = (rank + step) % size;
    const int from = (rank - step + size) % size;
    if (root < 0 || to == root) {
      exchange.send(to, own);
    }
    if (folds) {
      ending.receive(from, {gathered + static_cast<uint64_t>(from) * own.bytes, own.bytes, nullptr});
    }
  }
  error = ending.end(comm);
  return true;
}

/// Each rank gets the operands' parts that are its own, and folds them.
bool start_reduce_scatter(Starts& ending, const void* sendbuf, void* recvbuf, Numbers counts, MPI_Count each,
                          MPI_Datatype datatype, MPI_Op op, MPI_Comm comm, int& error) {
  Communicator* communicator = collective_on(comm);
  const int64_t all = communicator != nullptr ? scattered_count(counts, each, communicator->size) : -1;
  uint64_t element_bytes = 0;
  if (all < 0 || !may_start_reduction(sendbuf, recvbuf, all, datatype, op, comm, communicator, element_bytes)) {
    return false;
  }
  const int size = communicator->size;
  const int rank = communicator->rank;
  const auto count = static_cast<uint64_t>(all);
  const char* operand = static_cast<const char*>(sendbuf == MPI_IN_PLACE ? recvbuf : sendbuf);
  const Segment mine = segment_of(rank, size, count, counts);
  const Reduction reduction = {communicator, operand + mine.begin * element_bytes, static_cast<char*>(recvbuf), mine.count,
                               Folding(op, datatype, element_bytes)};
  Exchange& exchange = ending.begin(*communicator, size, size);
  char* const gathered = ending.gather(reduction);
  for (int step = 1; step < size; ++step) {
    const int to = (rank + step) % size;
    const int from = (rank - step + size) % size;
    const Segment theirs = segment_of(to, size, count, counts);
    exchange.send(to, {const_cast<char*>(operand) + theirs.begin * element_bytes, theirs.count * element_bytes, nullptr});
    ending.receive(from, {gathered + static_cast<uint64_t>(from) * reduction.bytes(), reduction.bytes(), nullptr});
  }
  error = ending.end(comm);
  return true;
}

/// No chain: each rank sends its operand to all after it.
bool start_scan(Starts& ending, const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op,
                MPI_Comm comm, Folds folds, int& error) {
  Communicator* communicator = nullptr;
  uint64_t element_bytes = 0;
  if (!may_start_reduction(sendbuf, recvbuf, count, datatype, op, comm, communicator, element_bytes)) {
    return false;
  }
  const Reduction reduction = {communicator,
                               static_cast<const char*>(sendbuf == MPI_IN_PLACE ? recvbuf : sendbuf),
                               static_cast<char*>(recvbuf),
                               static_cast<uint64_t>(count),
                               Folding(op, datatype, element_bytes),
                               folds};
  Exchange& exchange = ending.begin(*communicator, communicator->size, communicator->size);
  char* const gathered = ending.gather(reduction);
  for (int to = communicator->rank + 1; to < communicator->size; ++to) {
    exchange.send(to, {const_cast<char*>(reduction.own), reduction.bytes(), nullptr});
  }
  for (int from = 0; from < communicator->rank; ++from) {
    ending.receive(from, {gathered + static_cast<uint64_t>(from) * reduction.bytes(), reduction.bytes(), nullptr});
  }
  error = ending.end(comm);
  return true;
}

}  // namespace

StartedCollective* take_collective(int sends, int receives) {
  StartedCollective* started = nullptr;
  {
    const LockAmongThreads lock(request_lock);
    started = free_collectives;
    free_collectives = started != nullptr ? started->next : nullptr;
  }
  if (started == nullptr) {
    started = new (memory_or_abort(sizeof(StartedCollective))) StartedCollective;
  }
  if (started->places == nullptr || started->places->most_sends < sends || started->most_receives < receives) {
    free(started->places);
    free(started->layouts);
    constexpr int kLeast = 4;
    started->most_receives = std::max(receives, kLeast);
    started->places = make_places(std::max(sends, kLeast), started->most_receives);
    started->layouts =
        static_cast<direct::Layout**>(memory_or_abort(sizeof(direct::Layout*) * static_cast<size_t>(started->most_receives)));
  }
  started->layout_count = 0;
  started->over = false;
  return started;
}

char* gathered_by(Reduction* reduction) { return reinterpret_cast<char*>(reduction) + kReductionBytes; }

bool advance_collective(StartedCollective& started) {
  if (!started.over && started.exchange.is_over()) {
    started.error = started.operands.conclude(started.exchange);
    if (started.error == MPI_SUCCESS && started.reduction != nullptr) {
      fold_into_result(*started.reduction, gathered_by(started.reduction));
      started.error = started.reduction->folding.error;
    }
    started.over = true;
  }
  return started.over;
}

void hasten_collective(StartedCollective& started) { started.exchange.set_streams_aside(); }

int end_collective(StartedCollective* started) {
  const int error = started->error;
  for (int index = 0; index < started->layout_count; ++index) {
    core->endpoint.let_go(started->layouts[index]);
  }
  free(started->reduction);
  started->reduction = nullptr;
  started->operands.drop();
  let_go_of(started->communicator);
  const LockAmongThreads lock(request_lock);
  started->next = free_collectives;
  free_collectives = started;
  return error;
}

bool direct_Allreduce(Starts&& ending, const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op,
                      MPI_Comm comm, int& error) {
  return start_reduction(ending, sendbuf, recvbuf, count, datatype, op, -1, comm, error);
}

bool direct_Reduce(Starts&& ending, const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op,
                   int root, MPI_Comm comm, int& error) {
  return root >= 0 && start_reduction(ending, sendbuf, recvbuf, count, datatype, op, root, comm, error);
}

bool direct_Reduce_scatter(Starts&& ending, const void* sendbuf, void* recvbuf, Numbers recvcounts, MPI_Datatype datatype,
                           MPI_Op op, MPI_Comm comm, int& error) {
  return start_reduce_scatter(ending, sendbuf, recvbuf, recvcounts, 0, datatype, op, comm, error);
}

bool direct_Reduce_scatter_block(Starts&& ending, const void* sendbuf, void* recvbuf, MPI_Count recvcount,
                                 MPI_Datatype datatype, MPI_Op op, MPI_Comm comm, int& error) {
  return start_reduce_scatter(ending, sendbuf, recvbuf, nullptr, recvcount, datatype, op, comm, error);
}

bool direct_Scan(Starts&& ending, const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op,
                 MPI_Comm comm, int& error) {
  return start_scan(ending, sendbuf, recvbuf, count, datatype, op, comm, Folds::kThrough, error);
}

bool direct_Exscan(Starts&& ending, const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op,
                   MPI_Comm comm, int& error) {
  return start_scan(ending, sendbuf, recvbuf, count, datatype, op, comm, Folds::kBefore, error);
}

}  // namespace headroom::mpi
