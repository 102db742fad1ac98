/* One blocking call of each kind between neighbours and on all ranks, several times; the same output with and without
   Headroom. usage: calls ROUNDS */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned long long digest = 14695981039346656037ull;
static void note(const void* data, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) {
    digest = (digest ^ ((const unsigned char*)data)[i]) * 1099511628211ull;
  }
}

static void compare(void* in, void* inout, int* count, MPI_Datatype* datatype) {
  (void)datatype;
  for (int i = 0; i < *count; ++i) {
    ((double*)inout)[i] = ((double*)in)[i] * 0.5 + ((double*)inout)[i];
  }
}

static void point_to_point(int rank, int ranks) {
  int out[100], in[100];
  const int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
  for (int i = 0; i < 100; ++i) {
    out[i] = rank * 1000 + i;
  }
  MPI_Status status;
  MPI_Request request, requests[2];
  if (rank % 2 == 0) {
    MPI_Ssend(out, 100, MPI_INT, to, 1, MPI_COMM_WORLD);
    MPI_Recv(in, 100, MPI_INT, from, 1, MPI_COMM_WORLD, &status);
  } else {
    MPI_Probe(from, 1, MPI_COMM_WORLD, &status);
    int count;
    MPI_Get_count(&status, MPI_INT, &count);
    note(&count, sizeof count);
    MPI_Recv(in, 100, MPI_INT, from, 1, MPI_COMM_WORLD, &status);
    MPI_Ssend(out, 100, MPI_INT, to, 1, MPI_COMM_WORLD);
  }
  note(in, sizeof in);
  note(&status.MPI_SOURCE, sizeof(int));
  MPI_Sendrecv(out, 50, MPI_INT, to, 2, in, 50, MPI_INT, from, 2, MPI_COMM_WORLD, &status);
  note(in, sizeof in);
  MPI_Sendrecv_replace(out, 100, MPI_INT, to, 3, from, 3, MPI_COMM_WORLD, &status);
  note(out, sizeof out);
  MPI_Isend(out, 100, MPI_INT, to, 4, MPI_COMM_WORLD, &requests[0]);
  MPI_Irecv(in, 100, MPI_INT, from, 4, MPI_COMM_WORLD, &requests[1]);
  MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  note(in, sizeof in);
  MPI_Isend(out, 10, MPI_INT, to, 5, MPI_COMM_WORLD, &request);
  MPI_Message message;
  MPI_Mprobe(from, 5, MPI_COMM_WORLD, &message, &status);
  MPI_Mrecv(in, 10, MPI_INT, &message, &status);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  note(in, 40);
  MPI_Irecv(in, 10, MPI_INT, from, 6, MPI_COMM_WORLD, &requests[0]);
  MPI_Isend(out, 10, MPI_INT, to, 6, MPI_COMM_WORLD, &requests[1]);
  int index, done = 0, indices[2];
  MPI_Waitany(2, requests, &index, &status);
  MPI_Waitsome(2, requests, &done, indices, MPI_STATUSES_IGNORE);
  note(in, 40);
  int flag = 0;
  MPI_Irecv(in, 10, MPI_INT, from, 7, MPI_COMM_WORLD, &request);
  MPI_Bsend(out, 10, MPI_INT, to, 7, MPI_COMM_WORLD);
  while (!flag) {
    MPI_Test(&request, &flag, &status);
  }
  MPI_Isend(out, 10, MPI_INT, to, 8, MPI_COMM_WORLD, &request);
  for (flag = 0; !flag;) {
    MPI_Iprobe(MPI_ANY_SOURCE, 8, MPI_COMM_WORLD, &flag, &status);
  }
  MPI_Recv(in, 10, MPI_INT, status.MPI_SOURCE, 8, MPI_COMM_WORLD, &status);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  note(in, 40);
  MPI_Recv(in, 10, MPI_INT, MPI_PROC_NULL, 9, MPI_COMM_WORLD, &status);
  note(&status.MPI_SOURCE, sizeof(int));
}

