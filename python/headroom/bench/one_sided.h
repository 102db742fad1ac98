/* The one-sided part of messages.c: rank 0 puts into the part of rank 1, or gets from it, and whatever way they synchronise the
 * content is there at the end of each operation. Windows of memory that the program has, and of memory that MPI allocates. */
static MPI_Win part;
static MPI_Group other_rank;

static void put_and_fence(void) {
  if (rank == 0) {
    MPI_Put(out, bytes, MPI_BYTE, 1, 0, bytes, MPI_BYTE, part);
  }
  MPI_Win_fence(0, part);
}
static void put_between_start_and_complete(void) {
  if (rank == 0) {
    MPI_Win_start(other_rank, 0, part);
    MPI_Put(out, bytes, MPI_BYTE, 1, 0, bytes, MPI_BYTE, part);
    MPI_Win_complete(part);
  } else {
    MPI_Win_post(other_rank, 0, part);
    MPI_Win_wait(part);
  }
}
static void put_under_lock(void) {
  if (rank == 0) {
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, part);
    MPI_Put(out, bytes, MPI_BYTE, 1, 0, bytes, MPI_BYTE, part);
    MPI_Win_unlock(1, part);
  }
}
static void put_and_flush(void) {
  if (rank == 0) {
    MPI_Put(out, bytes, MPI_BYTE, 1, 0, bytes, MPI_BYTE, part);
    MPI_Win_flush(1, part);
  }
}
static void get_and_flush(void) {
  if (rank == 0) {
    MPI_Get(out, bytes, MPI_BYTE, 1, 0, bytes, MPI_BYTE, part);
    MPI_Win_flush(1, part);
  }
}
static void accumulate_and_flush(void) {
  if (rank == 0) {
    MPI_Accumulate(out, bytes / 8, MPI_INT64_T, 1, 0, bytes / 8, MPI_INT64_T, MPI_SUM, part);
    MPI_Win_flush(1, part);
  }
}
static void fetch_and_add(void) {
  if (rank == 0) {
    MPI_Fetch_and_op(out, out + 64, MPI_INT64_T, 1, 0, MPI_SUM, part);
    MPI_Win_flush(1, part);
  }
}

static void measure_window(const char* kind) {
  static const int sizes[] = {8, 4 << 10, 64 << 10, 1 << 20};
  static const struct {
    const char* what;
    void (*operation)(void);
    int passive;
  } all[] = {{"put, fence", put_and_fence, 0},           {"put, start to complete", put_between_start_and_complete, 0},
             {"put, lock to unlock", put_under_lock, 0}, {"put, flush", put_and_flush, 1},
             {"get, flush", get_and_flush, 1},           {"accumulate, flush", accumulate_and_flush, 1}};
  char what[64];
  for (size_t a = 0; a < sizeof all / sizeof *all; ++a) {
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; ++s) {
      bytes = sizes[s];
      snprintf(what, sizeof what, "%s%s", all[a].what, kind);
      MPI_Win_fence(MPI_MODE_NOSUCCEED, part);
      if (all[a].passive) {
        MPI_Win_lock_all(0, part);
      } else if (all[a].operation == put_and_fence) {
        MPI_Win_fence(MPI_MODE_NOPRECEDE, part);
      }
      measure(what, all[a].operation, 1);
      if (all[a].passive) {
        MPI_Win_unlock_all(part);
      } else if (all[a].operation == put_and_fence) {
        MPI_Win_fence(MPI_MODE_NOSUCCEED, part);
      }
    }
  }
  bytes = 8;
  snprintf(what, sizeof what, "fetch and add, flush%s", kind);
  MPI_Win_lock_all(0, part);
  measure(what, fetch_and_add, 1);
  MPI_Win_unlock_all(part);
}

static void one_sided(void) {
  const int other = 1 - rank;
  MPI_Group world;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_incl(world, 1, &other, &other_rank);
  MPI_Win_create(in, WARM_BYTES, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &part);
  measure_window("");
  MPI_Win_free(&part);
  char* allocated;
  MPI_Win_allocate(WARM_BYTES, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &allocated, &part);
  memset(allocated, 1, WARM_BYTES);
  measure_window(", allocated");
  MPI_Win_free(&part);
  MPI_Group_free(&other_rank);
  MPI_Group_free(&world);
}
