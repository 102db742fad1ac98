/* Rank 1 dies while rank 0 waits for its message: writes the error and the reason to a file (launchers
 * drop what is said when a rank has died), and leaves past MPI. usage: pipe_of_the_dead FILE */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "headroom/rpipe.h"

int main(int argc, char** argv) {
  int self;
  rpipe_t pipe;
  raddr_t buffer;
  MPI_Init(&argc, &argv);
  if (rpipe_init(&self, NULL) != 0 || rpipe_open(&pipe, 1 - self, RPIPE_BOTH, NULL) != 0 ||
      rpipe_send(pipe, "x", 1, RPIPE_FOREVER) != 0 || rpipe_read(pipe, &buffer, NULL, RPIPE_FOREVER) != 0) {
    return 1;
  }
  signal(SIGUSR1, SIG_IGN); /* the launcher's, which hears of it, too */
  if (self == 1) {
    raise(SIGKILL);
  }
  const int error = rpipe_read(pipe, &buffer, NULL, RPIPE_FOREVER);
  FILE* const file = argc == 2 ? fopen(argv[1], "w") : NULL;
  if (file != NULL) {
    fprintf(file, "%d: %s\n", error, rpipe_reason(pipe));
    fclose(file);
  }
  _exit(0);
}
