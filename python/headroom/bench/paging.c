/* What `headroom bench paging` runs: phases over an array of each rank, and what the disk under it can do.
 *
 *   paging MIB PHASE...     each rank allocates MIB and goes through the phases; a barrier lies between any two
 *   paging disk FOLDER MIB  bandwidth and small reads of a file there, past the page cache
 *
 * Phases: touch read write update backward strided in-step columns, one pass over the array each; random-read:N and
 * random-update:N, N words at random in each rank; random-hot-read:N and random-hot-update:N, four of five of these in every
 * fifth page; random-zipf-read:N and random-zipf-update:N, of pieces of 1 KiB the k-th with a probability of 1/k;
 * objects-...:N, small objects beside the array (objects.h); hash-...:N and tree-...:N, structures in it (structures.h).
 * Content is checked: word i is i * kStep + version, so a pass knows the sum that it must find. Prints
 * "PHASE<tab>seconds<tab>bytes<tab>MiB read<tab>MiB written" (of the slowest rank; of all; the last two under Headroom, else
 * 0). */
#define _GNU_SOURCE
#include <fcntl.h>
#include <headroom/headroom.h>
#include <math.h>
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { kPageWords = 512, kStridePages = 16, kPieceWords = 128, kMostDepth = 16 };
static const uint64_t kStep = 2654435761u, kScatter = 1000003; /* the latter is a prime */

