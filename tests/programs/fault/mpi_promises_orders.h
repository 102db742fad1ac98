/* Part of mpi_promises.c: receives from any source where ranks are on two nodes (0 and 2, 1 and 3), which wait for messages
   on two ways. Each gets one, in whichever order they began on either way. */
#pragma once

#include "mpi_promises_errors.h"

enum { ROUNDS_OF_THREADS = 3000 };

static void* receive_from_anybody(void* unused) {
  for (int round = 0; round < ROUNDS_OF_THREADS; ++round) {
    int got = 0;
    MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(&got, 1, MPI_INT, got, 2, MPI_COMM_WORLD);
  }
  return unused;
}

/// Two threads begin such receives at the same time, while a rank of their node sends, and now and then one of the other. 4
/// ranks, several threads.
static void orders_of_threads(void) {
  if (rank == 0) {
    pthread_t other;
    pthread_create(&other, NULL, receive_from_anybody, NULL);
    receive_from_anybody(NULL);
    pthread_join(other, NULL);
  } else if (rank < 3) {
    const int messages = rank == 1 ? ROUNDS_OF_THREADS / 10 : 2 * ROUNDS_OF_THREADS - ROUNDS_OF_THREADS / 10;
    for (int sent = 0, answered = 0; answered < messages; ++answered) {
      for (; sent < messages && sent < answered + 2; ++sent) {
        MPI_Send(&rank, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
      }
      int answer = 0;
      MPI_Recv(&answer, 1, MPI_INT, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
  }
}

/// A long message of the other node is on its way to the first such receive while one of this node goes to a receive that names
/// its source. The third one waits on both ways again, behind the fourth. 4 ranks.
static void orders_again(void) {
  enum { BYTES = 64 << 20, RECEIVES = 4, NAMED = 1 };
  const int last = RECEIVES - 1;
  for (int round = 0; round < 4; ++round) {
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
      char* buffers[RECEIVES];
      MPI_Request requests[RECEIVES];
      for (int index = 0; index < RECEIVES; ++index) {
        buffers[index] = malloc(BYTES);
        MPI_Irecv(buffers[index], BYTES, MPI_BYTE, index == NAMED ? 2 : MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &requests[index]);
      }
      MPI_Send(NULL, 0, MPI_BYTE, 1, 2, MPI_COMM_WORLD);
      usleep(50000); /* the long one can be seen */
      MPI_Send(NULL, 0, MPI_BYTE, 2, 2, MPI_COMM_WORLD);
      usleep(50000); /* and so can the short one */
      for (int look = 0, done = 0; look < 200; ++look) {
        for (int index = last; index >= 0; --index) {
          MPI_Test(&requests[index], &done, MPI_STATUS_IGNORE);
        }
      }
      MPI_Send(NULL, 0, MPI_BYTE, 2, 2, MPI_COMM_WORLD);
      MPI_Waitall(RECEIVES, requests, MPI_STATUSES_IGNORE);
      for (int index = 0; index < RECEIVES; ++index) {
        free(buffers[index]);
      }
    } else if (rank == 1) {
      char* content = calloc(BYTES, 1);
      MPI_Recv(NULL, 0, MPI_BYTE, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      MPI_Send(content, BYTES, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
      free(content);
    } else if (rank == 2) {
      for (int message = 0; message < 3; ++message) {
        if (message < 2) {
          MPI_Recv(NULL, 0, MPI_BYTE, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        MPI_Send(&message, sizeof message, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
      }
    }
  }
}

static void probe_late_at_error(MPI_Comm* comm, int* error, ...) {
  int flag;
  (void)error;
  usleep(100000); /* the other thread is asked about a message */
  MPI_Iprobe(MPI_ANY_SOURCE, 5, *comm, &flag, MPI_STATUS_IGNORE);
  ++own_errors;
}

static void* receive_from_a_flood(void* unused) {
  for (int got = 0; got >= 0;) {
    MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  return unused;
}

/// A handler probes while another thread receives what a rank of its node sends without end. The error is one of a receive that
/// waits on two ways, or of one that the library has alone. 4 ranks, several threads.
static void handlers_beside_a_flood(void) {
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  for (int round = 0; round < 4; ++round) {
    int content[2] = {1, 2};
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
      MPI_Errhandler handler;
      MPI_Comm_create_errhandler(probe_late_at_error, &handler);
      MPI_Comm_set_errhandler(comm, handler);
      MPI_Errhandler_free(&handler);
      pthread_t other;
      pthread_create(&other, NULL, receive_from_a_flood, NULL);
      own_errors = 0;
      MPI_Request request;
      MPI_Irecv(content, 1, MPI_INT, round % 2 == 0 ? MPI_ANY_SOURCE : 1, 1, comm, &request);
      MPI_Send(content, 0, MPI_INT, 1, 2, MPI_COMM_WORLD);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      must(own_errors == 1, "the handler was not called once");
      MPI_Send(content, 0, MPI_INT, 2, 2, MPI_COMM_WORLD);
      pthread_join(other, NULL);
    } else if (rank == 1) {
      MPI_Recv(content, 0, MPI_INT, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      MPI_Send(content, 2, MPI_INT, 0, 1, comm);
    } else if (rank == 2) {
      int ends = 0;
      for (int sent = 0; !ends; sent = sent < 1000000 ? sent + 1 : 0) {
        MPI_Iprobe(0, 2, MPI_COMM_WORLD, &ends, MPI_STATUS_IGNORE);
        MPI_Ssend(&sent, 1, MPI_INT, 0, 4, MPI_COMM_WORLD);
      }
      MPI_Recv(NULL, 0, MPI_INT, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      const int last = -1;
      MPI_Send(&last, 1, MPI_INT, 0, 4, MPI_COMM_WORLD);
    }
  }
  MPI_Comm_free(&comm);
}
