// The messages and buffers of one collective call: see collectives.h.
//
// An Exchange begins messages in the communicator's context for collectives and is over when they are; its places are kept with
// the communicator, or with a nonblocking call. Operands are the call's buffers as contents. Waits is the Ending of blocking
// calls.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "direct/endpoint.h"
#include "mpi/backend/abi.h"
#include "mpi/backend/memory.h"
#include "mpi/backend/messages/direct_requests.h"
#include "mpi/backend/messages/ending.h"
#include "mpi/backend/messages/request_contents.h"
#include "mpi/backend/messages/waiting.h"
#include "mpi/backend/objects/communicators.h"
#include "mpi/backend/state.h"

namespace headroom::mpi {

struct Datatype;

/// Where the messages of one collective are kept while they are under way.
struct CollectivePlaces {
  int most_sends;
  direct::Sending** sendings;
  direct::Receiving* receivings;
};

/// Room for so many sends and receives, in one allocation.
CollectivePlaces* make_places(int sends, int receives);

static_assert(alignof(direct::Receiving) <= sizeof(void*));

/// A blocking call's: two sends and a receive for each rank.
CollectivePlaces& places_of(Communicator& communicator);

/// The messages of one collective call.
class Exchange {
 public:
  Exchange& begin(Communicator& communicator, CollectivePlaces& places) {
    communicator_ = &communicator;
    places_ = &places;
    context_ = mix(communicator.context, 0xc011);
    tag_ = static_cast<int32_t>(communicator.collectives++ & 0x3fffffff);
    sends_ = 0;
    receives_ = 0;
    error_ = MPI_SUCCESS;
    core->count_direct_collective(!several_threads);
    return *this;
  }

  void send(int peer, const direct::Content& content, direct::SendKind kind = direct::SendKind::kCollective) {
    if (sends_ == places_->most_sends) {
      wait_for_sends();
    }
    direct::Sending* sending = nullptr;
    const direct::SendOutcome outcome =
        core->endpoint.send(communicator_->members[peer], {context_, communicator_->rank, tag_}, content, kind, 0, sending);
    if (outcome == direct::SendOutcome::kPending) {
      places_->sendings[sends_++] = sending;
    }
    error_ = outcome == direct::SendOutcome::kNoMemory ? MPI_ERR_NO_MEM : error_;
  }

  /// At most one for each rank before wait(). Its content may be there only after that.
  void receive(int peer, const direct::Content& into) {
    direct::NextMessage got;
    const direct::Envelope wanted = {context_, peer, tag_};
    if (core->endpoint.receive_next(communicator_->members[peer], wanted, into, got)) {
      return;
    }
    post(peer, into);
  }

  /// The same without a look at what comes next: the call does not wait.
  void post(int peer, const direct::Content& into) {
    const direct::Envelope wanted = {context_, peer, tag_};
    direct::Receiving& receiving = places_->receivings[receives_++];
    receiving.complete.store(false, std::memory_order_relaxed);
    receiving.cancelled = false;
    receiving.record = nullptr;
    receiving.envelope = wanted;
    receiving.member = communicator_->members[peer];
    receiving.into = into;
    core->endpoint.receive(receiving);
  }

  /// Waits for the receives that were begun.
  void wait_for_receives() {
    wait_direct([this] {
      if (!pass_over_received()) {
        make_progress();
        help_receivers();
        return false;
      }
      return true;
    });
  }

  /// Waits until others have what was sent: then it may be written.
  void wait_for_sends() {
    wait_direct([this] {
      help_receivers();
      if (sends_ > 0) {
        make_progress();
        direct::relax();
      }
      return sends_ == 0;
    });
  }

  void wait() {
    wait_for_receives();
    wait_for_sends();
  }

  /// Whether all that was begun is over.
  [[nodiscard]] bool is_over() {
    help_receivers();
    return pass_over_received() && sends_ == 0;
  }

  /// Copies aside the content of sends through rings, whose receivers may be elsewhere for long.
  void set_streams_aside() {
    for (int index = 0; index < sends_; ++index) {
      if (places_->sendings[index]->streams) {
        core->endpoint.copy_aside(places_->sendings[index], false);
      }
    }
  }

  void note(int error) { error_ = error != MPI_SUCCESS ? error : error_; }
  [[nodiscard]] int error() const { return error_; }

 private:
  bool pass_over_received() {
    for (; receives_ > 0; --receives_) {
      const direct::Receiving& receiving = places_->receivings[receives_ - 1];
      if (!receiving.complete.load(std::memory_order_acquire)) {
        return false;
      }
      error_ = receiving.truncated ? MPI_ERR_TRUNCATE : error_;
    }
    return true;
  }

