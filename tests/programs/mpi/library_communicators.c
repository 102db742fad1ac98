/* Communicators that are the MPI library's (between groups, of spawned processes, from sessions, and what descends from them)
   and partitioned communication, beside direct ones with the same tags, from any source; and direct communicators of real
   subsets, of graphs, and duplicated with an info. Prints "ok", how many messages went inside the node past the library, how
   many on the library's communicators and how many partitioned requests were made.
   usage: library_communicators PRESSURE_MIB [spawn] */
#include <mpi.h>
#include <unistd.h>

#include "pressure.h"

static int rank, ranks;
static long direct, passed, partitioned;

static const int kSizes[] = {0, 8, 39, 500, 8000, 70000, 600000};
enum { SIZES = sizeof kSizes / sizeof *kSizes, MOST = 600000 };
static unsigned char *out, *in, *out_world, *in_world;

static int seed_of(int index, int i) { return index * 16 + i; }

/* Messages of each size to a rank of `comm` and from one, while others with the same tag cross on the world. */
static void exchange(MPI_Comm comm, int to, int from, int index, long* count) {
  const int world_to = (rank + 1) % ranks, world_from = (rank + ranks - 1) % ranks;
  for (int i = 0; i < SIZES; ++i) {
    MPI_Request requests[4];
    MPI_Status statuses[4];
    int got, mine;
    MPI_Comm_rank(comm, &mine);
    const size_t size = (size_t)kSizes[i];
    fill(out, size, (unsigned)(seed_of(index, i) + mine));
    fill(out_world, size, (unsigned)(seed_of(index, i) + rank + 100));
    MPI_Irecv(in, MOST, MPI_BYTE, i % 2 == 0 ? from : MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &requests[0]);
    MPI_Irecv(in_world, MOST, MPI_BYTE, MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, &requests[1]);
    MPI_Isend(out_world, kSizes[i], MPI_BYTE, world_to, 3, MPI_COMM_WORLD, &requests[2]);
    (i % 3 == 0 ? MPI_Issend : MPI_Isend)(out, kSizes[i], MPI_BYTE, to, 3, comm, &requests[3]);
    MPI_Waitall(4, requests, statuses);
    MPI_Get_count(&statuses[0], MPI_BYTE, &got);
    CHECK(got == kSizes[i] && statuses[0].MPI_SOURCE == from && statuses[0].MPI_TAG == 3);
    MPI_Get_count(&statuses[1], MPI_BYTE, &got);
    CHECK(got == kSizes[i] && statuses[1].MPI_SOURCE == world_from && statuses[1].MPI_TAG == 3);
    CHECK(same(in, size, (unsigned)(seed_of(index, i) + from)));
    CHECK(same(in_world, size, (unsigned)(seed_of(index, i) + world_from + 100)));
    ++direct;
    ++*count;
    /* And the blocking calls. */
    MPI_Status status;
    MPI_Isend(out, kSizes[i], MPI_BYTE, to, 4, comm, &requests[0]);
    if (mine % 2 == 0) {
      MPI_Probe(from, MPI_ANY_TAG, comm, &status);
      CHECK(status.MPI_SOURCE == from && status.MPI_TAG == 4);
      MPI_Recv(in, MOST, MPI_BYTE, from, 4, comm, &status);
    } else {
      MPI_Message message;
      MPI_Mprobe(MPI_ANY_SOURCE, 4, comm, &message, &status);
      CHECK(status.MPI_SOURCE == from && status.MPI_TAG == 4);
      MPI_Mrecv(in, MOST, MPI_BYTE, &message, &status);
    }
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    MPI_Get_count(&status, MPI_BYTE, &got);
    CHECK(got == kSizes[i] && same(in, size, (unsigned)(seed_of(index, i) + from)));
    ++*count;
    MPI_Sendrecv(out, kSizes[i], MPI_BYTE, to, 5, in, MOST, MPI_BYTE, from, 5, comm, &status);
    CHECK(status.MPI_SOURCE == from && same(in, size, (unsigned)(seed_of(index, i) + from)));
    ++*count;
  }
}

