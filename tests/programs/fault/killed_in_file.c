// Collective calls on a file without end, until one rank is killed by a timer, wherever it is then.
//
//   killed_in_file FILE RANK MICROSECONDS [hint=value ...]
//
// Ends with status 77 and "wrong" if what is read is not what was written.
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

enum { PIECES = 20000, WORDS = 4 };

static void die(int number) {
  (void)number;
  kill(getpid(), SIGKILL);
}

int main(int count, char** arguments) {
  MPI_Init(&count, &arguments);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Info info;
  MPI_Info_create(&info);
  for (int each = 4; each < count; ++each) {
    char* text = strchr(arguments[each], '=');
    *text = 0;
    MPI_Info_set(info, arguments[each], text + 1);
  }
  MPI_File file;
  MPI_File_open(MPI_COMM_WORLD, arguments[1], MPI_MODE_CREATE | MPI_MODE_RDWR, info, &file);
  MPI_Datatype type;
  MPI_Type_vector(PIECES, WORDS, WORDS * size, MPI_INT, &type);
  MPI_Type_commit(&type);
  MPI_File_set_view(file, (MPI_Offset)rank * WORDS * (MPI_Offset)sizeof(int), MPI_INT, type, "native", MPI_INFO_NULL);
  static int out[PIECES * WORDS], in[PIECES * WORDS];
  if (rank == atoi(arguments[2])) {
    signal(SIGALRM, die);
    struct itimerval once = {{0, 0}, {0, atoi(arguments[3])}};
    setitimer(ITIMER_REAL, &once, NULL);
  }
  for (int round = 0;; ++round) {
    for (int at = 0; at < PIECES * WORDS; ++at) out[at] = rank * 1000003 + round * 31 + at;
    MPI_File_write_at_all(file, 0, out, PIECES * WORDS, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_read_at_all(file, 0, in, PIECES * WORDS, MPI_INT, MPI_STATUS_IGNORE);
    if (memcmp(out, in, sizeof in) != 0) {
      fprintf(stderr, "wrong: rank %d in round %d\n", rank, round);
      _exit(77);
    }
  }
}
