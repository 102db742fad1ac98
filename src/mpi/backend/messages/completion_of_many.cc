// See completion_of_many.h.
#include "mpi/backend/messages/completion_of_many.h"

#include <cstdint>

#include "mpi/backend/guards.h"
#include "mpi/backend/messages/completion.h"
#include "mpi/backend/messages/direct_requests.h"
#include "mpi/backend/messages/ending.h"
#include "mpi/backend/messages/polling.h"
#include "mpi/backend/messages/request_contents.h"
#include "mpi/backend/messages/waiting.h"
#include "mpi/backend/objects/communicators.h"
#include "mpi/backend/state.h"
#include "mpi/services.h"

namespace headroom::mpi {
namespace {

/// The error of a call about several requests: each has its own in its status. `comm`: that of the first that failed;
/// MPI_COMM_NULL if it was the library's, which has called the handler.
int in_status(MPI_Comm comm) { return comm != MPI_COMM_NULL ? raise_error(comm, MPI_ERR_IN_STATUS) : MPI_ERR_IN_STATUS; }

/// The errors of a call about several requests, which leaves that field of their statuses alone unless one has failed.
class Errors {
 public:
  explicit Errors(MPI_Status statuses[]) : statuses_(statuses) {}

  /// That of the one whose status is at `index`, after all before it. `comm`: whose handler is to be called.
  void note(int index, int error, MPI_Comm comm) {
    if (error != MPI_SUCCESS && !failed_) {
      failed_ = true;
      comm_ = comm;
      for (int before = 0; before < index; ++before) {
        set(before, MPI_SUCCESS);
      }
    }
    if (failed_) {
      set(index, error);
    }
  }

  /// The error of the whole call, raised.
  [[nodiscard]] int raise() const { return failed_ ? in_status(comm_) : MPI_SUCCESS; }
  [[nodiscard]] bool are_any() const { return failed_; }

 private:
  void set(int index, int error) {
    if (statuses_ != MPI_STATUSES_IGNORE) {
      statuses_[index].MPI_ERROR = error;
    }
  }

