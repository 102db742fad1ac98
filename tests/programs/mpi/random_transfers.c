/* Random nested datatypes on both sides of collectives and of one-sided calls, with MPI_Pack and MPI_Unpack as the oracle.
   Prints "ok", how many collectives each rank made, puts, gets and accumulates. usage: random_transfers PRESSURE_MIB SEED
   ROUNDS */
#include "pressure.h"
#include "random_datatypes.h"

enum { kMiddle = 12 << 20, kArea = 24 << 20, kSlack = 256 << 10, kMostBytes = 6 << 20, kMostRanks = 16 };

static unsigned char *out, *in, *expected, *scratch, *packed;
static MPI_Datatype sent, kept;
static int sent_count, kept_count, packed_bytes;
static MPI_Aint sent_step, kept_step; /* from one part to the next */
static int rank, ranks, to, from;
static long made, were_put, were_got, were_folded;
static MPI_Win in_window, out_window;
static MPI_Comm ring;

/* What a rank has in all of its parts. */
static void write_content(unsigned char* area, int of) {
  const size_t reach = (size_t)(sent_step * ranks) + kSlack;
  for (size_t i = 0; i < reach + kSlack; ++i) {
    area[kMiddle - kSlack + i] = (unsigned char)(i * 7 + (size_t)of * 11 + (i >> 9));
  }
}

static void forget(unsigned char* area) { memset(area + kMiddle - kSlack, 0x33, (size_t)(kept_step * ranks) + 2 * kSlack); }

/* Part `part` of rank `of` is to be at place `place` here. */
static void expect(int of, int part, int place) {
  write_content(scratch, of);
  int position = 0;
  MPI_Pack(scratch + kMiddle + part * sent_step, sent_count, sent, packed, packed_bytes, &position, MPI_COMM_WORLD);
  position = 0;
  MPI_Unpack(packed, packed_bytes, &position, expected + kMiddle + place * kept_step, kept_count, kept, MPI_COMM_WORLD);
}

