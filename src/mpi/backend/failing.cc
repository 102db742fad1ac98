// See failing.h.
#include "mpi/backend/failing.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "mpi/backend/guards.h"

namespace headroom::mpi {

void end_job(const char* what, int error) {
  const InsideLibrary inside;
  char words[MPI_MAX_ERROR_STRING + 1] = "";
  int length = 0;
  if (real.Error_string[1](error, words, &length) != MPI_SUCCESS) {
    length = snprintf(words, sizeof words, "error %d", error);
  }
  words[length] = '\0';
  int kind = error;
  (void)real.Error_class[1](error, &kind);
  std::replace(words, words + length, '\n', ' ');
  core->before_ending_job(what, words, kind != MPI_ERR_NO_MEM);
  real.Abort[1](MPI_COMM_WORLD, 1);
  _exit(1);
}

}  // namespace headroom::mpi
