/* Calls rpipe_init() before MPI_Init(). */
#include <mpi.h>
#include <stdio.h>

#include "headroom/rpipe.h"

int main(void) {
  int version, subversion;
  MPI_Get_version(&version, &subversion);
  const int error = rpipe_init(NULL, NULL);
  printf("%d: %s\n", error, rpipe_error(error));
  return 0;
}