static void check_all(const char* call) {
  const size_t reach = (size_t)(kept_step * ranks) + 2 * kSlack;
  if (memcmp(in + kMiddle - kSlack, expected + kMiddle - kSlack, reach) != 0) {
    fprintf(stderr, "rank %d: wrong content after %s\n", rank, call);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  forget(in);
  forget(expected);
}

/* The two datatypes of a round; 0 if they cannot be used. */
static int draw(uint64_t seed, unsigned* kind) {
  state = seed;
  int sent_atoms, kept_atoms, bytes_of_one;
  *kind = pick(ATOMS);
  sent = bounded_type(&sent_atoms, *kind, kPacksOverlaps);
  kept = bounded_type(&kept_atoms, *kind, 0);
  sent_count = kept_atoms;
  kept_count = sent_atoms;
  MPI_Type_size(sent, &bytes_of_one);
  packed_bytes = bytes_of_one * sent_count;
  MPI_Aint lower, sent_extent, kept_extent, true_lower, true_extent;
  MPI_Type_get_extent(sent, &lower, &sent_extent);
  MPI_Type_get_extent(kept, &lower, &kept_extent);
  MPI_Type_get_true_extent(kept, &true_lower, &true_extent);
  sent_step = sent_extent * sent_count;
  kept_step = kept_extent * kept_count;
  if (kept_extent >= true_extent && kept_extent > 0 && sent_extent > 0 && kept_step * ranks < kMostBytes &&
      sent_step * ranks < kMostBytes) {
    return 1;
  }
  MPI_Type_free(&sent);
  MPI_Type_free(&kept);
  return 0;
}

static void rooted(int root) {
  MPI_Bcast(rank == root ? out + kMiddle : in + kMiddle, rank == root ? sent_count : kept_count, rank == root ? sent : kept,
            root, MPI_COMM_WORLD);
  if (rank != root) {
    expect(root, 0, 0);
  }
  check_all("MPI_Bcast");
  MPI_Gather(out + kMiddle, sent_count, sent, in + kMiddle, kept_count, kept, root, MPI_COMM_WORLD);
  for (int r = 0; r < ranks && rank == root; ++r) {
    expect(r, 0, r);
  }
  check_all("MPI_Gather");
  MPI_Scatter(out + kMiddle, sent_count, sent, in + kMiddle, kept_count, kept, root, MPI_COMM_WORLD);
  expect(root, rank, 0);
  check_all("MPI_Scatter");
  made += 3;
}

static void everywhere(void) {
  MPI_Allgather(out + kMiddle, sent_count, sent, in + kMiddle, kept_count, kept, MPI_COMM_WORLD);
  for (int r = 0; r < ranks; ++r) {
    expect(r, 0, r);
  }
  check_all("MPI_Allgather");
  MPI_Alltoall(out + kMiddle, sent_count, sent, in + kMiddle, kept_count, kept, MPI_COMM_WORLD);
  for (int r = 0; r < ranks; ++r) {
    expect(r, rank, r);
  }
  check_all("MPI_Alltoall");
  MPI_Request request;
  MPI_Ialltoall(out + kMiddle, sent_count, sent, in + kMiddle, kept_count, kept, MPI_COMM_WORLD, &request);
  for (int r = 0; r < ranks; ++r) {
    expect(r, rank, r);
  }
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  check_all("MPI_Ialltoall");
  /* Places turned round. */
  int counts[kMostRanks], places[kMostRanks], kept_counts[kMostRanks], kept_places[kMostRanks];
  MPI_Datatype types[kMostRanks], kept_types[kMostRanks];
  for (int r = 0; r < ranks; ++r) {
    counts[r] = sent_count;
    kept_counts[r] = kept_count;
    places[r] = (int)((ranks - 1 - r) * sent_step);
    kept_places[r] = (int)((ranks - 1 - r) * kept_step);
    types[r] = sent;
    kept_types[r] = kept;
  }
  MPI_Alltoallw(out + kMiddle, counts, places, types, in + kMiddle, kept_counts, kept_places, kept_types, MPI_COMM_WORLD);
  for (int r = 0; r < ranks; ++r) {
    expect(r, ranks - 1 - rank, ranks - 1 - r);
  }
  check_all("MPI_Alltoallw");
  for (int r = 0; r < ranks; ++r) {
    kept_places[r] = (ranks - 1 - r) * kept_count;
  }
  MPI_Allgatherv(out + kMiddle, sent_count, sent, in + kMiddle, kept_counts, kept_places, kept, MPI_COMM_WORLD);
  for (int r = 0; r < ranks; ++r) {
    expect(r, 0, ranks - 1 - r);
  }
  check_all("MPI_Allgatherv");
  made += 5;
  if (ranks > 2) {
    MPI_Neighbor_alltoall(out + kMiddle, sent_count, sent, in + kMiddle, kept_count, kept, ring);
    expect(from, 1, 0);
    expect(to, 0, 1);
    check_all("MPI_Neighbor_alltoall");
    ++made;
  }
}

/* A window is the target's memory from its middle on; what lies before it is reached all the same. */
static void one_sided(int accumulates) {
  MPI_Win_fence(0, in_window);
  MPI_Put(out + kMiddle, sent_count, sent, to, kMiddle, kept_count, kept, in_window);
  MPI_Win_fence(0, in_window);
  ++were_put;
  expect(from, 0, 0);
  check_all("MPI_Put");
  MPI_Win_lock_all(0, out_window);
  MPI_Request request;
  if (rank % 2 == 0) {
    MPI_Rget(in + kMiddle, kept_count, kept, from, kMiddle + sent_step, sent_count, sent, out_window, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  } else {
    MPI_Get(in + kMiddle, kept_count, kept, from, kMiddle + sent_step, sent_count, sent, out_window);
  }
  MPI_Win_unlock_all(out_window);
  ++were_got;
  expect(from, 1, 0);
  check_all("MPI_Get");
  if (accumulates) {
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, to, 0, in_window);
    MPI_Accumulate(out + kMiddle, sent_count, sent, to, kMiddle, kept_count, kept, MPI_REPLACE, in_window);
    MPI_Win_unlock(to, in_window);
    MPI_Barrier(MPI_COMM_WORLD);
    ++were_folded;
    made += 2;
    expect(from, 0, 0);
    check_all("MPI_Accumulate");
  }
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  CHECK(argc == 4 && ranks <= kMostRanks);
  to = (rank + 1) % ranks;
  from = (rank + ranks - 1) % ranks;
  bytes = (size_t)atoi(argv[1]) << 20;
  pressure = malloc(bytes + 1);
  const uint64_t seed = strtoull(argv[2], NULL, 10);
  const int rounds = atoi(argv[3]), yes = 1;
  unsigned char** areas[] = {&out, &in, &expected, &scratch, &packed};
  for (int i = 0; i < 5; ++i) {
    *areas[i] = malloc(kArea);
  }
  MPI_Cart_create(MPI_COMM_WORLD, 1, &ranks, &yes, 0, &ring);
  MPI_Win_create(in, kArea, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &in_window);
  MPI_Win_create(out, kArea, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &out_window);
  for (int round = 0; round < rounds; ++round) {
    unsigned kind;
    if (!draw(seed + (uint64_t)round * 977, &kind)) {
      continue;
    }
    write_content(out, rank);
    forget(in);
    forget(expected);
    const int presses = round % 4 == 0;
    if (presses) {
      press();
    }
    rooted(round % ranks);
    everywhere();
    if (presses) {
      press(); /* what others put and get is on storage, too */
    }
    one_sided(kind < 4);         /* made of one basic datatype */
    MPI_Barrier(MPI_COMM_WORLD); /* nobody gets any more what is written next */
    ++made;
    MPI_Type_free(&sent);
    MPI_Type_free(&kept);
  }
  MPI_Win_free(&in_window);
  MPI_Win_free(&out_window);
  MPI_Comm_free(&ring);
  if (rank == 0) {
    printf("ok %ld %ld %ld %ld\n", made, were_put, were_got, were_folded);
  }
  MPI_Finalize();
  return 0;
}