  /// Ends the sends that are over. A look at a send copies with its receiver.
  void help_receivers() {
    for (int index = 0; index < sends_;) {
      if (core->endpoint.try_to_finish(places_->sendings[index])) {
        places_->sendings[index] = places_->sendings[--sends_];
      } else {
        ++index;
      }
    }
  }

  Communicator* communicator_ = nullptr;
  CollectivePlaces* places_ = nullptr;
  uint64_t context_ = 0;
  int32_t tag_ = 0;
  int sends_ = 0;
  int receives_ = 0;
  int error_ = MPI_SUCCESS;
};

/// The buffers of one call as contents. A buffer that the library has to pack is packed when it is named, and unpacked at the
/// end.
class Operands {
 public:
  Operands() = default;
  ~Operands() { drop(); }
  Operands(const Operands&) = delete;
  Operands& operator=(const Operands&) = delete;

  /// Gives back what they were packed into; then they are as new.
  void drop() {
    while (packed_ != nullptr) {
      DirectRequest* next = packed_->next;
      drop_bounce(*packed_);
      packed_->~DirectRequest();
      free(packed_);
      packed_ = next;
    }
    error_ = MPI_SUCCESS;
  }

  direct::Content sent(const void* address, MPI_Count count, MPI_Datatype datatype, const Datatype& known) {
    const uint64_t bytes = static_cast<uint64_t>(count) * known.bytes;
    if (known.usable) {
      return {static_cast<char*>(const_cast<void*>(address)), bytes, known.layout};
    }
    DirectRequest* request = take();
    if (!pack_by_library(*request, address, count, datatype, bytes)) {
      error_ = MPI_ERR_TYPE;
      return {nullptr, 0, nullptr};
    }
    return {request->bounce, bytes, nullptr};
  }

  direct::Content received(void* address, MPI_Count count, MPI_Datatype datatype, const Datatype& known) {
    const uint64_t bytes = static_cast<uint64_t>(count) * known.bytes;
    if (known.usable) {
      return {static_cast<char*>(address), bytes, known.layout};
    }
    DirectRequest* request = take();
    request->kind = RequestKind::kReceive;
    request->arguments = {address, count, datatype, 0, 0, MPI_COMM_NULL, SendMode::kStandard};
    if (!make_bounce_to_unpack(*request, bytes, datatype)) {
      error_ = MPI_ERR_NO_MEM;
      return {nullptr, 0, nullptr};
    }
    request->receiving.bytes = bytes;
    request->receiving.into.bytes = bytes;
    return {request->bounce, bytes, nullptr};
  }

  /// At the end of the call: unpacks, and says what its error is, not raised.
  int conclude(const Exchange& exchange) {
    for (DirectRequest* request = packed_; request != nullptr; request = request->next) {
      if (request->kind == RequestKind::kReceive) {
        const int error = unpack_by_library(*request);
        error_ = error_ != MPI_SUCCESS ? error_ : error;
      }
    }
    return exchange.error() != MPI_SUCCESS ? exchange.error() : error_;
  }

 private:
  DirectRequest* take() {
    auto* request = new (memory_or_abort(sizeof(DirectRequest))) DirectRequest;
    request->next = packed_;
    packed_ = request;
    return request;
  }

  DirectRequest* packed_ = nullptr;
  int error_ = MPI_SUCCESS;
};

/// Where messages of ranks that only send lie until they are received.
enum class Ahead {
  kInQueues,   // one rank receives from several
  kInChannels  // each receives from one
};

/// A collective call that waits for its messages.
class Waits {
 public:
  static constexpr bool kMayWait = true;

  /// The call is made here. `sends` and `receives`: how many messages it has, at most, where it is no more than one each way
  /// for each rank.
  Exchange& begin(Communicator& communicator, int, int) { return exchange_.begin(communicator, places_of(communicator)); }
  [[nodiscard]] Operands& operands() { return operands_; }
  void receive(int peer, const direct::Content& into) { exchange_.receive(peer, into); }
  /// Raises the call's error, if any.
  int end(MPI_Comm comm) {
    exchange_.wait();
    share_success();
    const int error = operands_.conclude(exchange_);
    return error != MPI_SUCCESS ? raise_error(comm, error) : error;
  }
  /// The same of a collective in which some ranks only send.
  int end_one_way(Communicator& communicator, MPI_Comm comm, Ahead ahead);

 private:
  Operands operands_;
  Exchange exchange_;
};

}  // namespace headroom::mpi
