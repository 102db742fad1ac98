// Collective calls that do not wait: see collectives.h.
//
// All messages of such a call are begun at once, from each rank straight to every rank that needs something of it, so no rank
// has to pass anything on while it computes, and the call is over when its messages are. At its end a reduction folds the
// operands that came; so only short operands are reduced here, and only by operations that outlive the call.
#pragma once

#include <atomic>
#include <cstdint>
#include <new>

#include "direct/endpoint.h"
#include "mpi/backend/abi.h"
#include "mpi/backend/collectives/exchange.h"
#include "mpi/backend/collectives/folding.h"
#include "mpi/backend/collectives/numbers.h"
#include "mpi/backend/failing.h"
#include "mpi/backend/memory.h"
#include "mpi/backend/messages/direct_requests.h"

namespace headroom::mpi {

struct Communicator;

/// A nonblocking call that is under way; used again and again with its room for messages.
struct StartedCollective {
  Communicator* communicator = nullptr;  // referred to: the program may free its handle
  CollectivePlaces* places = nullptr;
  int most_receives = 0;
  direct::Layout** layouts = nullptr;  // referred to: of the datatypes of what is received
  int layout_count = 0;
  Exchange exchange;
  Operands operands;
  Reduction* reduction = nullptr;  // that ends here; its operands lie behind it
  bool over = false;               // with this error:
  int error = MPI_SUCCESS;
  StartedCollective* next = nullptr;  // among the free ones
};

/// One with room for so many sends and receives.
StartedCollective* take_collective(int sends, int receives);

constexpr uint64_t kReductionBytes = (sizeof(Reduction) + 63) / 64 * 64;

/// Where a reduction gathers the operand of each rank.
char* gathered_by(Reduction* reduction);

/// Whether the call is over, with its result.
bool advance_collective(StartedCollective& started);

/// Copies streaming content aside: a receiver that is away then takes it from message memory.
void hasten_collective(StartedCollective& started);

/// The end of a call that is over; its error is not raised.
int end_collective(StartedCollective* started);

/// Ending of a call that makes a request of its messages; see Waits.
class Starts {
 public:
  static constexpr bool kMayWait = false;

  explicit Starts(MPI_Request* handle) : handle_(handle) {}

  Exchange& begin(Communicator& communicator, int sends, int receives) {
    request_ = take_request(communicator.handle.load(std::memory_order_relaxed));
    if (request_ == nullptr) {
      end_job("a nonblocking collective call beside a million requests", MPI_ERR_NO_MEM);
    }
    started_ = take_collective(sends, receives);
    started_->communicator = &communicator;
    ++communicator.references;
    core->count_started_collective();
    return started_->exchange.begin(communicator, *started_->places);
  }

  [[nodiscard]] Operands& operands() { return started_->operands; }

  void receive(int peer, const direct::Content& into) {
    if (into.layout != nullptr) {
      auto* layout = const_cast<direct::Layout*>(into.layout);
      direct::keep(layout);
      started_->layouts[started_->layout_count++] = layout;
    }
    started_->exchange.post(peer, into);
  }

  /// Memory into which operands are received, one for each rank; they are folded at the end.
  char* gather(const Reduction& reduction) {
    const uint64_t bytes = reduction.bytes() * static_cast<uint64_t>(reduction.communicator->size);
    started_->reduction = new (memory_or_abort(kReductionBytes + bytes)) Reduction(reduction);
    return gathered_by(started_->reduction);
  }

  int end(MPI_Comm comm) {
    request_->kind = RequestKind::kCollective;
    request_->active = true;
    request_->cancelled = false;
    request_->comm = comm;
    request_->collective = started_;
    *handle_ = request_->handle;
    return MPI_SUCCESS;
  }
  int end_one_way(Communicator&, MPI_Comm comm, Ahead) { return end(comm); }

 private:
  MPI_Request* handle_;
  DirectRequest* request_ = nullptr;
  StartedCollective* started_ = nullptr;
};

/// As those of collective_reductions.h, of calls that do not wait.
bool direct_Allreduce(Starts&& ending, const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op,
                      MPI_Comm comm, int& error);

bool direct_Reduce(Starts&& ending, const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op,
                   int root, MPI_Comm comm, int& error);

bool direct_Reduce_scatter(Starts&& ending, const void* sendbuf, void* recvbuf, Numbers recvcounts, MPI_Datatype datatype,
                           MPI_Op op, MPI_Comm comm, int& error);

bool direct_Reduce_scatter_block(Starts&& ending, const void* sendbuf, void* recvbuf, MPI_Count recvcount,
                                 MPI_Datatype datatype, MPI_Op op, MPI_Comm comm, int& error);

bool direct_Scan(Starts&& ending, const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op,
                 MPI_Comm comm, int& error);

bool direct_Exscan(Starts&& ending, const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op,
                   MPI_Comm comm, int& error);

}  // namespace headroom::mpi
