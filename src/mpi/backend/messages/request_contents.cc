// See request_contents.h.
#include "mpi/backend/messages/request_contents.h"

#include <algorithm>
#include <cstdint>

#include "base/system_calls.h"
#include "mpi/backend/guards.h"
#include "mpi/backend/messages/direct_requests.h"
#include "mpi/backend/objects/communicators.h"
#include "mpi/services.h"

namespace headroom::mpi {

void set_status(MPI_Status* status, int source, int tag, uint64_t bytes, bool cancelled) {
  if (status == MPI_STATUS_IGNORE) {
    return;
  }
  status->MPI_SOURCE = source;
  status->MPI_TAG = tag;
#if defined(OPEN_MPI)
  status->_ucount = bytes;
  status->_cancelled = cancelled ? 1 : 0;
#elif defined(MPICH_VERSION)
  status->count_lo = static_cast<int>(bytes & 0xffffffff);
  status->count_hi_and_cancelled = static_cast<int>((bytes >> 32) << 1) | (cancelled ? 1 : 0);
#else
  real.Status_set_elements_x[1](status, MPI_BYTE, static_cast<MPI_Count>(bytes));
  real.Status_set_cancelled[1](status, cancelled ? 1 : 0);
#endif
}

void set_status_of_library(MPI_Status* status, const MPI_Status& from) {
  if (status != MPI_STATUS_IGNORE) {
    const int error = status->MPI_ERROR;  // that of a call about several requests, if any
    *status = from;
    status->MPI_ERROR = error;
  }
}

void set_empty_status(MPI_Status* status) {
  set_status(status, MPI_ANY_SOURCE, MPI_ANY_TAG, 0, false);
  if (status != MPI_STATUS_IGNORE) {
    status->MPI_ERROR = MPI_SUCCESS;
  }
}

constinit thread_local bool raised_by_library = false;

constinit thread_local int raising_errors = 0;

int raise_error(MPI_Comm comm, int error) {
  if (raised_by_library) {
    raised_by_library = false;
    return error;
  }
  const InsideLibrary inside;
  ++raising_errors;
  real.Comm_call_errhandler[1](comm, error);
  --raising_errors;
  return error;
}

char* make_bounce(DirectRequest& request, uint64_t bytes) {
  request.bounce_bytes = bytes + 1;
  request.bounce = static_cast<char*>(base::reserve_memory(request.bounce_bytes));
  return request.bounce;
}

[[gnu::noinline]] void drop_bounce_there_is(DirectRequest& request) {
  if (request.bounce != nullptr) {
    (void)base::system_call(SYS_munmap, request.bounce, request.bounce_bytes);
    request.bounce = nullptr;
  }
  if (request.unpacked_as != MPI_DATATYPE_NULL) {
    const InsideLibrary inside;
    real.Type_free[1](&request.unpacked_as);
  }
}

bool make_bounce_to_unpack(DirectRequest& request, uint64_t bytes, MPI_Datatype datatype) {
  const InsideLibrary inside;
  return make_bounce(request, bytes) != nullptr && real.Type_contiguous[1](1, datatype, &request.unpacked_as) == MPI_SUCCESS &&
         real.Type_commit[1](&request.unpacked_as) == MPI_SUCCESS;
}

bool pack_by_library(DirectRequest& request, const void* buffer, MPI_Count count, MPI_Datatype datatype, uint64_t bytes) {
  const InsideLibrary inside;
  int position = 0;
  return make_bounce(request, bytes) != nullptr && bytes <= INT32_MAX && count <= INT32_MAX &&
         real.Pack[1](buffer, static_cast<int>(count), datatype, request.bounce, static_cast<int>(bytes), &position,
                      MPI_COMM_SELF) == MPI_SUCCESS;
}

int unpack_by_library(DirectRequest& request) {
  static base::FutexLock lock;  // or threads would get each other's
  const InsideLibrary inside;
  const base::LockHolder holder(lock);
  MPI_Count size = 0;
  real.Type_size_x[1](request.unpacked_as, &size);
  const uint64_t stored = std::min(request.receiving.bytes, request.receiving.into.bytes);
  if (size <= 0 || stored == 0) {
    return MPI_SUCCESS;
  }
  constexpr int kUnpackTag = 1;  // 0 is matched_messages.cc's
  const uint64_t count = (stored + static_cast<uint64_t>(size) - 1) / static_cast<uint64_t>(size);
  if (stored <= INT32_MAX) {
    return real.Sendrecv[1](request.bounce, static_cast<int>(stored), MPI_PACKED, 0, kUnpackTag, request.arguments.buffer,
                            static_cast<int>(count), request.unpacked_as, 0, kUnpackTag, private_self, MPI_STATUS_IGNORE);
  }
  return real.Sendrecv_c[1] == nullptr
             ? MPI_ERR_COUNT
             : real.Sendrecv_c[1](request.bounce, static_cast<MPI_Count>(stored), MPI_PACKED, 0, kUnpackTag,
                                  request.arguments.buffer, static_cast<MPI_Count>(count), request.unpacked_as, 0, kUnpackTag,
                                  private_self, MPI_STATUS_IGNORE);
}

}  // namespace headroom::mpi
