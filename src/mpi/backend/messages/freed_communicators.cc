// See freed_communicators.h.
#include "mpi/backend/messages/freed_communicators.h"

#include <cstdint>
#include <cstdlib>

#include "base/system_calls.h"
#include "mpi/backend/guards.h"
#include "mpi/backend/memory.h"
#include "mpi/backend/messages/direct_requests.h"
#include "mpi/backend/messages/matched_messages.h"
#include "mpi/backend/messages/request_contents.h"
#include "mpi/backend/objects/communicators.h"
#include "mpi/backend/state.h"

namespace headroom::mpi {
namespace {

struct StandIn {
  MPI_Errhandler handler;
  MPI_Comm comm;
  StandIn* next;
};

StandIn* stand_ins = nullptr;  // one for each error handler
uint32_t stand_in_count = 0;
uint32_t stand_ins_before_look = 8;  // so many are made before it is looked which of them nobody uses

constexpr uint32_t kMostStandIns = 1 << 9;  // MPICH has 2048 communicators

struct KeptCommunicator {
  MPI_Comm comm;
  KeptCommunicator* next;
};

KeptCommunicator* kept_communicators = nullptr;
base::FutexLock freed_lock;  // for both; taken before request_lock and token_lock

void give_handler_back(MPI_Errhandler handler) {
  if (handler != MPI_ERRORS_ARE_FATAL && handler != MPI_ERRORS_RETURN) {
    real.Errhandler_free[1](&handler);
  }
}

bool is_any_raised_on(const StandIn& stand_in) {
  {
    // All are looked through: they are counted at the communicators for which they were made.
    const LockAmongThreads lock(request_lock);
    for (const DirectRequest* request = last_made_request; request != nullptr; request = request->made_before) {
      if ((request->active || request->persistent) && raises_on(*request) == stand_in.comm) {
        return true;
      }
    }
  }
  return is_any_message_taken_out_on(stand_in.comm);
}

void free_stand_in(StandIn* stand_in) {
  --stand_in_count;
  real.Comm_free[1](&stand_in->comm);
  give_handler_back(stand_in->handler);
  free(stand_in);
}

/// With freed_lock. Not where a stand-in may be in use by a call of another thread, or by one that has called the handler that
/// frees a communicator now.
void free_unused_stand_ins() {
  if (raising_errors != 0 || (several_threads && calling_threads->are_several())) {
    return;
  }
  for (StandIn** link = &stand_ins; *link != nullptr;) {
    StandIn* const stand_in = *link;
    if (is_any_raised_on(*stand_in)) {
      link = &stand_in->next;
    } else {
      *link = stand_in->next;
      free_stand_in(stand_in);
    }
  }
  stand_ins_before_look = 2 * stand_in_count + 8;
}

/// A stand-in for `freed`; with freed_lock, as long as nothing is raised on it. Without any, errors are raised as MPI wants
/// those that belong to no communicator.
MPI_Comm stand_in_for(MPI_Comm freed) {
  MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
  if (real.Comm_get_errhandler[1](freed, &handler) != MPI_SUCCESS) {
    return MPI_COMM_SELF;
  }
  for (const StandIn* known = stand_ins; known != nullptr; known = known->next) {
    if (known->handler == handler) {
      give_handler_back(handler);  // asking for it counts; the stand-in has it, too, so that its handle is not used again
      return known->comm;
    }
  }
  if (stand_in_count >= stand_ins_before_look) {
    free_unused_stand_ins();
  }
  MPI_Comm comm = MPI_COMM_NULL;
  if (stand_in_count >= kMostStandIns || real.Comm_dup[1](private_self, &comm) != MPI_SUCCESS) {
    give_handler_back(handler);
    return MPI_COMM_SELF;
  }
  real.Comm_set_errhandler[1](comm, handler);
  auto* made = static_cast<StandIn*>(memory_or_abort(sizeof(StandIn)));
  *made = {handler, comm, stand_ins};
  stand_ins = made;
  ++stand_in_count;
  return comm;
}

bool is_in_use_on(const DirectRequest& request, MPI_Comm comm) {
  return (request.active || request.persistent) && request.stand_in == MPI_COMM_NULL && request.comm == comm;
}

bool needs_itself(const DirectRequest& request, MPI_Comm comm) {
  return request.comm == comm && ((request.active && request.link_on_both_ways != nullptr) ||
                                  (request.persistent && request.library != MPI_REQUEST_NULL));
}

/// The first of `request` and those made before that `fits`, on `comm`, or nullptr. There are as many to look through as were
/// ever in use at once, so nobody does where none is on `comm`. With request_lock.
template <typename Fits>
DirectRequest* find_request(DirectRequest* request, MPI_Comm comm, Fits fits) {
  if (requests_on[number_of(comm) % kCacheEntries] == 0) {
    return nullptr;
  }
  while (request != nullptr && !fits(*request, comm)) {
    request = request->made_before;
  }
  return request;
}

template <typename Fits>
bool is_any_request(MPI_Comm comm, Fits fits) {
  const LockAmongThreads lock(request_lock);
  return find_request(last_made_request, comm, fits) != nullptr;
}

/// Takes one out of the list that nobody needs any more, or `all`: any.
KeptCommunicator* take_kept(bool all) {
  const base::LockHolder lock(freed_lock);
  for (KeptCommunicator** link = &kept_communicators; *link != nullptr; link = &(*link)->next) {
    KeptCommunicator* const kept = *link;
    if (all || !is_any_request(kept->comm, needs_itself)) {
      *link = kept->next;
      return kept;
    }
  }
  return nullptr;
}

}  // namespace

void give_stand_ins(MPI_Comm comm) {
  if (!is_any_request(comm, is_in_use_on) && !is_any_message_taken_out_on(comm)) {
    return;
  }
  const base::LockHolder lock(freed_lock);  // another thread may give back what nothing is raised on yet
  const MPI_Comm stand_in = stand_in_for(comm);
  raise_errors_of_messages_on(comm, stand_in);
  const LockAmongThreads requests(request_lock);
  DirectRequest* request = find_request(last_made_request, comm, is_in_use_on);
  while (request != nullptr) {
    request->stand_in = stand_in;
    request = find_request(request->made_before, comm, is_in_use_on);
  }
}

bool keep_for_requests(MPI_Comm comm) {
  if (!is_any_request(comm, needs_itself)) {
    return false;
  }
  auto* kept = static_cast<KeptCommunicator*>(memory_or_abort(sizeof(KeptCommunicator)));
  const base::LockHolder lock(freed_lock);
  *kept = {comm, kept_communicators};
  kept_communicators = kept;
  return true;
}

void free_kept_communicators(bool all) {
  while (KeptCommunicator* kept = __builtin_expect(kept_communicators != nullptr, 0) ? take_kept(all) : nullptr) {
    const InsideLibrary inside;
    real.Comm_free[1](&kept->comm);
    free(kept);
  }
}

void end_stand_ins() {
  while (StandIn* stand_in = stand_ins) {
    stand_ins = stand_in->next;
    free_stand_in(stand_in);
  }
}

}  // namespace headroom::mpi
