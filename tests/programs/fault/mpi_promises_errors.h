/* Part of mpi_promises.c: errors, by whose handler they are raised, and what must be one. */
#pragma once

#include "mpi_promises_job.h"

/// The error of a call about several requests is raised where the first of them that failed belongs.
static void errors(void) {
  MPI_Comm returning;
  MPI_Comm_dup(MPI_COMM_WORLD, &returning);
  MPI_Comm_set_errhandler(returning, MPI_ERRORS_RETURN);
  for (int some = 0; some < 2; ++some) {
    if (rank == 1) {
      int one = 0, two[2] = {0, 0};
      MPI_Request requests[2];
      MPI_Status statuses[2];
      MPI_Irecv(&one, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, &requests[0]);
      MPI_Irecv(two, 1, MPI_INT, 0, 0, returning, &requests[1]);
      MPI_Barrier(MPI_COMM_WORLD);
      usleep(100000);
      int done = 0, indices[2], error = MPI_SUCCESS;
      if (some) {
        for (int all = 0; all < 2 && error == MPI_SUCCESS; all += done) {
          error = MPI_Waitsome(2, requests, &done, indices, statuses);
        }
      } else {
        error = MPI_Waitall(2, requests, statuses);
      }
      int class = MPI_SUCCESS;
      MPI_Error_class(error, &class);
      must(class == MPI_ERR_IN_STATUS && one == 3, "the error of several");
    } else {
      MPI_Barrier(MPI_COMM_WORLD);
      if (rank == 0) {
        const int sent[2] = {3, 4};
        MPI_Send(sent, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
        MPI_Send(sent, 2, MPI_INT, 1, 0, returning);
      }
    }
  }
  MPI_Comm_free(&returning);
}

static int own_errors, errors_of_others;

static void count_own(MPI_Comm* comm, int* error, ...) {
  (void)comm, (void)error;
  ++own_errors;
}

static void count_of_others(MPI_Comm* comm, int* error, ...) {
  (void)comm, (void)error;
  ++errors_of_others;
}

static int class_of(int error) {
  int class = MPI_SUCCESS;
  MPI_Error_class(error, &class);
  return class;
}

/// Receives too little on a communicator that is freed meanwhile; returns the error.
static int receive_too_little(int way, MPI_Comm* comm, MPI_Comm* other, MPI_Errhandler of_others) {
  int little = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  if (way == 4) {
    MPI_Mprobe(0, 1, *comm, &message, &status);
  } else if (way == 5) {
    MPI_Recv_init(&little, 1, MPI_INT, 0, 1, *comm, &request);
  } else {
    MPI_Irecv(&little, 1, MPI_INT, 0, 1, *comm, &request);
  }
  MPI_Comm_free(comm);
  MPI_Comm_dup(MPI_COMM_WORLD, other);
  MPI_Comm_set_errhandler(*other, of_others);
  MPI_Barrier(MPI_COMM_WORLD);
  int index, error = MPI_SUCCESS, flag = 0;
  switch (way) {
    case 1:
      error = MPI_Waitall(1, &request, &status);
      must(class_of(error) == MPI_ERR_IN_STATUS, "the error of all");
      return status.MPI_ERROR;
    case 2:
      return MPI_Waitany(1, &request, &index, &status);
    case 3:
      while (error == MPI_SUCCESS && !flag) {
        error = MPI_Test(&request, &flag, &status);
      }
      return error;
    case 4:
      return MPI_Mrecv(&little, 1, MPI_INT, &message, &status);
    case 5:
      MPI_Start(&request);
      error = MPI_Wait(&request, &status);
      MPI_Request_free(&request);
      return error;
    default:
      return MPI_Wait(&request, &status);
  }
}

/// The error of a request is raised by its communicator's handler, though that was freed and another one may have its handle.
static void freed(void) {
  MPI_Errhandler own, of_others;
  MPI_Comm_create_errhandler(count_own, &own);
  MPI_Comm_create_errhandler(count_of_others, &of_others);
  for (int round = 0; round < 12; ++round) {
    const int way = round / 2, returns = round % 2;
    MPI_Comm comm, other;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, returns ? MPI_ERRORS_RETURN : own);
    own_errors = 0;
    if (rank == 1) {
      const int error = receive_too_little(way, &comm, &other, of_others);
      must(class_of(error) == MPI_ERR_TRUNCATE, "the error");
      must(own_errors == 1 - returns, "the handler was not called once");
    } else {
      const int much[2] = {1, 2};
      MPI_Request request = MPI_REQUEST_NULL;
      if (rank == 0) {
        MPI_Send_init(much, 2, MPI_INT, 1, 1, comm, &request);
        if (way == 4) {
          MPI_Start(&request);
        }
      }
      MPI_Comm_free(&comm);
      MPI_Comm_dup(MPI_COMM_WORLD, &other);
      MPI_Comm_set_errhandler(other, of_others);
      MPI_Barrier(MPI_COMM_WORLD);
      if (rank == 0) {
        if (way != 4) {
          MPI_Start(&request);
        }
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Request_free(&request);
      }
    }
    MPI_Comm_free(&other);
  }
  must(errors_of_others == 0, "another communicator's handler was called");
  MPI_Errhandler_free(&own);
  MPI_Errhandler_free(&of_others);
}

