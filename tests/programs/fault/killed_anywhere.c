/* Messages of every kind without end, each looked at, until one rank is killed by a timer, wherever it is then, or at a chosen
 * instruction. Arguments: the rank, microseconds or ROUND:INSTRUCTIONS (from the beginning of that round; x86-64 only),
 * mebibytes of buffer, and "threads" if another thread of each rank is to send meanwhile. Ends with status 77 and "wrong" if
 * content is not what was sent. */
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

enum { SMALL = 60000 };
static int rank, size;
static int stepped_round = -1;
static long instructions_left;

static void die(int signal_number) {
  (void)signal_number;
  kill(getpid(), SIGKILL);
}

static void step(int signal_number) {
  if (--instructions_left == 0) {
    die(signal_number);
  }
}

/* The processor's trap flag: SIGTRAP after each instruction. */
static void begin_stepping(void) {
#ifdef __x86_64__
  signal(SIGTRAP, step);
  __builtin_ia32_writeeflags_u64(__builtin_ia32_readeflags_u64() | 0x100);
#else
  (void)step;
  fprintf(stderr, "this processor cannot be stepped\n");
  MPI_Abort(MPI_COMM_WORLD, 1);
#endif
}

static unsigned char content(int from, int round, int at) {
  return (unsigned char)(from * 31 + round * 7 + at * 13 + (at >> 8));
}

static void fill(unsigned char* buffer, int round, int count) {
  for (int i = 0; i < count; ++i) {
    buffer[i] = content(rank, round, i);
  }
}

static void check(const unsigned char* buffer, int from, int round, int count) {
  for (int i = 0; i < count; ++i) {
    if (buffer[i] != content(from, round, i)) {
      fprintf(stderr, "wrong: rank %d, %d bytes from rank %d in round %d, at %d\n", rank, count, from, round, i);
      _exit(77);
    }
  }
}

/* What the other thread does. */
static void* send_meanwhile(void* comm) {
  const int to = (rank + 1) % size, from = (rank + size - 1) % size;
  unsigned char *out = malloc(1 << 20), *in = malloc(1 << 20);
  for (int round = 0;; ++round) {
    const int count = round % 4 == 3 ? 1 << 20 : 40 << 2 * (round % 4);
    fill(out, round, count);
    MPI_Sendrecv(out, count, MPI_BYTE, to, 2, in, count, MPI_BYTE, from, 2, *(MPI_Comm*)comm, MPI_STATUS_IGNORE);
    check(in, from, round, count);
  }
  return NULL;
}

int main(int argc, char** argv) {
  const int threads = argc > 4 && strcmp(argv[4], "threads") == 0;
  int given;
  MPI_Init_thread(&argc, &argv, threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &given);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int most = atoi(argv[3]) << 20;
  const int sizes[] = {8, 100, 1000, 30000, 300000, most};
  unsigned char *out = malloc((size_t)most), *in = malloc((size_t)most * 2); /* evictable */
  unsigned char *small_out = malloc(SMALL), *small_in = malloc(SMALL);       /* not */
  unsigned char* all = malloc((size_t)SMALL * (size_t)size);
  const int to = (rank + 1) % size, from = (rank + size - 1) % size;
  MPI_Comm others;
  MPI_Comm_dup(MPI_COMM_WORLD, &others);
  pthread_t thread;
  if (threads && pthread_create(&thread, NULL, send_meanwhile, &others) != 0) {
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == atoi(argv[1])) {
    signal(SIGALRM, die);
    const long after = atol(argv[2]);
    const struct itimerval timer = {{0, 0}, {after / 1000000, after % 1000000}};
    if (sscanf(argv[2], "%d:%ld", &stepped_round, &instructions_left) != 2) {
      stepped_round = -1;
      setitimer(ITIMER_REAL, &timer, NULL);
    }
  }
  for (int round = 0;; ++round) {
    const int count = sizes[round % 6];
    const int small = count < SMALL && round % 12 < 6;
    unsigned char *sent = small ? small_out : out, *received = small ? small_in : in;
    MPI_Request requests[2];
    fill(sent, round, count);
    memset(received, 0, (size_t)count);
    if (round == stepped_round) {
      begin_stepping();
    }
    switch (round % 5) {
      case 0:
        MPI_Sendrecv(sent, count, MPI_BYTE, to, 1, received, count, MPI_BYTE, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        break;
      case 1:
        MPI_Irecv(received, count, MPI_BYTE, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &requests[0]);
        MPI_Issend(sent, count, MPI_BYTE, to, 1, MPI_COMM_WORLD, &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        break;
      case 2: /* unexpected */
        MPI_Isend(sent, count, MPI_BYTE, to, 1, MPI_COMM_WORLD, &requests[1]);
        for (int there = 0; !there;) {
          MPI_Iprobe(from, 1, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
        }
        MPI_Recv(received, count, MPI_BYTE, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
        break;
      case 3: { /* with gaps on one side */
        MPI_Datatype gaps;
        MPI_Type_vector(count / 4, 4, 8, MPI_BYTE, &gaps);
        MPI_Type_commit(&gaps);
        MPI_Irecv(in, 1, gaps, from, 1, MPI_COMM_WORLD, &requests[0]);
        MPI_Send(sent, count, MPI_BYTE, to, 1, MPI_COMM_WORLD);
        MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
        for (int i = 0; i < count / 4; ++i) {
          memmove(in + i * 4, in + i * 8, 4);
        }
        received = in;
        MPI_Type_free(&gaps);
        break;
      }
      default: {
        const int part = count < SMALL ? count : SMALL;
        MPI_Iallgather(sent, part, MPI_BYTE, all, part, MPI_BYTE, MPI_COMM_WORLD, &requests[0]);
        MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
        for (int r = 0; r < size; ++r) {
          check(all + (size_t)r * (size_t)part, r, round, part);
        }
        if (rank == round % size) {
          memcpy(received, sent, (size_t)count);
        }
        MPI_Bcast(received, count, MPI_BYTE, round % size, MPI_COMM_WORLD);
        check(received, round % size, round, count);
        memcpy(received, sent, (size_t)count);
        MPI_Allreduce(MPI_IN_PLACE, received, count, MPI_BYTE, MPI_BXOR, MPI_COMM_WORLD);
        for (int i = 0; i < 20; ++i) { /* where ranks share processors, by a tally */
          int sum = rank;
          MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
          if (sum != size * (size - 1) / 2) {
            fprintf(stderr, "wrong: a sum of %d\n", sum);
            _exit(77);
          }
          MPI_Barrier(MPI_COMM_WORLD);
        }
        continue;
      }
    }
    check(received, from, round, count);
  }
}
