/* Collectives on communicators that span nodes: barriers, broadcasts by every root, and allreduces, in every communicator that
 * MPI can make of some of the ranks, among collectives that stay the library's. Rank r is on node r % nodes. Prints "staged ok"
 * and how many calls all ranks made that go in stages. Arguments: how many nodes, and mebibytes
 * of memory that each rank uses, if that is to be more than there is: then on MPI_COMM_WORLD only. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int world_rank, world_size, nodes, rank, size;
static long staged;
static const char* name;
static char* area; /* evictable; more than memory holds, if the program is told so */
static size_t area_bytes;

static double now(void) { /* one machine, one clock; MPI_Wtime may begin anew in each process */
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void fail(const char* what, int count, int at, double got, double expected) {
  fprintf(stderr, "rank %d: %s of %d on %s: at %d got %g, not %g\n", world_rank, what, count, name, at, got, expected);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Whether the communicator has several nodes, and several ranks on one of them. */
static int goes_in_stages(MPI_Comm comm) {
  MPI_Group group, world;
  int seen[64] = {0}, several = 0, different = 0;
  MPI_Comm_group(comm, &group);
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  for (int r = 0; r < size; ++r) {
    int in_world;
    MPI_Group_translate_ranks(group, 1, &r, world, &in_world);
    different += seen[in_world % nodes] == 0;
    several |= ++seen[in_world % nodes] > 1;
  }
  MPI_Group_free(&group);
  MPI_Group_free(&world);
  return different > 1 && several;
}

static void all_on(MPI_Comm comm, const char* called) {
  static const int sizes[] = {0, 1, 3, 130, 1000, 4000};
  if (comm == MPI_COMM_NULL) {
    return;
  }
  name = called;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  const int stages = goes_in_stages(comm);
  MPI_Datatype gaps, every_third;
  MPI_Type_vector(1, 1, 3, MPI_INT, &gaps);
  MPI_Type_create_resized(gaps, 0, 3 * (int)sizeof(int), &every_third);
  MPI_Type_commit(&every_third);
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; ++s) {
    const int n = sizes[s];
    /* In the area, which is out on storage in part: it is written from end to end in between. */
    memset(area, (int)s, area_bytes);
    char* const place = area + (area_bytes / 8 * (s + 1) & ~(size_t)63);
    int* numbers = (int*)place;
    int* sums = (int*)(place + (64 << 10));
    double* reals = (double*)(place + (128 << 10));
    for (int root = 0; root < size; ++root) {
      /* The root's elements have gaps, or everybody else's have. */
      const int mine = (rank == root) == (root % 2 == 0) ? 3 : 1;
      for (int i = 0; i < 3 * n; ++i) {
        numbers[i] = rank == root && i % mine == 0 ? root * 1000 + i / mine : -1;
      }
      MPI_Bcast(numbers, n, mine == 3 ? every_third : MPI_INT, root, comm);
      for (int i = 0; i < mine * n; ++i) {
        const int expected = i % mine == 0 ? root * 1000 + i / mine : -1;
        if (numbers[i] != expected) {
          fail("MPI_Bcast", n, i, numbers[i], expected);
        }
      }
      staged += stages;
    }
    for (int i = 0; i < n; ++i) {
      numbers[i] = rank + i;
      sums[i] = rank - i;
      reals[i] = rank * 0.5 + i;
    }
    MPI_Allreduce(numbers, sums, n, MPI_INT, MPI_SUM, comm);
    for (int i = 0; i < n; ++i) {
      if (sums[i] != size * (size - 1) / 2 + size * i) {
        fail("MPI_Allreduce", n, i, sums[i], size * (size - 1) / 2 + size * i);
      }
    }
    MPI_Allreduce(MPI_IN_PLACE, reals, n > 2000 ? 2000 : n, MPI_DOUBLE, MPI_MAX, comm);
    for (int i = 0; i < n && i < 2000; ++i) {
      if (reals[i] != (size - 1) * 0.5 + i) {
        fail("MPI_Allreduce in place", n, i, reals[i], (size - 1) * 0.5 + i);
      }
    }
    struct {
      double value;
      int place;
    } mine = {(rank + n) % 3, rank}, lowest;
    MPI_Allreduce(&mine, &lowest, 1, MPI_DOUBLE_INT, MPI_MINLOC, comm);
    int expected = 0; /* the first of those that have the least */
    for (int r = size - 1; r >= 0; --r) {
      expected = (r + n) % 3 <= (expected + n) % 3 ? r : expected;
    }
    if (lowest.place != expected || lowest.value != (expected + n) % 3) {
      fail("MPI_Allreduce of places", n, 0, lowest.place, expected);
    }
    staged += 3 * stages;
    /* The library's: a sum that depends on the order. */
    double half = 0.5 * rank, total = 0;
    MPI_Allreduce(&half, &total, 1, MPI_DOUBLE, MPI_SUM, comm);
    if (total != 0.25 * size * (size - 1)) {
      fail("MPI_Allreduce of reals", 1, 0, total, 0.25 * size * (size - 1));
    }
    MPI_Barrier(comm);
    staged += stages;
  }
  /* Nobody leaves a barrier before all have come. */
  for (int late = 0; late < size; ++late) {
    const double began = now();
    double came = began, latest;
    if (rank == late) {
      while (now() - began < 0.003) {
      }
      came = now();
    }
    MPI_Barrier(comm);
    const double left = now();
    MPI_Allreduce(&came, &latest, 1, MPI_DOUBLE, MPI_MAX, comm);
    if (left < latest) {
      fail("MPI_Barrier", late, rank, left, latest);
    }
    staged += 2 * stages;
  }
  MPI_Type_free(&gaps);
  MPI_Type_free(&every_third);
}

/* Too long to go in stages. */
static void long_ones(MPI_Comm comm) {
  enum { LONG = 40000 };
  int* numbers = malloc(LONG * sizeof(int));
  for (int i = 0; i < LONG; ++i) {
    numbers[i] = rank == size - 1 ? i : -1;
  }
  MPI_Bcast(numbers, LONG, MPI_INT, size - 1, comm);
  MPI_Allreduce(MPI_IN_PLACE, numbers, LONG, MPI_INT, MPI_SUM, comm);
  for (int i = 0; i < LONG; ++i) {
    if (numbers[i] != size * i) {
      fail("long ones", LONG, i, numbers[i], (double)size * i);
    }
  }
  free(numbers);
}

/* Sums whose last bits tell in which order they were made: the library's, whatever it has not seen in between. */
static void print_sums(void) {
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  for (int round = 0; round < 12; ++round) {
    double mine = 1.0 / (world_rank + 3 + round), sum = 0, reduced = 0;
    int one = 1, count = 0;
    for (int i = 0; i < round % 3; ++i) {
      MPI_Barrier(comm);
      MPI_Allreduce(&one, &count, 1, MPI_INT, MPI_SUM, comm);
      staged += 2;
    }
    MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, comm);
    MPI_Reduce(&mine, &reduced, 1, MPI_DOUBLE, MPI_SUM, 0, comm);
    if (world_rank == 0) {
      printf("%a %a\n", sum, reduced);
    }
  }
  MPI_Comm_free(&comm);
}