/// Receives from any source get their messages though their communicator was freed. 2 nodes, 4 ranks.
static void freed_on_nodes(void) {
  MPI_Comm comm, other;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Request requests[4], kept_ones[2];
  int got[4] = {0}, sum = 0, own = 1 << rank;
  if (rank == 0) {
    for (int index = 0; index < 4; ++index) {
      (index < 2 ? MPI_Recv_init : MPI_Irecv)(&got[index], 1, MPI_INT, MPI_ANY_SOURCE, 1, comm, &requests[index]);
    }
  } else {
    MPI_Send_init(&own, 1, MPI_INT, 0, 1, comm, &kept_ones[0]);
    MPI_Send_init(&own, 1, MPI_INT, 0, 1, comm, &kept_ones[1]);
  }
  MPI_Comm_free(&comm);
  MPI_Comm_dup(MPI_COMM_WORLD, &other);
  for (int from = 1; from <= 3; ++from) { /* first of another node, then of this one */
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0 && from == 2) {
      MPI_Startall(2, requests);
    }
    if (rank == from) {
      usleep(50000);
      MPI_Startall(rank == 2 ? 2 : 1, kept_ones);
      MPI_Waitall(rank == 2 ? 2 : 1, kept_ones, MPI_STATUSES_IGNORE);
    }
  }
  if (rank == 0) {
    MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
    for (int index = 0; index < 4; ++index) {
      sum += got[index];
    }
    must(sum == 2 + 4 + 4 + 8, "what was received");
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
  } else {
    MPI_Request_free(&kept_ones[0]);
    MPI_Request_free(&kept_ones[1]);
  }
  MPI_Comm_free(&other);
}

