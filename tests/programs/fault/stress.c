/* Random work on memory against a model of it: threads that read, write, allocate, free, resize, move, protect, discard, free
 * lazily, have paged out, pass to the kernel, announce, fork and take signals, each on regions of its own; in between the ranks
 * exchange regions.
 *
 *   stress THREADS MIB OPERATIONS SEED
 *
 * MIB is what each thread may have allocated. The model is a version for each page: a page of version 0 is all zero, any other
 * has words that follow from region, page and version; after MADV_FREE each of them may be zero instead until the page is
 * written to. Prints "wrong 0" and how often each operation was done; the same seed gives each thread the same operations. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <headroom/memory.h>
#include <limits.h>
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pressure.h"

enum { kPage = 4096, kPageWords = kPage / 8, kRegions = 12, kEpochs = 3, kMostThreads = 16, kMostPages = 2048 };

static const uint32_t kMayBeZero = UINT32_C(1) << 31; /* in a version */

typedef struct {
  uint64_t* memory;
  uint32_t* versions;
  size_t pages;
  uint64_t id;
  int mapped; /* by mmap, else allocated */
} Region;

typedef struct {
  Region regions[kRegions];
  uint64_t random;
  size_t most_pages;
  size_t pages;
  long operations;
  int file;
  uint64_t next_id;
} Worker;

enum {
  kWrite,
  kCheck,
  kScatter,
  kJump,
  kColumns,
  kReplace,
  kResize,
  kDiscard,
  kFree,
  kPageOut,
  kThroughFile,
  kProtect,
  kFork,
  kSpawn,
  kHint,
  kLock,
  kSignal,
  kThread,
  kKinds
};
static const char* const names[kKinds] = {"write",  "check",   "scatter", "jump",     "columns",      "replace",
                                          "resize", "discard", "free",    "page-out", "through-file", "protect",
                                          "fork",   "spawn",   "hint",    "lock",     "signal",       "thread"};
static const int weights[kKinds] = {24, 20, 12, 2, 1, 5, 5, 5, 5, 3, 6, 4, 1, 1, 8, 2, 3, 2};
static atomic_long done[kKinds];
static atomic_int wrong;
static _Thread_local Worker* current;

static uint64_t random_of(Worker* worker, uint64_t below) {
  worker->random ^= worker->random << 13;
  worker->random ^= worker->random >> 7;
  worker->random ^= worker->random << 17;
  return (worker->random >> 11) % below;
}

static uint64_t word_of(const Region* region, size_t page, uint32_t version, size_t i) {
  return version == 0 ? 0 : (region->id << 40) + ((uint64_t)page << 20) + version * UINT64_C(0x9e3779b97f4a7c15) + i;
}

static void write_page(Region* region, size_t page) {
  const uint32_t version = (region->versions[page] & ~kMayBeZero) + 1;
  region->versions[page] = version;
  uint64_t* words = region->memory + page * kPageWords;
  for (size_t i = 0; i < kPageWords; ++i) {
    words[i] = word_of(region, page, version, i);
  }
}

static int check_page(const Region* region, size_t page, const char* when) {
  const volatile uint64_t* words = region->memory + page * kPageWords;
  const int may_be_zero = (region->versions[page] & kMayBeZero) != 0;
  for (size_t i = 0; i < kPageWords; ++i) {
    const uint64_t expected = word_of(region, page, region->versions[page] & ~kMayBeZero, i);
    const uint64_t found = words[i];
    if (found != expected && !(may_be_zero && found == 0)) {
      if (atomic_fetch_add(&wrong, 1) < 10) {
        fprintf(stderr, "%s: region %llu page %zu of %zu at %p word %zu: %llx instead of %llx\n", when,
                (unsigned long long)region->id, page, region->pages, (void*)&words[i], i, (unsigned long long)found,
                (unsigned long long)expected);
      }
      return 0;
    }
  }
  return 1;
}

static void check_range(const Region* region, size_t first, size_t count, const char* when) {
  for (size_t page = first; page < first + count; ++page) {
    if (!check_page(region, page, when)) {
      return;
    }
  }
}

static void choose_range(Worker* worker, const Region* region, size_t most, size_t* first, size_t* count) {
  *first = random_of(worker, region->pages);
  const size_t left = region->pages - *first;
  *count = 1 + random_of(worker, left < most ? left : most);
}