/* A ring on a communicator inside one group. */
static void ring(MPI_Comm comm, int index, long* count) {
  int mine, size;
  MPI_Comm_rank(comm, &mine);
  MPI_Comm_size(comm, &size);
  exchange(comm, (mine + 1) % size, (mine + size - 1) % size, index, count);
  double one = mine + 1, sum = 0;
  MPI_Allreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, comm);
  CHECK(sum == size * (size + 1) / 2.0);
}

static void between_groups(void) {
  MPI_Comm half, between, again, merged, part;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank % 2 == 0 ? ranks - 1 : ranks - 2, 8, &between);
  int mine, flag;
  MPI_Comm_rank(between, &mine);
  MPI_Comm_test_inter(between, &flag);
  CHECK(flag);
  exchange(between, mine, mine, 1, &passed);
  MPI_Comm_dup(between, &again);
  exchange(again, mine, mine, 2, &passed);
  /* Collectives between groups. */
  int value = rank, sum = -1;
  MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, between);
  int expected = 0;
  for (int other = 0; other < ranks; ++other) {
    expected += other % 2 != rank % 2 ? other : 0;
  }
  CHECK(sum == expected);
  value = rank % 2 == 0 && mine == 0 ? 77 : 0;
  MPI_Bcast(&value, 1, MPI_INT, rank % 2 == 0 ? (mine == 0 ? MPI_ROOT : MPI_PROC_NULL) : 0, again);
  CHECK(rank % 2 == 0 || value == 77);
  MPI_Barrier(between);
  MPI_Intercomm_merge(between, rank % 2, &merged);
  ring(merged, 3, &passed);
  MPI_Comm_split(merged, 0, rank, &part); /* descends from one that is the library's */
  ring(part, 4, &passed);
  MPI_Comm_free(&part);
  MPI_Comm_free(&merged);
  MPI_Comm_free(&again);
  MPI_Comm_free(&between);
  ring(half, 5, &direct);
  MPI_Comm_free(&half);
}

static void subsets(void) {
  MPI_Group world, some;
  MPI_Comm made;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  int members[64], count = 0;
  for (int other = ranks - 1; other >= 0; --other) {
    if (other % 3 != 1) {
      members[count++] = other;
    }
  }
  MPI_Group_incl(world, count, members, &some);
  MPI_Comm_create(MPI_COMM_WORLD, some, &made);
  CHECK((made == MPI_COMM_NULL) == (rank % 3 == 1));
  const int here = made != MPI_COMM_NULL;
  /* The world's part of exchange() needs all ranks: those outside take part with themselves. */
  MPI_Comm alone;
  MPI_Comm_dup(MPI_COMM_SELF, &alone);
  ring(here ? made : alone, 6, &direct);
  if (here) {
    MPI_Comm_free(&made);
    MPI_Comm_create_group(MPI_COMM_WORLD, some, 5, &made);
  }
  ring(here ? made : alone, 7, &direct);
  if (here) {
    MPI_Comm_free(&made);
  }
  MPI_Info info;
  MPI_Info_create(&info);
  MPI_Info_set(info, "headroom_test", "yes");
#if MPI_VERSION >= 4
  MPI_Request request;
  MPI_Comm_idup_with_info(MPI_COMM_WORLD, info, &made, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
#else
  MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &made);
#endif
  ring(made, 8, &direct);
  MPI_Comm_free(&made);
  MPI_Info_free(&info);
  /* Graphs: each rank with its neighbours in a ring, ranks in another order. */
  const int one = 1, next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
  MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &before, &one, 1, &next, &one, MPI_INFO_NULL, 1, &made);
  ring(made, 9, &direct);
  MPI_Comm_free(&made);
  int ends[64], edges[64];
  for (int other = 0; other < ranks; ++other) {
    ends[other] = other + 1;
    edges[other] = (other + 1) % ranks;
  }
  MPI_Graph_create(MPI_COMM_WORLD, ranks, ends, edges, 1, &made);
  ring(made, 10, &direct);
  MPI_Comm_free(&made);
  MPI_Comm_free(&alone);
  MPI_Group_free(&some);
  MPI_Group_free(&world);
}