/// What an operation is not defined for is an error, or what the library makes of it, in every reduction.
static void operations(void) {
  const struct {
    const char* name;
    MPI_Op op;
    MPI_Datatype datatype;
  } cases[] = {{"sum of bytes", MPI_SUM, MPI_BYTE},
               {"product of C's truths", MPI_PROD, MPI_C_BOOL},
               {"sum of Fortran's truths", MPI_SUM, MPI_LOGICAL},
               {"truth of Fortran's integers", MPI_LAND, MPI_INTEGER},
               {"bits of doubles", MPI_BAND, MPI_DOUBLE},
               {"largest of complex", MPI_MAX, MPI_C_DOUBLE_COMPLEX},
               {"place of an integer", MPI_MAXLOC, MPI_INT},
               {"largest of pairs", MPI_MAX, MPI_2INT},
               {"sum of integers", MPI_SUM, MPI_INT},
               {"truth of C's truths", MPI_LAND, MPI_C_BOOL},
               {"bits of bytes", MPI_BXOR, MPI_BYTE},
               {"sum of addresses", MPI_SUM, MPI_AINT},
               {"product of complex", MPI_PROD, MPI_C_DOUBLE_COMPLEX},
               {"place of a pair", MPI_MINLOC, MPI_2INT}};
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  for (size_t at = 0; at < sizeof cases / sizeof cases[0]; ++at) {
    const MPI_Op op = cases[at].op;
    const MPI_Datatype datatype = cases[at].datatype;
    char own[64] = {1}, sum[64] = {1}, got[4][64] = {{0}};
    const int possible = MPI_Reduce_local(own, sum, 1, datatype, op) == MPI_SUCCESS; /* of two alike */
    MPI_Request request = MPI_REQUEST_NULL;
    int errors[4];
    errors[0] = MPI_Allreduce(own, got[0], 1, datatype, op, MPI_COMM_WORLD);
    errors[1] = MPI_Reduce(own, got[1], 1, datatype, op, 0, MPI_COMM_WORLD);
    errors[2] = MPI_Scan(own, got[2], 1, datatype, op, MPI_COMM_WORLD);
    errors[3] = MPI_Iallreduce(own, got[3], 1, datatype, op, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int call = 0; call < 4; ++call) {
      must((errors[call] == MPI_SUCCESS) == possible, cases[at].name);
      must(possible || class_of(errors[call]) == MPI_ERR_OP, cases[at].name);
      const int gets = call == 1 ? rank == 0 : call == 2 ? rank == 1 : 1;
      must(!possible || !gets || memcmp(sum, got[call], sizeof sum) == 0, cases[at].name);
    }
  }
}

/// Calls about several requests write the error of a status only if one has failed; then that of each.
static void statuses(void) {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  for (int round = 0; round < 8; ++round) {
    const int way = round / 2, fails = round % 2;
    const int sent[3] = {1, 2, 3};
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
      for (int tag = 0; tag < 3; ++tag) {
        MPI_Send(sent, fails && tag == 1 ? 2 : 1, MPI_INT, 1, tag, MPI_COMM_WORLD);
      }
      MPI_Barrier(MPI_COMM_WORLD);
      continue;
    }
    int got[3], indices[3], flag = 0, done = 0, error = MPI_SUCCESS;
    MPI_Request requests[3];
    MPI_Status all[3];
    for (int tag = 0; tag < 3; ++tag) {
      MPI_Irecv(&got[tag], 1, MPI_INT, 0, tag, MPI_COMM_WORLD, &requests[tag]);
      all[tag].MPI_ERROR = 77;
    }
    MPI_Barrier(MPI_COMM_WORLD); /* all have come */
    if (way == 0) {
      error = MPI_Waitall(3, requests, all);
    } else if (way == 1) {
      while (!flag && error == MPI_SUCCESS) {
        error = MPI_Testall(3, requests, &flag, all);
      }
    } else if (way == 2) {
      error = MPI_Waitsome(3, requests, &done, indices, all);
    } else {
      error = MPI_Testsome(3, requests, &done, indices, all);
    }
    must(way < 2 || done == 3, "not all are there");
    must(class_of(error) == (fails ? MPI_ERR_IN_STATUS : MPI_SUCCESS), "the error of several");
    for (int tag = 0; tag < 3; ++tag) {
      const int wanted = !fails ? 77 : tag == 1 ? MPI_ERR_TRUNCATE : MPI_SUCCESS;
      must(all[tag].MPI_ERROR == 77 ? wanted == 77 : class_of(all[tag].MPI_ERROR) == wanted, "the error of a status");
    }
  }
}

static void probe_at_error(MPI_Comm* comm, int* error, ...) {
  int flag;
  (void)error;
  MPI_Iprobe(MPI_ANY_SOURCE, 5, *comm, &flag, MPI_STATUS_IGNORE);
  ++own_errors;
}

