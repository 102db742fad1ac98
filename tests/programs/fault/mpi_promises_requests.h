/* Part of mpi_promises.c: requests that nobody asks about, and more of them than there can be. */
#pragma once

#include "mpi_promises_errors.h"

/// There are a million requests. What is beyond is an error, not a request whose messages never come; 2 ranks.
static void many_requests(void) {
  enum { MOST = 1 << 20, BEYOND = MOST + 1000 };
  MPI_Request* requests = malloc(BEYOND * sizeof *requests);
  int content = 0, made = 0, error = MPI_SUCCESS;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (rank == 0) {
    while (error == MPI_SUCCESS && made < BEYOND) {
      error = MPI_Recv_init(&content, 1, MPI_INT, 1, 1, MPI_COMM_WORLD, &requests[made]);
      made += error == MPI_SUCCESS ? 1 : 0;
    }
    must(made > MOST - 1000 && class_of(error) == MPI_ERR_NO_MEM, "there is one too many");
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    MPI_Start(&requests[made - 1]);
    MPI_Wait(&requests[made - 1], MPI_STATUS_IGNORE);
    must(content == 7, "what was received");
  } else {
    content = 7;
    MPI_Send(&content, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
  }
  for (int index = 0; index < made; ++index) {
    MPI_Request_free(&requests[index]);
  }
  free(requests);
}

/// The library has returned an error of a request that the program had freed: the next error is raised all the same. 2 nodes, 4
/// ranks.
static void forgotten_errors(void) {
  MPI_Comm returning, neighbors;
  MPI_Comm_dup(MPI_COMM_WORLD, &returning);
  MPI_Comm_set_errhandler(returning, MPI_ERRORS_RETURN);
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &neighbors);
  MPI_Errhandler own;
  MPI_Comm_create_errhandler(count_own, &own);
  MPI_Comm_set_errhandler(neighbors, own);
  MPI_Errhandler_free(&own);
  int content[2] = {1, 2};
  MPI_Request request;
  if (rank == 0) {
    MPI_Irecv(content, 1, MPI_INT, MPI_ANY_SOURCE, 1, returning, &request);
    MPI_Request_free(&request);
    MPI_Send(content, 0, MPI_INT, 1, 2, MPI_COMM_WORLD);
    for (int look = 0; look < 100; ++look) {
      look_at(1);
      usleep(1000);
    }
  } else if (rank == 1) {
    MPI_Recv(content, 0, MPI_INT, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(content, 2, MPI_INT, 0, 1, returning);
  }
  if (rank % 2 == 0) {
    MPI_Ibarrier(neighbors, &request);
    own_errors = 0;
    MPI_Cancel(&request); /* which MPI forbids */
    must(own_errors == 1, "the handler was not called once");
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  MPI_Comm_free(&neighbors);
  MPI_Comm_free(&returning);
}

/// Of several requests the first that fails is ours, the other's error is one that the library has raised already: the first
/// one's handler is called all the same. Then in the other order, by other calls. 2 nodes, 4 ranks.
static void errors_of_both(void) {
  MPI_Comm counting, returning;
  MPI_Comm_dup(MPI_COMM_WORLD, &counting);
  MPI_Comm_dup(MPI_COMM_WORLD, &returning);
  MPI_Errhandler own;
  MPI_Comm_create_errhandler(count_own, &own);
  MPI_Comm_set_errhandler(counting, own);
  MPI_Comm_set_errhandler(returning, MPI_ERRORS_RETURN);
  MPI_Errhandler_free(&own);
  for (int round = 0; round < 4; ++round) {
    const int some = round / 2, ours = round % 2, content[2] = {1, 2};
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
      int got[2], indices[2], done = 0, error = MPI_SUCCESS;
      MPI_Request requests[2];
      MPI_Status statuses[2];
      MPI_Irecv(&got[ours], 1, MPI_INT, 2, 0, counting, &requests[ours]);
      MPI_Irecv(&got[1 - ours], 1, MPI_INT, MPI_ANY_SOURCE, 0, returning, &requests[1 - ours]);
      MPI_Send(NULL, 0, MPI_INT, 1, 2, MPI_COMM_WORLD);
      MPI_Send(NULL, 0, MPI_INT, 2, 2, MPI_COMM_WORLD);
      for (int look = 0; look < 100; ++look) { /* both have come */
        look_at(1);
        usleep(1000);
      }
      own_errors = 0;
      for (int ended = 0; ended < 2; ended += done) {
        done = 2;
        error = some ? MPI_Waitsome(2, requests, &done, indices, statuses) : MPI_Waitall(2, requests, statuses);
        must(class_of(error) == MPI_ERR_IN_STATUS, "the error of several");
      }
      must(own_errors == 1 - ours || (some && own_errors == 1), "the handler was not called once");
    } else if (rank < 3) {
      MPI_Recv(NULL, 0, MPI_INT, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      MPI_Send(content, 2, MPI_INT, 0, 0, rank == 1 ? returning : counting);
    }
  }
  MPI_Comm_free(&counting);
  MPI_Comm_free(&returning);
}

/// Communicators of many error handlers are freed while requests on them are under way. 2 ranks.
static void many_freed(void) {
  for (int round = 0; round < 5000 && wrong == NULL; ++round) {
    MPI_Errhandler handler;
    MPI_Comm comm;
    MPI_Request request;
    int content = round, got = -1;
    MPI_Comm_create_errhandler(count_own, &handler);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, handler);
    MPI_Irecv(&got, 1, MPI_INT, 1 - rank, 1, comm, &request);
    MPI_Send(&content, 1, MPI_INT, 1 - rank, 1, comm);
    MPI_Comm_free(&comm);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Errhandler_free(&handler);
    must(got == round, "what was received");
  }
}