#if MPI_VERSION >= 4
static void partitions(void) {
  const int parts = 8, next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
  MPI_Request send, receive;
  MPI_Psend_init(out, parts, MOST / parts, MPI_BYTE, next, 3, MPI_COMM_WORLD, MPI_INFO_NULL, &send);
  MPI_Precv_init(in, parts, MOST / parts, MPI_BYTE, before, 3, MPI_COMM_WORLD, MPI_INFO_NULL, &receive);
  ++partitioned;
  for (int round = 0; round < 3; ++round) {
    fill(out, MOST, (unsigned)(rank + round));
    memset(in, 1, MOST);
    MPI_Start(&receive);
    MPI_Start(&send);
    MPI_Status status;
    /* A message with the same tag in between does not match them. */
    MPI_Sendrecv(out_world, 100, MPI_BYTE, next, 3, in_world, 100, MPI_BYTE, before, 3, MPI_COMM_WORLD, &status);
    /* What even ranks send synchronously odd ones must take while they ask whether parts are there: these come afterwards. */
    MPI_Request request;
    MPI_Irecv(in_world, 100, MPI_BYTE, before, 6, MPI_COMM_WORLD, &request);
    if (rank % 2 == 0) {
      usleep(2000);
      MPI_Ssend(out_world, 100, MPI_BYTE, next, 6, MPI_COMM_WORLD);
    }
    for (int part = parts - 1; part >= 0; --part) {
      MPI_Pready(part, send);
    }
    int arrived = 0;
    while (!arrived) {
      MPI_Parrived(receive, 0, &arrived);
    }
    if (rank % 2 != 0) {
      MPI_Ssend(out_world, 100, MPI_BYTE, next, 6, MPI_COMM_WORLD);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    direct += 2;
    MPI_Wait(&send, MPI_STATUS_IGNORE);
    MPI_Wait(&receive, MPI_STATUS_IGNORE);
    CHECK(same(in, MOST, (unsigned)(before + round)));
  }
  MPI_Request_free(&send);
  MPI_Request_free(&receive);
}
#else
static void partitions(void) {}
#endif

/* Children of all ranks: each exchanges with one of them. */
static void spawn(char* program, char* mib) {
  MPI_Comm children;
  char* arguments[] = {mib, NULL};
  int errors[64];
  CHECK(MPI_Comm_spawn(program, arguments, ranks, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children, errors) == MPI_SUCCESS);
  exchange(children, rank, rank, 11, &passed); /* on a merged one plain MPICH 5.0.2 hangs in half of the runs */
  MPI_Comm_disconnect(&children);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  bytes = (size_t)atoi(argv[1]) << 20;
  pressure = malloc(bytes + 1);
  out = malloc(MOST);
  in = malloc(MOST);
  out_world = malloc(MOST);
  in_world = malloc(MOST);
  press();
  MPI_Comm parents;
  MPI_Comm_get_parent(&parents);
  const int is_child = parents != MPI_COMM_NULL;
  if (parents != MPI_COMM_NULL) {
    exchange(parents, rank, rank, 11, &passed);
    MPI_Comm_disconnect(&parents);
  } else if (argc > 2) {
    spawn(argv[0], argv[1]);
  } else {
    between_groups();
    press();
    subsets();
    partitions();
  }
  long mine[3] = {direct, passed, partitioned}, all[3];
  MPI_Reduce(mine, all, 3, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    printf("%sok %ld %ld %ld\n", is_child ? "children " : "", all[0], all[1], all[2]);
  }
  MPI_Finalize();
  return 0;
}