static void* send_to_oneself(void* content) {
  MPI_Sendrecv(content, 1, MPI_INT, rank, 9, (int*)content + 1, 1, MPI_INT, rank, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  return NULL;
}

/// An error handler may call MPI. 2 nodes, 4 ranks, several threads.
static void handlers(void) {
  int content[2] = {1, 2};
  if (rank == 0) {
    pthread_t other; /* from now on locks are taken */
    pthread_create(&other, NULL, send_to_oneself, content);
    pthread_join(other, NULL);
    MPI_Errhandler handler;
    MPI_Comm_create_errhandler(probe_at_error, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    MPI_Request request;
    MPI_Irecv(content, 1, MPI_INT, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &request);
    MPI_Send(content, 0, MPI_INT, 1, 2, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE); /* MPICH says MPI_SUCCESS once a handler was called */
    must(own_errors == 1, "the handler was not called once");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Errhandler_free(&handler);
  } else if (rank == 1) {
    MPI_Recv(content, 0, MPI_INT, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(content, 2, MPI_INT, 0, 1, MPI_COMM_WORLD);
  }
}

/// Waits for rank 2, which sends to a receive that waits for other nodes, too, before it answers.
static void talk_at_error(MPI_Comm* comm, int* error, ...) {
  (void)comm, (void)error;
  MPI_Send(NULL, 0, MPI_INT, 2, 5, MPI_COMM_WORLD);
  usleep(100000); /* the other thread finds that message */
  MPI_Recv(NULL, 0, MPI_INT, 2, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  ++own_errors;
}

static void look_at(int source) {
  int flag;
  MPI_Iprobe(source, 9, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
  must(!flag, "there is nothing to be found");
}

static atomic_int looks;

static void* keep_looking(void* unused) {
  while (atomic_load(&looks)) {
    look_at(2);
  }
  return unused;
}

/// An error handler may wait for others, whoever is looking for messages, and it is called at the end of its own request. The
/// look for messages that finds the error is that of a call about something else (round 0), or of another thread (round 1). 2
/// nodes.
static void handlers_talk(void) {
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  for (int round = 0; round < 2; ++round) {
    int content[2] = {1, 2}, got[3] = {0};
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
      pthread_t other;
      pthread_create(&other, NULL, send_to_oneself, content);
      pthread_join(other, NULL);
      MPI_Errhandler handler;
      MPI_Comm_create_errhandler(talk_at_error, &handler);
      MPI_Comm_set_errhandler(comm, handler);
      MPI_Errhandler_free(&handler);
      own_errors = 0;
      MPI_Request requests[3];
      for (int index = 0; index < 3 - round; ++index) {
        MPI_Irecv(&got[index], 1, MPI_INT, MPI_ANY_SOURCE, 1, comm, &requests[index]);
      }
      MPI_Send(content, 0, MPI_INT, 1, 2, MPI_COMM_WORLD);
      for (int look = 0; look < 100; ++look) {
        look_at(1); /* the library gets what is too long */
        usleep(1000);
      }
      atomic_store(&looks, round);
      if (round == 0) {
        MPI_Send(content, 0, MPI_INT, 2, 4, MPI_COMM_WORLD);
        usleep(100000);
        look_at(2);
        must(own_errors == 0, "a handler was called in a call about something else");
      } else {
        pthread_create(&other, NULL, keep_looking, NULL);
      }
      MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
      must(own_errors == 1, "the handler was not called once");
      MPI_Waitall(2 - round, &requests[1], MPI_STATUSES_IGNORE);
      must(got[1] == 7 && got[2] == (round == 0 ? 7 : 0), "what was received");
      if (atomic_exchange(&looks, 0)) {
        pthread_join(other, NULL);
      }
    } else if (rank == 1) {
      MPI_Recv(content, 0, MPI_INT, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      MPI_Send(content, 2, MPI_INT, 0, 1, comm);
    } else if (rank == 2) {
      const int seven = 7;
      if (round == 0) {
        MPI_Recv(content, 0, MPI_INT, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(&seven, 1, MPI_INT, 0, 1, comm);
      }
      MPI_Recv(content, 0, MPI_INT, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      MPI_Send(&seven, 1, MPI_INT, 0, 1, comm);
      MPI_Send(content, 0, MPI_INT, 0, 6, MPI_COMM_WORLD);
    }
  }
  MPI_Comm_free(&comm);
}
