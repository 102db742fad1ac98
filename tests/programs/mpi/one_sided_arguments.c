/* Calls in which one rank says what the others do not know: MPI_DATATYPE_NULL for no elements, or what MPI forbids, before all
   call it right. What such an argument decides is whether there is an error, never which way a message goes: else ranks wait
   for each other for ever. Three ranks; ends with status 1 after 20 s. usage: one_sided_arguments CASE */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const MPI_Datatype nothing = MPI_DATATYPE_NULL;
static int rank, ranks;
static char bytes[64];
static int zeros[8];
static MPI_Comm world;

static MPI_Datatype nothing_on_root(void) { return rank == 0 ? nothing : MPI_INT; }
static MPI_Datatype nothing_elsewhere(void) { return rank == 0 ? MPI_INT : nothing; }

static int send_of_nothing(void) {
  return rank == 0   ? MPI_Ssend(bytes, 0, nothing, 1, 0, world)
         : rank == 1 ? MPI_Recv(bytes, 0, MPI_INT, 0, 0, world, MPI_STATUS_IGNORE)
                     : 0;
}

static int receive_of_nothing(void) {
  return rank == 0   ? MPI_Send(bytes, 0, MPI_CHAR, 1, 1, world)
         : rank == 1 ? MPI_Recv(bytes, 0, nothing, 0, 1, world, MPI_STATUS_IGNORE)
                     : 0;
}

static int matched_receive_of_nothing(void) {
  MPI_Message message;
  if (rank == 1) {
    MPI_Mprobe(0, 0, world, &message, MPI_STATUS_IGNORE);
    return MPI_Mrecv(bytes, 0, nothing, &message, MPI_STATUS_IGNORE);
  }
  return rank == 0 ? MPI_Send(bytes, 0, MPI_INT, 1, 0, world) : 0;
}

static int between_groups(void) {
  MPI_Comm half, both;
  MPI_Comm_split(world, rank % 2, 0, &half);
  MPI_Intercomm_create(half, 0, world, rank % 2 ? 0 : 1, 5, &both);
  return rank == 0   ? MPI_Send(bytes, 0, nothing, 0, 0, both)
         : rank == 1 ? MPI_Recv(bytes, 0, MPI_INT, 0, 0, both, MPI_STATUS_IGNORE)
                     : 0;
}

static int broadcast(void) { return MPI_Bcast(bytes, 0, nothing_elsewhere(), 0, world); }
static int broadcast_from_nothing(void) { return MPI_Bcast(bytes, 0, nothing_on_root(), 0, world); }

static int nonblocking_broadcast(void) {
  MPI_Request request;
  const int error = MPI_Ibcast(bytes, 0, nothing_on_root(), 0, world, &request);
  return error != MPI_SUCCESS ? error : MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static int scatter(void) { return MPI_Scatter(bytes, 0, nothing_on_root(), bytes + 8, 0, MPI_INT, 0, world); }

static int gather(void) { return MPI_Gatherv(bytes, 0, nothing_elsewhere(), bytes + 8, zeros, zeros, MPI_INT, 0, world); }

static int neighbors(void) {
  MPI_Comm ring;
  const int dimensions[1] = {ranks}, periods[1] = {0};
  MPI_Cart_create(world, 1, dimensions, periods, 0, &ring);
  return MPI_Neighbor_alltoallv(bytes, zeros, zeros, nothing_on_root(), bytes + 32, zeros, zeros, MPI_INT, ring);
}

/* The library refuses the first call on one rank, which the others do not make. */
static int window(void) {
  MPI_Win window;
  void* memory = malloc(4 << 20);
  const int refused = rank != 0 || MPI_Win_create(memory, -8, 1, MPI_INFO_NULL, world, &window) != MPI_SUCCESS;
  int error = MPI_Win_create(memory, 4 << 20, 1, MPI_INFO_NULL, world, &window);
  error |= MPI_Win_fence(0, window) | MPI_Win_fence(0, window) | MPI_Win_free(&window);
  free(memory);
  return !refused || error;
}

static int communicator(void) {
  MPI_Comm copy;
  const int refused = rank != 0 || MPI_Comm_dup(world, NULL) != MPI_SUCCESS;
  int error = MPI_Comm_dup(world, &copy);
  if (rank == 0) {
    error |= MPI_Send(bytes, 1, MPI_INT, 1, 0, copy);
  } else if (rank == 1) {
    error |= MPI_Recv(bytes, 1, MPI_INT, 0, 0, copy, MPI_STATUS_IGNORE);
  }
  return !refused || error;
}

static const struct {
  const char* name;
  int (*run)(void);
} cases[] = {
    {"send", send_of_nothing},
    {"receive", receive_of_nothing},
    {"matched-receive", matched_receive_of_nothing},
    {"between-groups", between_groups},
    {"broadcast", broadcast},
    {"broadcast-from-nothing", broadcast_from_nothing},
    {"nonblocking-broadcast", nonblocking_broadcast},
    {"scatter", scatter},
    {"gather", gather},
    {"neighbors", neighbors},
    {"window", window},
    {"communicator", communicator},
};

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  alarm(20);
  MPI_Comm_dup(MPI_COMM_WORLD, &world);
  MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
  MPI_Comm_rank(world, &rank);
  MPI_Comm_size(world, &ranks);
  int error = -1;
  for (size_t index = 0; index < sizeof cases / sizeof *cases; ++index) {
    if (argc == 2 && strcmp(argv[1], cases[index].name) == 0) {
      error = cases[index].run();
    }
  }
  int sum = 0, one = 1;
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, world); /* all get on */
  printf("rank %d %s\n", rank, error == MPI_SUCCESS && sum == ranks ? "right" : "error");
  MPI_Finalize();
  return 0;
}
