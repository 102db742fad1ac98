/* Point-to-point messages of every kind, checked by content and status. Every rank sends to the next one, or one further on.
   Prints "ok" and how many messages it received. usage: messages calls|typed|types|order|errors|communicators PRESSURE_MIB
   [SEED COUNT [DISTANCE]] (calls, typed: only each COUNTth combination; DISTANCE: to the rank that is sent to) */
#include <stdint.h>
#include <unistd.h>

#include "messages_calls.h"
#include "messages_job.h"
#include "messages_rare.h"
#include "messages_typed.h"
#include "messages_types.h"

/* Rank 0 gets messages from all, by wildcards in the order in which each was sent, and by tag in reverse. */
static void order(int count) {
  int number[2];
  if (rank == 0) {
    int* next = calloc((size_t)ranks, sizeof(int));
    for (int i = 0; i < count * (ranks - 1); ++i) {
      MPI_Status status;
      MPI_Recv(number, 2, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
      CHECK(number[0] == status.MPI_SOURCE && number[1] == next[number[0]]++ && status.MPI_TAG == number[1] % 5);
      ++received;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD); /* all are there, and none was asked for */
    press();
    for (int i = count - 1; i >= 0; --i) {
      for (int other = 1; other < ranks; ++other) {
        MPI_Recv(number, 2, MPI_INT, other, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        CHECK(number[0] == other && number[1] == i);
        ++received;
      }
    }
  } else {
    for (int i = 0; i < count; ++i) {
      number[0] = rank;
      number[1] = i;
      MPI_Send(number, 2, MPI_INT, 0, i % 5, MPI_COMM_WORLD);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < count; ++i) {
      number[1] = i;
      MPI_Send(number, 2, MPI_INT, 0, i, MPI_COMM_WORLD);
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

static void errors(void) {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  unsigned char *out = malloc(2 << 20), *in = malloc(2 << 20);
  MPI_Status status;
  MPI_Request request, sending;
  int flag = 0, class = 0;
  for (int large = 0; large < 2; ++large) {
    const int count = large ? 1 << 20 : 100;
    memset(in, 1, (size_t)count);
    memset(out, 2, (size_t)count);
    MPI_Isend(out, count, MPI_BYTE, to, 0, MPI_COMM_WORLD, &sending);
    const int error = MPI_Recv(in, count / 2, MPI_BYTE, from, 0, MPI_COMM_WORLD, &status);
    MPI_Error_class(error, &class);
    CHECK(class == MPI_ERR_TRUNCATE);
    CHECK(in[count / 2] == 1);
    MPI_Wait(&sending, MPI_STATUS_IGNORE);
    MPI_Isend(out, count, MPI_BYTE, to, 0, MPI_COMM_WORLD, &sending);
    MPI_Irecv(in, count / 2, MPI_BYTE, from, 0, MPI_COMM_WORLD, &request);
    MPI_Request both[2] = {sending, request};
    MPI_Status statuses[2];
    MPI_Error_class(MPI_Waitall(2, both, statuses), &class);
    CHECK(class == MPI_ERR_IN_STATUS);
    MPI_Error_class(statuses[1].MPI_ERROR, &class);
    CHECK(class == MPI_ERR_TRUNCATE && statuses[0].MPI_ERROR == MPI_SUCCESS);
    /* A message to oneself, sent before anybody asks for it. */
    MPI_Send(out, count, MPI_BYTE, rank, 5, MPI_COMM_WORLD);
    MPI_Recv(in, count, MPI_BYTE, MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, &status);
    check_status(&status, rank, 5, count);
    CHECK(in[0] == 2 && in[count - 1] == 2);
    /* Taken back. */
    MPI_Irecv(in, count, MPI_BYTE, from, 77, MPI_COMM_WORLD, &request);
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &flag);
    CHECK(flag);
    MPI_Barrier(MPI_COMM_WORLD);
    received += 3;
  }
  CHECK(MPI_Send(out, 1, MPI_BYTE, ranks, 0, MPI_COMM_WORLD) != MPI_SUCCESS);
  CHECK(MPI_Send(out, -1, MPI_BYTE, 0, 0, MPI_COMM_WORLD) != MPI_SUCCESS);
  CHECK(MPI_Send(out, 1, MPI_BYTE, 0, -5, MPI_COMM_WORLD) != MPI_SUCCESS);
  CHECK(MPI_Send(out, 1, MPI_DATATYPE_NULL, 0, 0, MPI_COMM_WORLD) != MPI_SUCCESS);
  MPI_Recv(in, 1, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &status);
  CHECK(status.MPI_SOURCE == MPI_PROC_NULL);
  /* A receive that waits here must not keep the sender from the collective that this rank is in, which is the library's. */
  double _Complex one = 1, product; /* products of complex numbers are */
  for (int i = 0; i < 50; ++i) {
    MPI_Irecv(in, 1 << 20, MPI_BYTE, from, 9, MPI_COMM_WORLD, &request);
    if (rank % 2 == 0) {
      MPI_Allreduce(&one, &product, 1, MPI_C_DOUBLE_COMPLEX, MPI_PROD, MPI_COMM_WORLD);
      MPI_Ssend(out, 1 << 20, MPI_BYTE, to, 9, MPI_COMM_WORLD);
    } else {
      if (i % 10 == 0) {
        usleep(2000); /* the others are there by then */
      }
      MPI_Ssend(out, 1 << 20, MPI_BYTE, to, 9, MPI_COMM_WORLD);
      MPI_Allreduce(&one, &product, 1, MPI_C_DOUBLE_COMPLEX, MPI_PROD, MPI_COMM_WORLD);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    ++received;
  }
}

/* The same tags on many communicators at once. */
static void communicators(void) {
  MPI_Comm all[12];
  int n = 0;
  MPI_Group world, odd;
  MPI_Request request;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  int range[1][3] = {{0, ranks - 1, 1}};
  MPI_Group_range_incl(world, 1, range, &odd);
  MPI_Comm_dup(MPI_COMM_WORLD, &all[n++]);
  MPI_Comm_dup_with_info(all[0], MPI_INFO_NULL, &all[n++]);
  MPI_Comm_idup(MPI_COMM_WORLD, &all[n++], &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &all[n++]);
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &all[n++]);
  MPI_Comm_create(MPI_COMM_WORLD, odd, &all[n++]);
  MPI_Comm_create_group(MPI_COMM_WORLD, odd, 4, &all[n++]);
  MPI_Comm_create_group(MPI_COMM_WORLD, odd, 4, &all[n++]);
  const int yes = 1, next = to;
  int dims[2] = {ranks, 1}, periods[2] = {1, 0}, remain[2] = {1, 0};
  MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &all[n++]);
  MPI_Cart_sub(all[n - 1], remain, &all[n]);
  ++n;
  MPI_Dist_graph_create(MPI_COMM_WORLD, 1, &rank, &yes, &next, &yes, MPI_INFO_NULL, 0, &all[n++]);
  for (int i = n - 1; i >= 0; --i) {
    int mine, size, value[2] = {i, rank};
    MPI_Comm_rank(all[i], &mine);
    MPI_Comm_size(all[i], &size);
    MPI_Send(value, 2, MPI_INT, (mine + 1) % size, 0, all[i]);
  }
  for (int i = 0; i < n; ++i) {
    int mine, size, value[2] = {-1, -1};
    MPI_Comm_rank(all[i], &mine);
    MPI_Comm_size(all[i], &size);
    MPI_Status status;
    MPI_Recv(value, 2, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, all[i], &status);
    CHECK(value[0] == i && status.MPI_SOURCE == (mine + size - 1) % size);
    ++received;
  }
  /* Made and freed again and again: handles come back. */
  for (int i = 0; i < 50; ++i) {
    MPI_Comm made;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &made);
    int mine, size, value = i;
    MPI_Comm_rank(made, &mine);
    MPI_Comm_size(made, &size);
    MPI_Sendrecv_replace(&value, 1, MPI_INT, (mine + 1) % size, i, (mine + size - 1) % size, i, made, MPI_STATUS_IGNORE);
    CHECK(value == i);
    MPI_Comm_free(&made);
    ++received;
  }
  for (int i = 0; i < n; ++i) {
    MPI_Comm_free(&all[i]);
  }
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int distance = argc > 5 ? atoi(argv[5]) : 1;
  to = (rank + distance) % ranks;
  from = (rank + ranks - distance) % ranks;
  bytes = (size_t)atoi(argv[2]) << 20;
  pressure = malloc(bytes + 1);
  press();
  const uint64_t seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
  const int count = argc > 4 ? atoi(argv[4]) : 0;
  if (strcmp(argv[1], "calls") == 0) {
    calls(count > 1 ? (unsigned)count : 1);
  } else if (strcmp(argv[1], "typed") == 0) {
    typed(count > 1 ? (unsigned)count : 1);
  } else if (strcmp(argv[1], "types") == 0) {
    types(seed, count);
    scattered();
  } else if (strcmp(argv[1], "rare") == 0) {
    rare();
  } else if (strcmp(argv[1], "helped") == 0) {
    helped(count);
  } else if (strcmp(argv[1], "order") == 0) {
    order(count);
  } else if (strcmp(argv[1], "errors") == 0) {
    errors();
  } else {
    communicators();
  }
  report_received();
  MPI_Finalize();
  return 0;
}
