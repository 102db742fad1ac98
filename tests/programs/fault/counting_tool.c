/* A tool that uses MPI's profiling interface: counts calls of the program and says at the end how many there were. Built with
   -DBY_NAME it fetches MPI's functions as the next of their name, as some tools do. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>

static int starts, sends, reductions;

#ifdef BY_NAME
#define REAL(name) ((__typeof__(&P##name))dlsym(RTLD_NEXT, "P" #name))
#else
#define REAL(name) P##name
#endif

int MPI_Init(int* count, char*** words) {
  ++starts;
  return REAL(MPI_Init)(count, words);
}

int MPI_Init_thread(int* count, char*** words, int required, int* provided) {
  ++starts;
  return REAL(MPI_Init_thread)(count, words, required, provided);
}

int MPI_Isend(const void* buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request) {
  ++sends;
  return REAL(MPI_Isend)(buffer, count, type, to, tag, comm, request);
}

int MPI_Allreduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  ++reductions;
  return REAL(MPI_Allreduce)(in, out, count, type, op, comm);
}

int MPI_Finalize(void) {
  int rank;
  REAL(MPI_Comm_rank)(MPI_COMM_WORLD, &rank);
  printf("tool: rank %d starts %d sends %d reductions %d\n", rank, starts, sends, reductions);
  fflush(stdout);
  return REAL(MPI_Finalize)();
}