  MPI_Status* statuses_;
  bool failed_ = false;
  MPI_Comm comm_ = MPI_COMM_NULL;  // of the first that failed
};

/// Hastens every send among the requests.
void hasten_all(int count, const MPI_Request requests[], uint64_t rounds) {
  for (int index = 0; index < count; ++index) {
    DirectRequest* ours = direct_request_of(requests[index]);
    if (ours != nullptr && ours->active) {
      hasten(ours, rounds);
    }
  }
}

/// Waits for all, or (`once`) looks whether all are complete; `*all` says.
int complete_all(int count, MPI_Request requests[], MPI_Status statuses[], bool once, int* all) {
  // All are ended or none (MPI_Testall), so a test looks first without ending any.
  if (once) {
    make_progress();
    for (int index = 0; index < count; ++index) {
      DirectRequest* ours = direct_request_of(requests[index]);
      int done = 1;
      if (ours != nullptr) {
        done = !ours->active || try_to_complete(*ours) ? 1 : 0;
      } else if (requests[index] != MPI_REQUEST_NULL) {
        const InsideLibrary inside;
        real.Request_get_status[1](requests[index], &done, MPI_STATUS_IGNORE);
      }
      if (done == 0) {
        *all = 0;
        static thread_local uint64_t tests = 0;
        hasten_all(count, requests, ++tests);
        return MPI_SUCCESS;
      }
    }
  }
  *all = 1;
  Errors errors(statuses);
  int first = 0;  // everything before it is over
  uint64_t rounds = 0;
  wait_direct([&] {
    make_progress();
    while (first < count) {
      MPI_Status* status = status_at(statuses, first);
      MPI_Comm comm = MPI_COMM_NULL;
      int error = MPI_SUCCESS;
      const Look look = look_at(&requests[first], status, error, comm, once);
      if (look == Look::kPending) {
        if (++rounds % 16 == 0 || (several_threads && calling_threads->are_several())) {
          hasten_all(count - first, requests + first, rounds);
        }
        return false;
      }
      if (look == Look::kNothing) {
        set_empty_status(status);
      }
      errors.note(first++, error, comm);
    }
    return true;
  });
  return errors.raise();
}

/// Looks once at each; true if one was ended, or none is active. The library's own are asked as an array, so that inactive
/// ones of its own count as it counts them.
bool complete_any(int count, MPI_Request requests[], int* index, MPI_Status* status, int& error, MPI_Comm& comm) {
  bool any_active = false;
  error = MPI_SUCCESS;
  for (int at = 0; at < count; ++at) {
    DirectRequest* ours = direct_request_of(requests[at]);
    if (!is_active_request(requests[at])) {
      continue;
    }
    if (ours == nullptr) {
      const InsideLibrary inside;
      int done = 0;
      int which = MPI_UNDEFINED;
      comm = MPI_COMM_NULL;
      error = real.Testany[1](1, &requests[at], &which, &done, status);
      if (done != 0 && which == MPI_UNDEFINED) {
        continue;  // persistent and inactive
      }
      any_active = true;
      if (done != 0 || error != MPI_SUCCESS) {
        *index = at;
        return true;
      }
      waits_for_library = true;
      continue;
    }
    any_active = true;
    if (try_to_complete(*ours)) {
      error = end_request(*ours, &requests[at], status, comm);
      *index = at;
      return true;
    }
  }
  if (!any_active) {
    *index = MPI_UNDEFINED;
    set_empty_status(status);
  }
  return !any_active;
}

/// Ends all that are complete now; `*done_count` is MPI_UNDEFINED if none is active.
Errors complete_some(int count, MPI_Request requests[], int* done_count, int indices[], MPI_Status statuses[]) {
  Errors errors(statuses);
  bool any_active = false;
  int done = 0;
  for (int at = 0; at < count; ++at) {
    if (!is_active_request(requests[at])) {
      continue;
    }
    MPI_Status* status = status_at(statuses, done);
    int error = MPI_SUCCESS;
    MPI_Comm of_this = MPI_COMM_NULL;
    if (DirectRequest* ours = direct_request_of(requests[at])) {
      any_active = true;
      if (!try_to_complete(*ours)) {
        continue;
      }
      error = end_request(*ours, &requests[at], status, of_this);
    } else {
      const InsideLibrary inside;
      int tested = 0;
      int which = MPI_UNDEFINED;
      error = real.Testany[1](1, &requests[at], &which, &tested, status);
      if (tested != 0 && which == MPI_UNDEFINED) {
        continue;
      }
      any_active = true;
      if (tested == 0 && error == MPI_SUCCESS) {
        waits_for_library = true;
        continue;
      }
    }
    errors.note(done, error, of_this);
    indices[done++] = at;
  }
  *done_count = any_active ? done : MPI_UNDEFINED;
  return errors;
}

}  // namespace

bool is_active_request(MPI_Request handle) {
  if (handle == MPI_REQUEST_NULL) {
    return false;
  }
  DirectRequest* ours = direct_request_of(handle);
  return ours == nullptr || ours->active;
}

int serve_Waitall(int count, MPI_Request requests[], MPI_Status statuses[], Entry entry) {
  if (has_direct(count, requests)) {
    int all = 0;
    return complete_all(count, requests, statuses, false, &all);
  }
  if (!polls()) {
    const WaitInLibrary waiting;
    return real.Waitall[entry](count, requests, statuses);
  }
  const InsideLibrary inside;
  return poll_until_done([&](int* done) { return real.Testall[1](count, requests, done, statuses); });
}

int serve_Testall(int count, MPI_Request requests[], int* flag, MPI_Status statuses[], Entry entry) {
  if (has_direct(count, requests)) {
    const int error = complete_all(count, requests, statuses, true, flag);
    return error != MPI_SUCCESS ? error : after_direct_poll(*flag != 0);
  }
  return poll_library(entry, [&](int profiled, int& error) {
    error = real.Testall[profiled](count, requests, flag, statuses);
    return look_by(*flag);
  });
}

int serve_Waitany(int count, MPI_Request requests[], int* index, MPI_Status* status, Entry entry) {
  if (has_direct(count, requests)) {
    int error = MPI_SUCCESS;
    MPI_Comm comm = MPI_COMM_NULL;
    uint64_t rounds = 0;
    wait_direct([&] {
      make_progress();
      if (++rounds % 16 == 0) {
        hasten_all(count, requests, rounds);
      }
      return complete_any(count, requests, index, status, error, comm);
    });
    return finish_one(error, comm);
  }
  if (!polls()) {
    const WaitInLibrary waiting;
    return real.Waitany[entry](count, requests, index, status);
  }
  const InsideLibrary inside;
  return poll_until_done([&](int* done) { return real.Testany[1](count, requests, index, done, status); });
}

int serve_Testany(int count, MPI_Request requests[], int* index, int* flag, MPI_Status* status, Entry entry) {
  if (has_direct(count, requests)) {
    int error = MPI_SUCCESS;
    MPI_Comm comm = MPI_COMM_NULL;
    make_progress();
    *flag = complete_any(count, requests, index, status, error, comm) ? 1 : 0;
    if (*flag == 0) {
      *index = MPI_UNDEFINED;
      static thread_local uint64_t tests = 0;
      hasten_all(count, requests, ++tests);
    }
    const int result = finish_one(error, comm);
    return result != MPI_SUCCESS || is_none_active(*flag, *index) ? result : after_direct_poll(*flag != 0);
  }
  return poll_library(entry, [&](int profiled, int& error) {
    error = real.Testany[profiled](count, requests, index, flag, status);
    return is_none_active(*flag, *index) ? Look::kNothing : look_by(*flag);
  });
}

int serve_Waitsome(int count, MPI_Request requests[], int* done_count, int indices[], MPI_Status statuses[], Entry entry) {
  if (has_direct(count, requests)) {
    Errors errors(statuses);
    uint64_t rounds = 0;
    wait_direct([&] {
      make_progress();
      if (++rounds % 16 == 0) {
        hasten_all(count, requests, rounds);
      }
      errors = complete_some(count, requests, done_count, indices, statuses);
      return *done_count != 0;
    });
    return errors.raise();
  }
  if (!polls()) {
    const WaitInLibrary waiting;
    return real.Waitsome[entry](count, requests, done_count, indices, statuses);
  }
  const InsideLibrary inside;
  return poll_until_done([&](int* done) {
    const int error = real.Testsome[1](count, requests, done_count, indices, statuses);
    *done = *done_count != 0 ? 1 : 0;  // also MPI_UNDEFINED: nothing is active
    return error;
  });
}

int serve_Testsome(int count, MPI_Request requests[], int* done_count, int indices[], MPI_Status statuses[], Entry entry) {
  if (has_direct(count, requests)) {
    make_progress();
    const Errors errors = complete_some(count, requests, done_count, indices, statuses);
    if (errors.are_any()) {
      return errors.raise();
    }
    static thread_local uint64_t tests = 0;
    hasten_all(count, requests, ++tests);
    return *done_count == MPI_UNDEFINED ? MPI_SUCCESS : after_direct_poll(*done_count != 0);
  }
  return poll_library(entry, [&](int profiled, int& error) {
    error = real.Testsome[profiled](count, requests, done_count, indices, statuses);
    return *done_count == MPI_UNDEFINED ? Look::kNothing : look_by(*done_count);
  });
}

}  // namespace headroom::mpi
