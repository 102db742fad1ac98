// See collective_reductions.h.
#include "mpi/backend/collectives/collective_reductions.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "direct/endpoint.h"
#include "mpi/backend/collectives/barriers.h"
#include "mpi/backend/collectives/collectives.h"
#include "mpi/backend/collectives/exchange.h"
#include "mpi/backend/collectives/folding.h"
#include "mpi/backend/collectives/numbers.h"
#include "mpi/backend/collectives/staged_collectives.h"
#include "mpi/backend/guards.h"
#include "mpi/backend/objects/communicators.h"

namespace headroom::mpi {
namespace {

/// Where ranks share processors: each leaves its operand where all can read it.
void fold_at_tally(Communicator& communicator, const Reduction& reduction) {
  const uint64_t bytes = reduction.bytes();
  const uint64_t round = communicator.counted / static_cast<uint64_t>(communicator.size);
  auto& operands = communicator.tally->operands[round % 2];
  memcpy(operands[communicator.rank], reduction.own, bytes);
  wait_at_tally(communicator);
  Scratch scratch(bytes * static_cast<uint64_t>(communicator.size));
  for (int rank = 0; rank < communicator.size; ++rank) {
    memcpy(scratch.at(bytes * static_cast<uint64_t>(rank)), operands[rank], bytes);
  }
  memcpy(reduction.result, fold_operands(reduction, scratch.at(0)), bytes);
}

/// Few ranks: the root folds all of it, and nobody else waits for it longer than it reads.
void fold_at_root(Exchange& exchange, const Reduction& reduction, int root) {
  const uint64_t most = kReducedChunk / reduction.element_bytes();
  const Segment all = {0, reduction.count};
  const bool is_root = reduction.communicator->rank == root;
  const bool in_place = reduction.own == reduction.result;
  Scratch kept(is_root && in_place ? most * reduction.element_bytes() : 0);
  for (uint64_t number = 0; number * most < reduction.count; ++number) {
    const Segment chunk = all.chunk(number, most);
    const uint64_t at = chunk.begin * reduction.element_bytes();
    const uint64_t bytes = chunk.count * reduction.element_bytes();
    const char* own = reduction.own + at;
    if (!is_root) {
      exchange.send(root, {const_cast<char*>(own), bytes, nullptr}, direct::SendKind::kRooted);
      continue;
    }
    if (in_place) {
      memcpy(kept.at(0), own, bytes);
      own = kept.at(0);
    }
    fold_chunk(exchange, reduction, own, reduction.result + at, bytes);
  }
}

bool reduce_and_scatter(Waits& ending, const void* sendbuf, void* recvbuf, Numbers counts, MPI_Count each,
                        MPI_Datatype datatype, MPI_Op op, MPI_Comm comm, int& error) {
  Communicator* communicator = collective_on(comm);
  const int64_t all = communicator != nullptr ? scattered_count(counts, each, communicator->size) : -1;
  uint64_t element_bytes = 0;
  if (all < 0 || !is_reduced_directly(sendbuf, recvbuf, all, datatype, op, comm, communicator, element_bytes)) {
    return false;
  }
  const auto count = static_cast<uint64_t>(all);
  const Reduction reduction = {communicator, static_cast<const char*>(sendbuf == MPI_IN_PLACE ? recvbuf : sendbuf),
                               static_cast<char*>(recvbuf), count, Folding(op, datatype, element_bytes)};
  Exchange& exchange = ending.begin(*communicator, 0, 0);
  const Segment mine = segment_of(communicator->rank, communicator->size, count, counts);
  const uint64_t bytes = mine.count * element_bytes;
  // In place the result's place is an operand's until all of it has been fetched.
  const bool in_place = sendbuf == MPI_IN_PLACE;
  Scratch folded(in_place ? bytes : 0);
  char* const into = in_place ? folded.at(0) : reduction.result;
  expect_result(reduction.own, reduction.bytes(), reduction.result, bytes);
  fold_segments(
      exchange, reduction, counts, [&](const Segment& chunk) { return into + (chunk.begin - mine.begin) * element_bytes; },
      [](uint64_t, uint64_t, const Segment&) {});
  if (in_place) {
    memcpy(reduction.result, into, bytes);
  }
  exchange.note(reduction.folding.error);
  error = ending.end(comm);
  return true;
}

/// A chain: each rank gets what those before it have folded, and passes it on with its own.
bool scan_directly(Waits& ending, const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op,
                   MPI_Comm comm, bool inclusive, int& error) {
  Communicator* communicator = nullptr;
  uint64_t element_bytes = 0;
  if (!is_reduced_directly(sendbuf, recvbuf, count, datatype, op, comm, communicator, element_bytes)) {
    return false;
  }
  const char* own = static_cast<const char*>(sendbuf == MPI_IN_PLACE ? recvbuf : sendbuf);
  const Folding folding(op, datatype, element_bytes);
  Exchange& exchange = ending.begin(*communicator, 0, 0);
  const bool first = communicator->rank == 0;
  const bool last = communicator->rank == communicator->size - 1;
  const uint64_t most = kReducedChunk / element_bytes * element_bytes;
  const uint64_t bytes = static_cast<uint64_t>(count) * element_bytes;
  if (inclusive || !first) {
    expect_result(own, bytes, static_cast<char*>(recvbuf), bytes);
  }
  Scratch scratch(2 * std::min(bytes, most));
  char* const before = scratch.at(0);
  char* const through = scratch.at(std::min(bytes, most));
  for (uint64_t at = 0; at < bytes; at += most) {
    const uint64_t step = std::min<uint64_t>(bytes - at, most);
    memcpy(through, own + at, step);
    if (!first) {
      exchange.receive(communicator->rank - 1, {before, step, nullptr});
      exchange.wait_for_receives();
      folding(before, through, step);
    }
    if (!last) {
      exchange.send(communicator->rank + 1, {through, step, nullptr});
    }
    if (inclusive || !first) {
      memcpy(static_cast<char*>(recvbuf) + at, inclusive ? through : before, step);
    }
    exchange.wait();
  }
  exchange.note(folding.error);
  error = ending.end_one_way(*communicator, comm, Ahead::kInChannels);
  return true;
}

}  // namespace

bool direct_Allreduce(Waits&& ending, const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op,
                      MPI_Comm comm, int& error) {
  if (Communicator* staged = staged_on(comm)) {
    return reduce_in_stages(*staged, sendbuf, recvbuf, count, datatype, op, comm, error);
  }
  Communicator* communicator = nullptr;
  uint64_t element_bytes = 0;
  if (!is_reduced_directly(sendbuf, recvbuf, count, datatype, op, comm, communicator, element_bytes)) {
    return false;
  }
  communicator->unseen_allreduces.calls += 1;
  const Reduction reduction = {communicator, static_cast<const char*>(sendbuf == MPI_IN_PLACE ? recvbuf : sendbuf),
                               static_cast<char*>(recvbuf), static_cast<uint64_t>(count), Folding(op, datatype, element_bytes)};
  const SeveralWaits waits(reduction.bytes() <= kShortContent);
  expect_result(reduction);
  Exchange& exchange = ending.begin(*communicator, 0, 0);
  const int size = communicator->size;
  const int rank = communicator->rank;
  const direct::Content own = {const_cast<char*>(reduction.own), reduction.bytes(), nullptr};
  if (reduction.bytes() > kWholeBytes) {
    const auto at = [&](const Segment& chunk) { return reduction.result + chunk.begin * element_bytes; };
    const auto share = [&](uint64_t number, uint64_t most, const Segment& mine) {
      for (int step = 1; step < size && mine.count > 0; ++step) {
        exchange.send((rank + step) % size, {at(mine), mine.count * element_bytes, nullptr});
      }
      for (int step = 1; step < size; ++step) {
        const int peer = (rank - step + size) % size;
        const Segment theirs = segment_of(peer, size, reduction.count, nullptr).chunk(number, most);
        if (theirs.count > 0) {
          exchange.receive(peer, {at(theirs), theirs.count * element_bytes, nullptr});
        }
      }
    };
    fold_segments(exchange, reduction, nullptr, at, share);
  } else if (size > 2 && reduction.bytes() <= direct::kTalliedBytes && has_tally(exchange, *communicator)) {
    fold_at_tally(*communicator, reduction);
  } else if (size <= kAllFold) {
    for (int step = 1; step < size; ++step) {
      exchange.send((rank + step) % size, own);
    }
    fold_whole(exchange, reduction);
  } else {
    if (rank == 0) {
      fold_whole(exchange, reduction);
    } else {
      exchange.send(0, own);
      exchange.wait_for_sends();  // it may lie where the result goes
    }
    broadcast(ending, exchange, *communicator, {reduction.result, reduction.bytes(), nullptr}, 0);
  }
  exchange.note(reduction.folding.error);
  error = ending.end(comm);
  return true;
}

bool direct_Reduce(Waits&& ending, const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op,
                   int root, MPI_Comm comm, int& error) {
  Communicator* communicator = nullptr;
  uint64_t element_bytes = 0;
  if (!is_reduced_directly(sendbuf, recvbuf, count, datatype, op, comm, communicator, element_bytes) || root < 0 ||
      root >= communicator->size) {
    return false;
  }
  communicator->unseen_trees.calls += 1;
  const bool is_root = communicator->rank == root;
  const Reduction reduction = {communicator, static_cast<const char*>(sendbuf == MPI_IN_PLACE ? recvbuf : sendbuf),
                               static_cast<char*>(recvbuf), static_cast<uint64_t>(count), Folding(op, datatype, element_bytes)};
  const SeveralWaits waits(reduction.bytes() <= kShortContent);
  if (is_root) {
    expect_result(reduction);
  }
  Exchange& exchange = ending.begin(*communicator, 0, 0);
  if (reduction.bytes() > kWholeBytes && communicator->size <= kAllFold) {
    fold_at_root(exchange, reduction, root);
  } else if (reduction.bytes() > kWholeBytes) {
    Scratch folded(is_root ? 0 : kReducedChunk);
    const auto place = [&](const Segment& chunk) {
      return is_root ? reduction.result + chunk.begin * element_bytes : folded.at(0);
    };
    const auto share = [&](uint64_t number, uint64_t most, const Segment& mine) {
      if (!is_root && mine.count > 0) {
        exchange.send(root, {folded.at(0), mine.count * element_bytes, nullptr});
      }
      for (int step = 1; is_root && step < communicator->size; ++step) {
        const int peer = (root + step) % communicator->size;
        const Segment theirs = segment_of(peer, communicator->size, reduction.count, nullptr).chunk(number, most);
        if (theirs.count > 0) {
          exchange.receive(peer, {place(theirs), theirs.count * element_bytes, nullptr});
        }
      }
    };
    fold_segments(exchange, reduction, nullptr, place, share);
  } else if (is_root) {
    fold_whole(exchange, reduction);
  } else {
    exchange.send(root, {const_cast<char*>(reduction.own), reduction.bytes(), nullptr}, direct::SendKind::kRooted);
  }
  exchange.note(reduction.folding.error);
  error = ending.end_one_way(*communicator, comm, Ahead::kInQueues);
  return true;
}

int64_t scattered_count(Numbers counts, MPI_Count each, int size) {
  if (!counts.are_given()) {
    return static_cast<int64_t>(each) * size;
  }
  int64_t sum = 0;
  for (int peer = 0; peer < size; ++peer) {
    if (counts[peer] < 0) {
      return -1;
    }
    sum += counts[peer];
  }
  return sum;
}

bool direct_Reduce_scatter(Waits&& ending, const void* sendbuf, void* recvbuf, Numbers recvcounts, MPI_Datatype datatype,
                           MPI_Op op, MPI_Comm comm, int& error) {
  return reduce_and_scatter(ending, sendbuf, recvbuf, recvcounts, 0, datatype, op, comm, error);
}

bool direct_Reduce_scatter_block(Waits&& ending, const void* sendbuf, void* recvbuf, MPI_Count recvcount, MPI_Datatype datatype,
                                 MPI_Op op, MPI_Comm comm, int& error) {
  return reduce_and_scatter(ending, sendbuf, recvbuf, nullptr, recvcount, datatype, op, comm, error);
}

bool direct_Scan(Waits&& ending, const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op,
                 MPI_Comm comm, int& error) {
  return scan_directly(ending, sendbuf, recvbuf, count, datatype, op, comm, true, error);
}

bool direct_Exscan(Waits&& ending, const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op,
                   MPI_Comm comm, int& error) {
  return scan_directly(ending, sendbuf, recvbuf, count, datatype, op, comm, false, error);
}

}  // namespace headroom::mpi
