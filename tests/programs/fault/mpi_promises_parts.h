/* Part of mpi_promises.c: calls that send and receive, of which one part is wrong. */
#pragma once

#include "mpi_promises_errors.h"

/// Sends by a wrong call to `dest` what is wrong in the way `how`; returns the error.
static int send_wrongly(int how, int nonblocking, MPI_Comm comm) {
  const int dest = how == 0 ? 99 : 1, tag = how == 1 ? -7 : 0, count = how == 2 ? -1 : 1;
  int content[2] = {5, 0};
  if (!nonblocking) {
    return MPI_Sendrecv(content, count, MPI_INT, dest, tag, content + 1, 1, MPI_INT, 1, 0, comm, MPI_STATUS_IGNORE);
  }
#if MPI_VERSION >= 4
  MPI_Request request;
  return MPI_Isendrecv(content, count, MPI_INT, dest, tag, content + 1, 1, MPI_INT, 1, 0, comm, &request);
#else
  return how == 0 ? MPI_ERR_RANK : how == 1 ? MPI_ERR_TAG : MPI_ERR_COUNT;
#endif
}

/// The same, of a message that has come before the wrong call, or (`late`) comes after it.
static void send_wrongly_beside_a_message(int how, int nonblocking, int late, MPI_Comm comm) {
  static const int classes[] = {MPI_ERR_RANK, MPI_ERR_TAG, MPI_ERR_COUNT};
  int content = 3;
  if (rank == 0) {
    if (!late) {
      MPI_Recv(NULL, 0, MPI_INT, 1, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    must(class_of(send_wrongly(how, nonblocking, comm)) == classes[how], "the error of a wrong send");
    if (late) {
      MPI_Send(NULL, 0, MPI_INT, 1, 8, MPI_COMM_WORLD);
    }
    int found = 0, got = 0;
    for (int look = 0; look < 1000 && !found; ++look) {
      MPI_Iprobe(1, 0, comm, &found, MPI_STATUS_IGNORE);
      usleep(1000);
    }
    must(found, "a wrong call took a message away");
    if (found) {
      MPI_Recv(&got, 1, MPI_INT, 1, 0, comm, MPI_STATUS_IGNORE);
      must(got == 3, "what was received");
    }
  } else {
    if (late) {
      MPI_Recv(NULL, 0, MPI_INT, 0, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Send(&content, 1, MPI_INT, 0, 0, comm);
    if (!late) {
      MPI_Send(NULL, 0, MPI_INT, 0, 8, MPI_COMM_WORLD);
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

/// A call whose receive is wrong sends nothing.
static void receive_wrongly(MPI_Comm comm, int replaces) {
  int content = 4, found = 0;
  if (rank == 0) {
    const int error = replaces ? MPI_Sendrecv_replace(&content, 1, MPI_INT, 1, 4, 99, 4, comm, MPI_STATUS_IGNORE)
                               : MPI_Sendrecv(&content, 1, MPI_INT, 1, 4, &content, 1, MPI_INT, 99, 4, comm, MPI_STATUS_IGNORE);
    must(class_of(error) == MPI_ERR_RANK, "the error of a wrong receive");
  }
  MPI_Barrier(MPI_COMM_WORLD);
  for (int look = 0; look < 10; ++look) {
    MPI_Iprobe(0, 4, comm, &found, MPI_STATUS_IGNORE);
    must(!found || rank == 0, "a wrong call sent something");
    usleep(1000);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

/// A call that sends and receives, whose send is wrong, receives nothing: where messages are direct, and where they are the
/// library's, which is polled since something else may come. 2 ranks.
static void wrong_parts(void) {
  MPI_Comm direct, own, both, merged;
  MPI_Comm_dup(MPI_COMM_WORLD, &direct);
  MPI_Comm_split(MPI_COMM_WORLD, rank, 0, &own);
  MPI_Intercomm_create(own, 0, MPI_COMM_WORLD, 1 - rank, 0, &both);
  MPI_Intercomm_merge(both, rank, &merged);
  MPI_Comm_set_errhandler(direct, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(merged, MPI_ERRORS_RETURN);
  int content = 0;
  MPI_Request later;
  MPI_Irecv(&content, 1, MPI_INT, 1 - rank, 9, MPI_COMM_WORLD, &later);
  for (int way = 0; way < 24; ++way) {
    send_wrongly_beside_a_message(way % 3, way / 3 % 2, way / 6 % 2, way < 12 ? direct : merged);
  }
  for (int way = 0; way < 4; ++way) {
    receive_wrongly(way < 2 ? direct : merged, way % 2);
  }
  MPI_Status status;
  MPI_Sendrecv(&rank, 1, MPI_INT, 1 - rank, 3, &content, 1, MPI_INT, MPI_PROC_NULL, 0, merged, &status);
  must(status.MPI_SOURCE == MPI_PROC_NULL && status.MPI_TAG == MPI_ANY_TAG && content == 0, "what nobody sends");
  MPI_Sendrecv(NULL, 0, MPI_INT, MPI_PROC_NULL, 3, &content, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, merged, &status);
  must(status.MPI_SOURCE == 1 - rank && status.MPI_TAG == 3 && content == 1 - rank, "what the other one sends");
  MPI_Send(&rank, 1, MPI_INT, 1 - rank, 9, MPI_COMM_WORLD);
  MPI_Wait(&later, MPI_STATUS_IGNORE);
  MPI_Comm_free(&direct);
  MPI_Comm_free(&own);
  MPI_Comm_free(&both);
  MPI_Comm_free(&merged);
}