static uint64_t* array;
static uint64_t words, version;
static int wrong;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint64_t next_random(uint64_t* state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

static uint64_t expected_sum(void) {
  const uint64_t pairs = words % 2 == 0 ? words / 2 * (words - 1) : (words - 1) / 2 * words;
  return pairs * kStep + words * version;
}

static void must_be(uint64_t sum) { wrong |= sum != expected_sum(); }

static void overwrite(void) {
  ++version;
  for (uint64_t i = 0; i < words; ++i) {
    array[i] = i * kStep + version;
  }
}

static void read_all(void) {
  uint64_t sum = 0;
  for (uint64_t i = 0; i < words; ++i) {
    sum += array[i];
  }
  must_be(sum);
}

static void update(void) {
  uint64_t sum = 0;
  for (uint64_t i = 0; i < words; ++i) {
    sum += array[i]++;
  }
  must_be(sum);
  ++version;
}

static void read_backward(void) {
  uint64_t sum = 0;
  for (uint64_t i = words; i-- > 0;) {
    sum += array[i];
  }
  must_be(sum);
}

/* Pages 0, 16, 32... then 1, 17, 33...: as a column of a matrix whose rows are 64 KiB. */
static void read_strided(void) {
  uint64_t sum = 0;
  for (uint64_t begin = 0; begin < kStridePages; ++begin) {
    for (uint64_t page = begin; page < words / kPageWords; page += kStridePages) {
      for (uint64_t i = page * kPageWords; i < (page + 1) * kPageWords; ++i) {
        sum += array[i];
      }
    }
  }
  must_be(sum);
}

/* Eight parts of the array side by side, as a loop over the fields of a grid. */
static void read_in_step(void) {
  enum { kParts = 8 };
  const uint64_t part = words / kParts;
  uint64_t sum = 0;
  for (uint64_t i = 0; i < part; ++i) {
    for (uint64_t each = 0; each < kParts; ++each) {
      sum += array[each * part + i];
    }
  }
  for (uint64_t i = part * kParts; i < words; ++i) {
    sum += array[i];
  }
  must_be(sum);
}

/* The array as a square matrix that lies in rows, column by column. */
static void read_columns(void) {
  uint64_t n = 1, sum = 0;
  while ((n + 1) * (n + 1) <= words) {
    ++n;
  }
  for (uint64_t column = 0; column < n; ++column) {
    for (uint64_t row = 0; row < n; ++row) {
      sum += array[row * n + column];
    }
  }
  for (uint64_t i = n * n; i < words; ++i) {
    sum += array[i];
  }
  must_be(sum);
}

enum spread { kUniform, kHot, kZipf };

/* A piece of 1 KiB, the k-th with a probability of 1/k, wherever the k-th may lie; and one of its words. */
static uint64_t next_zipf_word(uint64_t* state) {
  const uint64_t pieces = words / kPieceWords;
  const double fraction = (double)(next_random(state) >> 11) * 0x1p-53;
  const uint64_t popularity = (uint64_t)exp(fraction * log((double)pieces));
  return popularity * kScatter % pieces * kPieceWords + next_random(state) % kPieceWords;
}

/* A word of the array; kHot: mostly one of every fifth page. */
static uint64_t next_word(uint64_t* state, enum spread spread) {
  if (spread == kZipf) {
    return next_zipf_word(state);
  }
  if (spread == kUniform || next_random(state) % 5 == 0) {
    return next_random(state) % words;
  }
  const uint64_t hot_pages = words / kPageWords / 5;
  return next_random(state) % hot_pages * 5 * kPageWords + next_random(state) % kPageWords;
}

static void read_random(uint64_t count, uint64_t seed, enum spread spread) {
  for (uint64_t each = 0; each < count; ++each) {
    const uint64_t i = next_word(&seed, spread);
    wrong |= array[i] != i * kStep + version;
  }
}

/* The second half undoes what the first has done, so that the array is as it was. */
static void update_random(uint64_t count, uint64_t seed, enum spread spread) {
  for (int half = 0; half < 2; ++half) {
    uint64_t state = seed;
    for (uint64_t each = 0; each < count / 2; ++each) {
      const uint64_t i = next_word(&state, spread);
      array[i] ^= i | 1;
    }
  }
}

#include "objects.h"
#include "structures.h"

/* Bytes of the array that the phase goes over, or eight for each word that it uses or thing that it does with an object. */
static uint64_t run_phase(const char* phase, uint64_t seed) {
  static const struct {
    const char* name;
    void (*run)(void);
  } passes[] = {{"touch", overwrite},      {"write", overwrite},        {"read", read_all},
                {"update", update},        {"backward", read_backward}, {"strided", read_strided},
                {"in-step", read_in_step}, {"columns", read_columns},   {"tree-build", build_tree}};
  for (size_t each = 0; each < sizeof passes / sizeof *passes; ++each) {
    if (strcmp(phase, passes[each].name) == 0) {
      passes[each].run();
      return words * 8;
    }
  }
  const char* colon = strchr(phase, ':');
  const uint64_t count = colon != NULL ? strtoull(colon + 1, NULL, 10) : 0;
  if (count > 0 && strncmp(phase, "random-read:", 12) == 0) {
    read_random(count, seed, kUniform);
  } else if (count > 0 && strncmp(phase, "random-update:", 14) == 0) {
    update_random(count, seed, kUniform);
  } else if (count > 0 && strncmp(phase, "random-hot-read:", 16) == 0) {
    read_random(count, seed, kHot);
  } else if (count > 0 && strncmp(phase, "random-hot-update:", 18) == 0) {
    update_random(count, seed, kHot);
  } else if (count > 0 && strncmp(phase, "random-zipf-read:", 17) == 0) {
    read_random(count, seed, kZipf);
  } else if (count > 0 && strncmp(phase, "random-zipf-update:", 19) == 0) {
    update_random(count, seed, kZipf);
  } else if (count > 0 && strncmp(phase, "hash-insert:", 12) == 0) {
    return 8 * insert_entries(count);
  } else if (count > 0 && strncmp(phase, "hash-find:", 10) == 0) {
    return 8 * find_entries(count, seed);
  } else if (count > 0 && strncmp(phase, "tree-find:", 10) == 0) {
    return 8 * find_keys(count, seed);
  } else if (count > 0 && strncmp(phase, "tree-update:", 12) == 0) {
    return 8 * update_keys(count, seed);
  } else if (count > 0 && strncmp(phase, "objects-tree:", 13) == 0) {
    return 8 * use_tree(count);
  } else if (count > 0 && strncmp(phase, "objects-lists:", 14) == 0) {
    return 8 * use_lists(count);
  } else if (count > 0 && strncmp(phase, "objects-threads:", 16) == 0) {
    return 8 * use_threads(count);
  } else {
    fprintf(stderr, "paging: no phase is called %s\n", phase);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  return count * 8;
}

static void read_statistics(uint64_t moved[2]) {
  struct headroom_statistics statistics = {.size = sizeof statistics};
  if (headroom_read_statistics && headroom_read_statistics(&statistics) == 0) {
    moved[0] = statistics.read_bytes;
    moved[1] = statistics.written_bytes;
  }
}

static int run_phases(int count, char** phases, uint64_t mib) {
  int rank = 0, all_wrong = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  words = mib << 17;
  array = calloc(words, 8);
  if (array == NULL) {
    fprintf(stderr, "paging: no memory for %llu MiB\n", (unsigned long long)mib);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  for (int each = 0; each < count; ++each) {
    uint64_t before[2] = {0, 0}, after[2] = {0, 0};
    MPI_Barrier(MPI_COMM_WORLD);
    read_statistics(before);
    const double started = now();
    const uint64_t seed = 88172645463325252u + (uint64_t)(rank * 1000 + each);  // no two phases use the same words
    uint64_t mine[3] = {run_phase(phases[each], seed), 0, 0}, all[3];
    MPI_Barrier(MPI_COMM_WORLD);
    double seconds = now() - started, slowest = 0;
    read_statistics(after);
    mine[1] = after[0] - before[0];
    mine[2] = after[1] - before[1];
    MPI_Reduce(mine, all, 3, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Reduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Allreduce(&wrong, &all_wrong, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (all_wrong) {
      if (rank == 0) {
        fprintf(stderr, "paging: wrong content in %s\n", phases[each]);
      }
      return 1;
    }
    if (rank == 0) {
      printf("%s\t%.6f\t%llu\t%.1f\t%.1f\n", phases[each], slowest, (unsigned long long)all[0], (double)all[1] / 1048576,
             (double)all[2] / 1048576);
      fflush(stdout);
    }
  }
  return 0;
}

/* The disk: several threads, each every so-manieth piece, in huge pages where there are any, since requests of scattered small
 * pages are slower. The clock starts when all have their buffers. */
struct DiskPart {
  int file, index, threads, mixed, error;
  size_t piece;
  uint64_t pieces;
  pthread_barrier_t* ready;
};

static void* use_disk(void* argument) {
  struct DiskPart* part = argument;
  void* buffer = NULL;
  part->error = posix_memalign(&buffer, 2 << 20, 2 << 20) != 0;
  if (!part->error) {
    (void)madvise(buffer, 2 << 20, MADV_HUGEPAGE);
    memset(buffer, part->index + 1, part->piece);
  }
  pthread_barrier_wait(part->ready);
  for (uint64_t each = (uint64_t)part->index; each < part->pieces && !part->error; each += (uint64_t)part->threads) {
    const off_t at = (off_t)(each * part->piece);
    const ssize_t moved = part->mixed == 1 || (part->mixed == 2 && part->index % 2 == 0)
                              ? pwrite(part->file, buffer, part->piece, at)
                              : pread(part->file, buffer, part->piece, at);
    part->error |= moved != (ssize_t)part->piece;
  }
  free(buffer);
  return NULL;
}

/* MiB/s of reading (0), writing (1) or half of each (2) in pieces of `piece` bytes, by so many threads; negative after an
 * error. */
static double disk_speed_of(int file, int mixed, size_t piece, uint64_t bytes, int depth) {
  pthread_t threads[kMostDepth];
  struct DiskPart parts[kMostDepth];
  pthread_barrier_t ready;
  int failed = 0;
  pthread_barrier_init(&ready, NULL, (unsigned)depth + 1);
  for (int each = 0; each < depth; ++each) {
    parts[each] = (struct DiskPart){file, each, depth, mixed, 0, piece, bytes / piece, &ready};
    if (pthread_create(&threads[each], NULL, use_disk, &parts[each]) != 0) {
      fprintf(stderr, "paging: no more threads\n");
      exit(1);
    }
  }
  pthread_barrier_wait(&ready);
  const double started = now();
  for (int each = 0; each < depth; ++each) {
    pthread_join(threads[each], NULL);
    failed |= parts[each].error;
  }
  const double seconds = now() - started;
  pthread_barrier_destroy(&ready);
  return failed ? -1 : (double)bytes / 1048576 / seconds;
}

/* The same with as many at a time as are fastest: disks differ. */
static double disk_speed(int file, int mixed, size_t piece, uint64_t bytes) {
  double best = -1;
  for (int depth = 2; depth <= kMostDepth; depth *= 2) {
    const double speed = disk_speed_of(file, mixed, piece, bytes, depth);
    best = speed > best ? speed : best;
  }
  return best;
}

static int measure_disk(const char* folder, uint64_t mib) {
  char path[4096];
  snprintf(path, sizeof path, "%s/headroom-disk-XXXXXX", folder);
  const int made = mkstemp(path);
  const int file = made < 0 ? -1 : open(path, O_RDWR | O_DIRECT);
  if (made >= 0) {
    unlink(path);
  }
  if (file < 0 || posix_fallocate(file, 0, (off_t)(mib << 20)) != 0) {
    fprintf(stderr, "paging: %s cannot be measured: no direct I/O, or no room for %llu MiB\n", folder, (unsigned long long)mib);
    return 1;
  }
  const uint64_t bytes = mib << 20;
  /* The first writing of a file can be slower than the next: a virtual disk gives out room only then. */
  const double first = disk_speed_of(file, 1, 1 << 20, bytes, kMostDepth);
  const double speeds[] = {disk_speed(file, 1, 1 << 20, bytes), disk_speed(file, 0, 1 << 20, bytes),
                           disk_speed(file, 2, 1 << 20, bytes), disk_speed(file, 0, 4096, bytes / 16)};
  printf("first\t%.1f\nwrite\t%.1f\nread\t%.1f\nmixed\t%.1f\npages\t%.1f\n", first, speeds[0], speeds[1], speeds[2], speeds[3]);
  return 0;
}

int main(int argc, char** argv) {
  if (argc == 4 && strcmp(argv[1], "disk") == 0) {
    return measure_disk(argv[2], strtoull(argv[3], NULL, 10));
  }
  if (argc < 3) {
    fprintf(stderr, "usage: paging MIB PHASE... | paging disk FOLDER MIB\n");
    return 2;
  }
  MPI_Init(&argc, &argv);
  const int status = run_phases(argc - 2, argv + 2, strtoull(argv[1], NULL, 10));
  MPI_Finalize();
  return status;
}