static void forget_region(Worker* worker, Region* region) {
  if (region->mapped) {
    CHECK(munmap(region->memory, region->pages * kPage) == 0);
  } else {
    free(region->memory);
  }
  free(region->versions);
  worker->pages -= region->pages;
  *region = (Region){0};
}

/* Sizes from a few pages to several MiB, so that some lie below what is evictable and blocks are shared. */
static void make_region(Worker* worker, Region* region) {
  const size_t largest = random_of(worker, 3) == 0 ? 100 : kMostPages;
  size_t pages = 1 + random_of(worker, largest);
  const size_t room = worker->most_pages - worker->pages;
  pages = pages < room ? pages : room;
  if (pages == 0) {
    return;
  }
  void* memory = NULL;
  region->mapped = 0;
  switch (random_of(worker, 4)) {
    case 0:
      region->mapped = 1;
      memory = mmap(NULL, pages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      CHECK(memory != MAP_FAILED);
      break;
    case 1:
      CHECK(posix_memalign(&memory, kPage << random_of(worker, 10), pages * kPage) == 0);
      memset(memory, 0, pages * kPage);
      break;
    case 2:
      memory = malloc(pages * kPage);
      CHECK(memory != NULL);
      memset(memory, 0, pages * kPage);
      break;
    default:
      memory = calloc(pages, kPage);
      CHECK(memory != NULL);
  }
  region->memory = memory;
  region->pages = pages;
  region->versions = calloc(pages, sizeof *region->versions);
  region->id = worker->next_id++;
  worker->pages += pages;
}

static void resize(Worker* worker, Region* region) {
  const size_t before = region->pages;
  const size_t room = worker->most_pages - worker->pages;
  size_t after = 1 + random_of(worker, 2 * before);
  after = after < before + room ? after : before + room;
  if (region->mapped) {
    void* moved = mremap(region->memory, before * kPage, after * kPage, MREMAP_MAYMOVE);
    CHECK(moved != MAP_FAILED);
    region->memory = moved;
  } else {
    region->memory = realloc(region->memory, after * kPage);
    CHECK(region->memory != NULL);
  }
  region->versions = realloc(region->versions, after * sizeof *region->versions);
  for (size_t page = before; page < after; ++page) {
    region->versions[page] = 0;
    if (!region->mapped) {
      memset(region->memory + page * kPageWords, 0, kPage);
    }
  }
  region->pages = after;
  worker->pages += after - before;
}

/* What is given up lazily: some of it is written anew at once. */
static void free_lazily(Worker* worker, Region* region) {
  size_t first = 0, count = 0;
  choose_range(worker, region, kMostPages, &first, &count);
  CHECK(madvise(region->memory + first * kPageWords, count * kPage, MADV_FREE) == 0);
  for (size_t page = first; page < first + count; ++page) {
    region->versions[page] |= kMayBeZero;
  }
  check_range(region, first, count, "freed");
  for (size_t page = first; page < first + count; page += 1 + random_of(worker, 3)) {
    write_page(region, page);
  }
}

/* Of allocated memory whole pages of the system's. */
static void page_out(Region* region, size_t first, size_t count) {
  const uintptr_t begin = ((uintptr_t)(region->memory + first * kPageWords) + kPage - 1) & ~(uintptr_t)(kPage - 1);
  const uintptr_t end = (uintptr_t)(region->memory + (first + count) * kPageWords) & ~(uintptr_t)(kPage - 1);
  CHECK(begin >= end || madvise((void*)begin, end - begin, MADV_PAGEOUT) == 0);
}

/* Pages at random all over the worker's memory, so many that they are moved one by one. */
static void jump_about(Worker* worker) {
  for (int each = 0; each < 250; ++each) {
    Region* region = &worker->regions[random_of(worker, kRegions)];
    if (region->pages > 0) {
      const size_t page = random_of(worker, region->pages);
      if (check_page(region, page, "jumped to") && each % 4 == 0) {
        write_page(region, page);
      }
    }
  }
}

/* A few pages of each block in order, the same ones again and again, as who walks down the columns of a matrix. */
static void walk_columns(Worker* worker) {
  const size_t step = 2 + random_of(worker, 40), offset = random_of(worker, step);
  for (int column = 0; column < 3; ++column) {
    for (int index = 0; index < kRegions; ++index) {
      Region* region = &worker->regions[index];
      for (size_t page = offset; page < region->pages; page += step) {
        if (check_page(region, page, "column") && column > 0) {
          write_page(region, page);
        }
      }
    }
  }
}

/* Written to a file, changed, and read back: it is again as it was. */
static void through_file(Worker* worker, Region* region, size_t first, size_t count) {
  char* memory = (char*)(region->memory + first * kPageWords);
  CHECK(pwrite(worker->file, memory, count * kPage, 0) == (ssize_t)(count * kPage));
  const uint32_t kept = region->versions[first];
  write_page(region, first);
  CHECK(pread(worker->file, memory, count * kPage, 0) == (ssize_t)(count * kPage));
  region->versions[first] = kept;
  check_range(region, first, count, "read back");
}

static void give_hint(Worker* worker, Region* region, size_t first, size_t count) {
  char* memory = (char*)(region->memory + first * kPageWords);
  if (!headroom_will_need) {
    return;
  }
  switch (random_of(worker, 4)) {
    case 0:
      (void)headroom_will_need(memory, count * kPage);
      break;
    case 1:
      (void)headroom_will_not_need(memory, count * kPage);
      break;
    case 2:
      (void)headroom_will_overwrite(memory, count * kPage);
      for (size_t page = first; page < first + count; ++page) {
        write_page(region, page);
      }
      break;
    default:
      if (headroom_hold(memory, count * kPage) == 0) {
        check_range(region, first, count, "held");
        CHECK(headroom_release(memory, count * kPage) == 0);
      }
  }
}

/* The child sees what there was at the fork, whatever the other threads and the parent do. */
static void fork_and_check(Worker* worker) {
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    atomic_store(&wrong, 0);
    for (int index = 0; index < kRegions; ++index) {
      const Region* region = &worker->regions[index];
      for (size_t page = 0; page < region->pages; page += 7) {
        (void)check_page(region, page, "in a child");
      }
    }
    _exit(atomic_load(&wrong) != 0);
  }
  for (int index = 0; index < kRegions; ++index) {
    for (size_t page = 3; page < worker->regions[index].pages; page += 50) {
      write_page(&worker->regions[index], page);
    }
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  if (status != 0) {
    fprintf(stderr, "a child ended with %x\n", (unsigned)status);
    atomic_fetch_add(&wrong, 1);
  }
}

static void spawn(void) {
  extern char** environ;
  char name[] = "true";
  char* words[] = {name, NULL};
  pid_t child = 0;
  int status = -1;
  CHECK(posix_spawnp(&child, "true", NULL, NULL, words, environ) == 0);
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void check_one_of_current(const char* when) {
  for (int index = 0; index < kRegions; ++index) {
    const Region* region = &current->regions[index];
    if (region->pages > 0) {
      (void)check_page(region, (size_t)done[kCheck] % region->pages, when);
    }
  }
}

static void in_signal(int number) {
  (void)number;
  check_one_of_current("in a signal handler");
}

static void* in_small_thread(void* argument) {
  current = argument;
  check_one_of_current("in a small thread");
  return NULL;
}

static void start_small_thread(Worker* worker) {
  pthread_attr_t attributes;
  pthread_t thread;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, (size_t)PTHREAD_STACK_MIN);
  CHECK(pthread_create(&thread, &attributes, in_small_thread, worker) == 0);
  pthread_join(thread, NULL);
  pthread_attr_destroy(&attributes);
}

static int choose_kind(Worker* worker) {
  int all = 0;
  for (int kind = 0; kind < kKinds; ++kind) {
    all += weights[kind];
  }
  int left = (int)random_of(worker, (uint64_t)all), kind = 0;
  while (left >= weights[kind]) {
    left -= weights[kind++];
  }
  return kind;
}

static void operate(Worker* worker) {
  Region* region = &worker->regions[random_of(worker, kRegions)];
  if (region->pages == 0) {
    make_region(worker, region);
    return;
  }
  const int kind = choose_kind(worker);
  size_t first = 0, count = 0;
  choose_range(worker, region, kind == kThroughFile ? 200 : 96, &first, &count);
  char* memory = (char*)(region->memory + first * kPageWords);
  switch (kind) {
    case kWrite:
      for (size_t page = first; page < first + count; ++page) {
        write_page(region, page);
      }
      break;
    case kCheck:
      check_range(region, first, count, "check");
      break;
    case kScatter:
      for (int each = 0; each < 16; ++each) {
        const size_t page = random_of(worker, region->pages);
        if (check_page(region, page, "scattered") && each % 2 == 0) {
          write_page(region, page);
        }
      }
      break;
    case kJump:
      jump_about(worker);
      break;
    case kColumns:
      walk_columns(worker);
      break;
    case kReplace:
      forget_region(worker, region);
      break;
    case kResize:
      resize(worker, region);
      break;
    case kDiscard:
      if (region->mapped) {
        CHECK(madvise(memory, count * kPage, MADV_DONTNEED) == 0);
        memset(region->versions + first, 0, count * sizeof *region->versions);
        check_range(region, first, count, "discarded");
      }
      break;
    case kFree:
      if (region->mapped) {
        free_lazily(worker, region);
      }
      break;
    case kPageOut:
      page_out(region, first, count);
      break;
    case kThroughFile:
      through_file(worker, region, first, count);
      break;
    case kProtect:
      if (region->mapped) {
        /* With the engine sigsegv rights cost memory that stays, which may be refused. */
        const int refused = mprotect(memory, count * kPage, PROT_READ) != 0;
        CHECK(!refused || errno == ENOMEM);
        check_range(region, first, count, "protected");
        CHECK(refused || mprotect(memory, count * kPage, PROT_READ | PROT_WRITE) == 0);
      }
      break;
    case kFork:
      fork_and_check(worker);
      break;
    case kSpawn:
      spawn();
      break;
    case kHint:
      give_hint(worker, region, first, count);
      break;
    case kLock:
      if (mlock(memory, count * kPage) == 0) {
        check_range(region, first, count, "locked");
        CHECK(munlock(memory, count * kPage) == 0);
      }
      break;
    case kSignal:
      CHECK(pthread_kill(pthread_self(), SIGUSR1) == 0);
      break;
    default:
      start_small_thread(worker);
  }
  atomic_fetch_add(&done[kind], 1);
}

static void* work(void* argument) {
  Worker* worker = argument;
  current = worker;
  for (long operation = 0; operation < worker->operations && atomic_load(&wrong) == 0; ++operation) {
    operate(worker);
  }
  for (int index = 0; index < kRegions && atomic_load(&wrong) == 0; ++index) {
    check_range(&worker->regions[index], 0, worker->regions[index].pages, "at the end");
  }
  return NULL;
}

/* Each rank's first region goes once round the ring, so it comes back as it was. */
static void exchange(Worker* worker, int rank, int ranks) {
  Region* region = &worker->regions[0];
  uint64_t pages = region->pages, least = 0;
  MPI_Allreduce(&pages, &least, 1, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD);
  for (int step = 0; step < ranks && least > 0; ++step) {
    MPI_Sendrecv_replace(region->memory, (int)(least * kPage), MPI_BYTE, (rank + 1) % ranks, 0, (rank + ranks - 1) % ranks, 0,
                         MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  check_range(region, 0, region->pages, "exchanged");
}

int main(int argc, char** argv) {
  static Worker workers[kMostThreads];
  pthread_t threads[kMostThreads];
  int rank = 0, ranks = 1, provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  CHECK(argc == 5);
  const int count = atoi(argv[1]);
  CHECK(count >= 1 && count <= kMostThreads);
  signal(SIGUSR1, in_signal);
  for (int index = 0; index < count; ++index) {
    FILE* file = tmpfile();
    CHECK(file != NULL);
    workers[index] = (Worker){.random = (strtoull(argv[4], NULL, 10) + 1) * UINT64_C(0x9e3779b97f4a7c15) ^
                                        (uint64_t)(rank * kMostThreads + index + 1) << 32,
                              .most_pages = strtoul(argv[2], NULL, 10) << 8,
                              .operations = atol(argv[3]) / kEpochs,
                              .file = fileno(file),
                              .next_id = (uint64_t)index << 16};
  }
  int all_wrong = 0;
  for (int epoch = 0; epoch < kEpochs && !all_wrong; ++epoch) {
    for (int index = 0; index < count; ++index) {
      CHECK(pthread_create(&threads[index], NULL, work, &workers[index]) == 0);
    }
    for (int index = 0; index < count; ++index) {
      pthread_join(threads[index], NULL);
    }
    exchange(&workers[0], rank, ranks);
    const int mine = atomic_load(&wrong);
    MPI_Allreduce(&mine, &all_wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  }
  if (rank == 0) {
    printf("wrong %d\n", all_wrong);
    for (int kind = 0; kind < kKinds; ++kind) {
      printf("%s %ld\n", names[kind], atomic_load(&done[kind]));
    }
  }
  MPI_Finalize();
  return all_wrong != 0;
}