static void collectives(MPI_Comm comm, MPI_Op own) {
  int rank, ranks;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &ranks);
  double *a = malloc(sizeof(double) * 300 * (size_t)ranks), *b = calloc(300 * (size_t)ranks, sizeof(double));
  for (int i = 0; i < 300 * ranks; ++i) {
    a[i] = (rank + 1) * 0.1 + i * 1e-3;
  }
  MPI_Allreduce(a, b, 300, MPI_DOUBLE, MPI_SUM, comm);
  note(b, 300 * sizeof(double));
  MPI_Allreduce(a, b, 300, MPI_DOUBLE, own, comm);
  note(b, 300 * sizeof(double));
  MPI_Reduce(a, b, 300, MPI_DOUBLE, MPI_PROD, 0, comm);
  note(b, 300 * sizeof(double));
  MPI_Scan(a, b, 300, MPI_DOUBLE, MPI_SUM, comm);
  note(b, 300 * sizeof(double));
  MPI_Exscan(a, b, 300, MPI_DOUBLE, MPI_SUM, comm);
  note(b, rank == 0 ? 0 : 300 * sizeof(double));
  MPI_Reduce_scatter_block(a, b, 300, MPI_DOUBLE, MPI_SUM, comm);
  note(b, 300 * sizeof(double));
  MPI_Bcast(b, 300, MPI_DOUBLE, ranks - 1, comm);
  note(b, 300 * sizeof(double));
  MPI_Allgather(a, 300, MPI_DOUBLE, b, 300, MPI_DOUBLE, comm);
  note(b, 300 * (size_t)ranks * sizeof(double));
  MPI_Alltoall(a, 300, MPI_DOUBLE, b, 300, MPI_DOUBLE, comm);
  note(b, 300 * (size_t)ranks * sizeof(double));
  MPI_Gather(a, 300, MPI_DOUBLE, b, 300, MPI_DOUBLE, 0, comm);
  note(b, 300 * (size_t)ranks * sizeof(double));
  MPI_Scatter(b, 300, MPI_DOUBLE, a, 300, MPI_DOUBLE, 0, comm);
  note(a, 300 * sizeof(double));
  long sum = rank + 1, total;
  MPI_Allreduce(&sum, &total, 1, MPI_LONG, MPI_SUM, comm);
  note(&total, sizeof total);
  MPI_Barrier(comm);
  free(a);
  free(b);
}

int main(int argc, char** argv) {
  int provided;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  static char buffer[1 << 16];
  MPI_Buffer_attach(buffer, sizeof buffer);
  MPI_Op own;
  MPI_Op_create(compare, 0, &own);
  MPI_Comm half, copy;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  for (int round = 0; round < atoi(argv[1]); ++round) {
    point_to_point(rank, ranks);
    collectives(MPI_COMM_WORLD, own);
    collectives(half, own);
    collectives(copy, own);
    collectives(MPI_COMM_SELF, own);
  }
  double* memory;
  MPI_Alloc_mem(4 << 20, MPI_INFO_NULL, &memory);
  memory[100] = 3;
  MPI_Free_mem(memory);
  MPI_Comm_free(&half);
  MPI_Comm_free(&copy);
  MPI_Op_free(&own);
  void* detached;
  int size;
  MPI_Buffer_detach(&detached, &size);
  unsigned long long* all = malloc(sizeof(unsigned long long) * (size_t)ranks);
  MPI_Gather(&digest, 1, MPI_UNSIGNED_LONG_LONG, all, 1, MPI_UNSIGNED_LONG_LONG, 0, MPI_COMM_WORLD);
  for (int i = 0; rank == 0 && i < ranks; ++i) {
    printf("rank %d digest %016llx\n", i, all[i]);
  }
  free(all);
  MPI_Finalize();
  return 0;
}
