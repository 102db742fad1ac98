// How the job ends when a call that Headroom makes for itself fails.
//
// The other ranks would wait for ever for what this one cannot do, and the MPI library's own words name a function that the
// program has never called. So communicators of Headroom's own return their errors, and the functions here say what failed.
#pragma once

#include "mpi/backend/abi.h"

namespace headroom::mpi {

/// Says what has failed, in the library's words for `error`, and ends the job. `what` begins the sentence.
[[noreturn]] void end_job(const char* what, int error);

inline void end_job_at(int error, const char* what) {
  if (__builtin_expect(error != MPI_SUCCESS, 0)) {
    end_job(what, error);
  }
}

}  // namespace headroom::mpi
