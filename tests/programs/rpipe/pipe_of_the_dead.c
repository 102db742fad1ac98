/* Rank 0 dies while rank 1 waits for its message: writes the error and the reason to a file (launchers
 * drop what is said when a rank has died), and leaves past MPI. usage: pipe_of_the_dead FILE
 *
 * MPICH's launcher kills the others when it sees the connection to a rank broken before it sees the rank dead: a
 * child holds the connection until the other rank is gone. */
#include <mpi.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "headroom/rpipe.h"

int main(int argc, char** argv) {
  int self;
  pid_t peer = getpid();
  rpipe_t pipe;
  raddr_t buffer;
  MPI_Init(&argc, &argv);
  signal(SIGUSR1, SIG_IGN); /* the launcher's, of the death of a rank */
  if (rpipe_init(&self, NULL) != 0 || rpipe_open(&pipe, 1 - self, RPIPE_BOTH, NULL) != 0 ||
      rpipe_send(pipe, &peer, sizeof peer, RPIPE_FOREVER) != 0 ||
      rpipe_receive(pipe, &peer, sizeof peer, NULL, RPIPE_FOREVER) != 0) {
    return 1;
  }
  if (self == 0) {
    if (fork() != 0) {
      raise(SIGKILL);
    }
    struct pollfd ended = {.fd = (int)syscall(SYS_pidfd_open, peer, 0), .events = POLLIN};
    poll(&ended, 1, -1);
    _exit(0);
  }
  const int error = rpipe_read(pipe, &buffer, NULL, RPIPE_FOREVER);
  FILE* const file = argc == 2 ? fopen(argv[1], "w") : NULL;
  if (file != NULL) {
    fprintf(file, "%d: %s\n", error, rpipe_reason(pipe));
    fclose(file);
  }
  _exit(0);
}
