// Calls that look at requests and end none of them.
//
// A program that waits for several may see the same one complete again and again. It must give way all the same, so only a
// completion that was not seen before counts as found. In an array with requests of both kinds, those of the library's never
// do.
#include "direct/endpoint.h"
#include "mpi/backend/abi.h"
#include "mpi/backend/guards.h"
#include "mpi/backend/messages/completion.h"
#include "mpi/backend/messages/completion_of_many.h"
#include "mpi/backend/messages/direct_requests.h"
#include "mpi/backend/messages/ending.h"
#include "mpi/backend/messages/polling.h"
#include "mpi/backend/messages/request_contents.h"
#include "mpi/backend/state.h"
#include "mpi/services.h"

namespace headroom::mpi {
namespace {

/// Whether one of ours is complete, with its status; it is not ended. `news`: it was not seen to be so before.
bool look_without_ending(DirectRequest& request, MPI_Status* status, bool& news) {
  if (!request.active) {
    set_empty_status(status);
    return true;
  }
  make_progress();
  if (!try_to_complete(request)) {
    request.seen = false;
    hasten(&request, ++request.tests);
    return false;
  }
  news = news || !request.seen;
  request.seen = true;
  if (request.from_library || request.kind == RequestKind::kLibrary) {
    set_status_of_library(status, request.library_status);
  } else if (request.kind == RequestKind::kReceive && !request.receiving.cancelled) {
    const direct::Receiving& receiving = request.receiving;
    set_status(status, receiving.source, receiving.tag, receiving.truncated ? receiving.into.bytes : receiving.bytes, false);
  } else {
    set_status(status, MPI_ANY_SOURCE, MPI_ANY_TAG, 0, request.cancelled || request.receiving.cancelled);
  }
  return true;
}

/// Looks at one request of an array. Inactive ones count as nothing; those of the library's are known by the library's answer
/// for an array.
Look look_without_ending_at(MPI_Request handle, MPI_Status* status, int& error, bool& news) {
  error = MPI_SUCCESS;
  if (!is_active_request(handle)) {
    return Look::kNothing;
  }
  if (DirectRequest* ours = direct_request_of(handle)) {
    return look_without_ending(*ours, status, news) ? Look::kDone : Look::kPending;
  }
  const InsideLibrary inside;
  int done = 0;
  int which = MPI_UNDEFINED;
  error = real.Request_get_status_any[1](1, &handle, &which, &done, status);
  if (done == 0) {
    return error == MPI_SUCCESS ? Look::kPending : Look::kDone;
  }
  return which == MPI_UNDEFINED ? Look::kNothing : Look::kDone;
}

/// The last sight of several of the library's requests.
struct Sight {
  int count;
  MPI_Request first;

  Look look(int now, MPI_Request first_now) {
    const bool same = now == count && first_now == first;
    count = now;
    first = first_now;
    return now == 0 ? Look::kPending : same ? Look::kSeen : Look::kDone;
  }
};

}  // namespace

int serve_Request_get_status(MPI_Request request, int* flag, MPI_Status* status, Entry entry) {
  if (DirectRequest* ours = direct_on ? direct_request_of(request) : nullptr) {
    bool news = false;
    *flag = look_without_ending(*ours, status, news) ? 1 : 0;
    return *flag == 0 || news ? after_direct_poll(news) : MPI_SUCCESS;
  }
  return poll_library(entry, [&](int profiled, int& error) {
    error = real.Request_get_status[profiled](request, flag, status);
    return *flag != 0 ? Look::kNothing : Look::kPending;
  });
}

int serve_Request_get_status_all(int count, const MPI_Request requests[], int* flag, MPI_Status statuses[], Entry entry) {
  if (!has_direct(count, requests)) {
    return poll_library(entry, [&](int profiled, int& error) {
      error = real.Request_get_status_all[profiled](count, requests, flag, statuses);
      return look_by(*flag);
    });
  }
  make_progress();
  bool news = false;
  *flag = 1;
  for (int at = 0; at < count && *flag != 0; ++at) {
    int error = MPI_SUCCESS;
    const Look look = look_without_ending_at(requests[at], status_at(statuses, at), error, news);
    if (error != MPI_SUCCESS) {
      return error;
    }
    if (look == Look::kNothing) {
      set_empty_status(status_at(statuses, at));
    }
    *flag = look != Look::kPending ? 1 : 0;
  }
  return after_direct_poll(*flag != 0);
}

int serve_Request_get_status_any(int count, const MPI_Request requests[], int* index, int* flag, MPI_Status* status,
                                 Entry entry) {
  if (!has_direct(count, requests)) {
    static thread_local Sight sight;
    return poll_library(entry, [&](int profiled, int& error) {
      error = real.Request_get_status_any[profiled](count, requests, index, flag, status);
      return is_none_active(*flag, *index) ? Look::kNothing
                                           : sight.look(*flag, *flag != 0 ? requests[*index] : MPI_REQUEST_NULL);
    });
  }
  make_progress();
  bool any_active = false;
  bool news = false;
  *index = MPI_UNDEFINED;
  for (int at = 0; at < count; ++at) {
    int error = MPI_SUCCESS;
    const Look look = look_without_ending_at(requests[at], status, error, news);
    any_active = any_active || look != Look::kNothing;
    if (look == Look::kDone) {
      *flag = 1;
      *index = at;
      return error != MPI_SUCCESS ? error : after_direct_poll(news);
    }
  }
  *flag = any_active ? 0 : 1;
  if (!any_active) {
    set_empty_status(status);
    return MPI_SUCCESS;
  }
  return after_direct_poll(news);
}

int serve_Request_get_status_some(int count, const MPI_Request requests[], int* done_count, int indices[],
                                  MPI_Status statuses[], Entry entry) {
  if (!has_direct(count, requests)) {
    static thread_local Sight sight;
    return poll_library(entry, [&](int profiled, int& error) {
      error = real.Request_get_status_some[profiled](count, requests, done_count, indices, statuses);
      const bool is_none = *done_count == MPI_UNDEFINED;
      return is_none ? Look::kNothing : sight.look(*done_count, *done_count != 0 ? requests[indices[0]] : MPI_REQUEST_NULL);
    });
  }
  make_progress();
  bool any_active = false;
  bool news = false;
  int done = 0;
  for (int at = 0; at < count; ++at) {
    int error = MPI_SUCCESS;
    const Look look = look_without_ending_at(requests[at], status_at(statuses, done), error, news);
    if (error != MPI_SUCCESS) {
      return error;
    }
    any_active = any_active || look != Look::kNothing;
    if (look == Look::kDone) {
      indices[done++] = at;
    }
  }
  *done_count = any_active ? done : MPI_UNDEFINED;
  return any_active ? after_direct_poll(news) : MPI_SUCCESS;
}

}  // namespace headroom::mpi