static void end(void) {
  long all = 0;
  MPI_Reduce(&staged, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  if (world_rank == 0) {
    printf("staged ok %ld\n", all);
  }
  MPI_Finalize();
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world_size);
  nodes = atoi(argv[1]);
  const int pressure = argc > 2 ? atoi(argv[2]) : 0;
  area_bytes = (size_t)(pressure > 0 ? pressure : 2) << 20;
  area = malloc(area_bytes);
  MPI_Comm comm;
  all_on(MPI_COMM_WORLD, "the world");
  if (pressure > 0) {
    end();
    return 0;
  }
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  all_on(comm, "a copy");
  MPI_Comm_free(&comm);
  MPI_Comm_split(MPI_COMM_WORLD, 0, -world_rank, &comm);
  all_on(comm, "the world turned round");
  MPI_Comm_free(&comm);
  MPI_Comm_split(MPI_COMM_WORLD, world_rank == world_size - 1 ? MPI_UNDEFINED : 0, 0, &comm);
  all_on(comm, "all but the last");
  if (comm != MPI_COMM_NULL) {
    MPI_Comm_free(&comm);
  }
  MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2, 0, &comm);
  all_on(comm, "every second");
  MPI_Comm_free(&comm);
  MPI_Comm_split(MPI_COMM_WORLD, world_rank / 2, 0, &comm);
  all_on(comm, "a pair");
  MPI_Comm_free(&comm);
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &comm); /* the library's idea of a node */
  all_on(comm, "the library's node");
  MPI_Comm_free(&comm);
  MPI_Comm_dup(MPI_COMM_WORLD, &comm); /* not freed */
  all_on(comm, "a copy that stays");
  MPI_Comm other;
  MPI_Request request;
  MPI_Comm_idup(MPI_COMM_WORLD, &other, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  all_on(other, "a copy that was waited for");
  MPI_Comm_disconnect(&other);
  MPI_Comm_dup(MPI_COMM_WORLD, &other);
  all_on(other, "a copy after one that was disconnected");
  MPI_Comm_free(&other);
  rank = world_rank;
  size = world_size;
  name = "the world";
  long_ones(MPI_COMM_WORLD);
  print_sums();
  end();
  return 0;
}
