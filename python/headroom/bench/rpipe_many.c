/* Writes to ranks at random, and ranks that share a processor, by pipes and by the least that the machine takes. For `headroom
 * bench rpipe --group random|one-core`.
 *
 *   random BYTES WRITES BOUND   each rank writes so often, each time to another rank at random, and reads what comes, until
 *                               all is there; BOUND: messages to one rank that it may not have freed (0: any number)
 *   one-core                    8 bytes to the other rank and back, both on one processor
 *
 * One line a way: way, microseconds a write of one rank (tab-separated), the median of rounds in which the ways take turns.
 *
 * memory: a ring of places for each pair in memory that all have, with a number for each; nothing is allocated.
 * futex: a word that all have, and the kernel's sleep and wake. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>

#include "rpipe_ranks.h"

enum { kRounds = 7, kMostRanks = 64, kWritesPerLook = 8, kPairBytes = 256 << 10, kRoundTrips = 40000 };

static int ranks;
static uint64_t sink;
static size_t bytes, writes;
static int bound;
static char content[8192];

static void add_up(const char* at) {
  for (size_t each = 0; each + 8 <= bytes; each += 8) {
    uint64_t word;
    memcpy(&word, at + each, sizeof word);
    sink += word;
  }
}

/* ---- ways to write and to read, which never wait: 1 if it was done ---- */

static rpipe_t to[kMostRanks], from[kMostRanks];

static void open_pipes(void) {
  struct rpipe_options options = {.size = sizeof options, .width = (uint32_t)bound};
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer != self) {
      options.channel = (uint32_t)self;
      check(rpipe_open(&to[peer], peer, RPIPE_WRITER, &options), "rpipe_open");
      options.channel = (uint32_t)peer;
      check(rpipe_open(&from[peer], peer, RPIPE_READER, &options), "rpipe_open");
    }
  }
}
static int write_pipe(int peer) {
  const int error = rpipe_send(to[peer], content, bytes, RPIPE_NOWAIT);
  check(error == -EAGAIN ? 0 : error, "rpipe_send");
  return error == 0;
}
static int read_pipe(int peer) {
  raddr_t buffer;
  const int error = rpipe_read(from[peer], &buffer, NULL, RPIPE_NOWAIT);
  check(error == -EAGAIN ? 0 : error, "rpipe_read");
  if (error == 0) {
    add_up(rpipe_at(buffer));
    check(rpipe_free(buffer), "rpipe_free");
  }
  return error == 0;
}

struct place {
  _Atomic uint64_t number;
  char content[];
};
struct ends {
  _Atomic uint64_t taken __attribute__((aligned(64)));
};
static char* places;
static struct ends* pair_ends;
static size_t place_bytes, places_a_pair;
static uint64_t written[kMostRanks], taken[kMostRanks], seen_taken[kMostRanks];

static void open_memory(void) {
  place_bytes = (sizeof(struct place) + bytes + 63) / 64 * 64;
  places_a_pair = kPairBytes / place_bytes;
  if (bound > 0 && (size_t)bound < places_a_pair) {
    places_a_pair = (size_t)bound;
  }
  const size_t pairs = (size_t)ranks * (size_t)ranks;
  pair_ends = shared_memory(pairs * (sizeof(struct ends) + places_a_pair * place_bytes));
  places = (char*)(pair_ends + pairs);
}
static size_t pair_of(int writer, int reader) { return (size_t)writer * (size_t)ranks + (size_t)reader; }
static struct place* place_of(size_t pair, uint64_t number) {
  return (struct place*)(places + (pair * places_a_pair + number % places_a_pair) * place_bytes);
}
static int write_memory(int peer) {
  const size_t pair = pair_of(self, peer);
  if (written[peer] - seen_taken[peer] == places_a_pair) {
    seen_taken[peer] = atomic_load_explicit(&pair_ends[pair].taken, memory_order_acquire);
    if (written[peer] - seen_taken[peer] == places_a_pair) {
      return 0;
    }
  }
  struct place* const place = place_of(pair, written[peer]);
  memcpy(place->content, content, bytes);
  atomic_store_explicit(&place->number, ++written[peer], memory_order_release);
  return 1;
}
static int read_memory(int peer) {
  const size_t pair = pair_of(peer, self);
  struct place* const place = place_of(pair, taken[peer]);
  if (atomic_load_explicit(&place->number, memory_order_acquire) != taken[peer] + 1) {
    return 0;
  }
  add_up(place->content);
  atomic_store_explicit(&pair_ends[pair].taken, ++taken[peer], memory_order_release);
  return 1;
}

/* ---- random writes ---- */

struct way {
  const char* name;
  int (*write)(int peer);
  int (*read)(int peer);
};
static const struct way ways[] = {{"rpipe", write_pipe, read_pipe}, {"memory", write_memory, read_memory}};
enum { kWays = sizeof ways / sizeof *ways };

static int next_target(uint64_t* state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  const int other = (int)((*state >> 33) % (uint64_t)(ranks - 1));
  return other < self ? other : other + 1;
}

static size_t read_all(const struct way* way) {
  size_t count = 0;
  for (int peer = 0; peer < ranks; ++peer) {
    while (peer != self && way->read(peer)) {
      ++count;
    }
  }
  return count;
}

static double write_at_random(const struct way* way, uint64_t seed) {
  uint64_t counts[kMostRanks] = {0}, incoming[kMostRanks];
  uint64_t state = seed;
  for (size_t each = 0; each < writes; ++each) {
    ++counts[next_target(&state)];
  }
  MPI_Alltoall(counts, 1, MPI_UINT64_T, incoming, 1, MPI_UINT64_T, MPI_COMM_WORLD);
  size_t left = 0;
  for (int peer = 0; peer < ranks; ++peer) {
    left += incoming[peer];
  }
  state = seed;
  MPI_Barrier(MPI_COMM_WORLD);
  const double began = MPI_Wtime();
  for (size_t each = 0; each < writes; ++each) {
    const int target = next_target(&state);
    int waited = 0;
    while (!way->write(target)) {
      const size_t got = read_all(way);
      left -= got;
      if (got == 0 && waited) {
        sched_yield();
      }
      waited = 1;
    }
    if (each % kWritesPerLook == 0) {
      left -= read_all(way);
    }
  }
  while (left > 0) {
    const size_t got = read_all(way);
    left -= got;
    if (got == 0) {
      sched_yield();
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
  return (MPI_Wtime() - began) / (double)writes;
}

static int compare(const void* left, const void* right) {
  const double a = *(const double*)left;
  const double b = *(const double*)right;
  return a < b ? -1 : a > b;
}

static void show(const char* name, double* times, int count) {
  qsort(times, (size_t)count, sizeof *times, compare);
  if (self == 0) {
    printf("%s\t%.4f\n", name, times[count / 2] * 1e6);
  }
}

static void measure_random(void) {
  double times[kWays][kRounds];
  open_pipes();
  open_memory();
  for (int round = -1; round < kRounds; ++round) { /* the first one makes memory */
    for (int way = 0; way < kWays; ++way) {
      const double took = write_at_random(&ways[way], (uint64_t)(self + 1) * 1000 + (uint64_t)(round + 1));
      times[way][round < 0 ? 0 : round] = took;
    }
  }
  for (int way = 0; way < kWays; ++way) {
    show(ways[way].name, times[way], kRounds);
  }
}

/* ---- two ranks on one processor ---- */

static void wake(_Atomic uint32_t* word, uint32_t value) {
  atomic_store(word, value);
  syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}
static void wait_for(_Atomic uint32_t* word, uint32_t value) {
  uint32_t now;
  while ((now = atomic_load(word)) != value) {
    syscall(SYS_futex, word, FUTEX_WAIT, now, NULL, NULL, 0);
  }
}

static void measure_one_core(void) {
  double times[2][kRounds];
  _Atomic uint32_t* const words = shared_memory(4096);
  rpipe_t pipe;
  check(rpipe_open(&pipe, 1 - self, RPIPE_BOTH, NULL), "rpipe_open");
  uint32_t number = 0;
  for (int round = 0; round < kRounds; ++round) {
    for (int way = 0; way < 2; ++way) {
      MPI_Barrier(MPI_COMM_WORLD);
      const double began = MPI_Wtime();
      for (int trip = 0; trip < kRoundTrips; ++trip) {
        uint64_t word = 0;
        ++number;
        for (int turn = 0; turn < 2; ++turn) {
          if (way == 0 && turn == self) {
            check(rpipe_send(pipe, &word, sizeof word, RPIPE_FOREVER), "rpipe_send");
          } else if (way == 0) {
            check(rpipe_receive(pipe, &word, sizeof word, NULL, RPIPE_FOREVER), "rpipe_receive");
          } else if (turn == self) {
            wake(&words[64 * self], number);
          } else {
            wait_for(&words[64 * (1 - self)], number);
          }
        }
      }
      times[way][round] = (MPI_Wtime() - began) / kRoundTrips / 2;
    }
  }
  show("rpipe", times[0], kRounds);
  show("futex", times[1], kRounds);
}

int main(int argc, char** argv) {
  const int one_core = argc == 2 && strcmp(argv[1], "one-core") == 0;
  const int random_writes = argc == 5 && strcmp(argv[1], "random") == 0;
  MPI_Init(&argc, &argv);
  if (one_core) { /* before pipes begin, which look at what they may use */
    cpu_set_t all, one;
    CPU_ZERO(&one);
    sched_getaffinity(0, sizeof all, &all);
    int first = 0;
    while (!CPU_ISSET(first, &all)) {
      ++first;
    }
    MPI_Bcast(&first, 1, MPI_INT, 0, MPI_COMM_WORLD);
    CPU_SET(first, &one);
    sched_setaffinity(0, sizeof one, &one);
  }
  check(rpipe_init(&self, &ranks), "rpipe_init");
  if ((!one_core && !random_writes) || ranks < 2 || ranks > kMostRanks || (one_core && ranks != 2)) {
    fprintf(stderr, "usage: mpiexec -n RANKS rpipe_many random BYTES WRITES BOUND | mpiexec -n 2 rpipe_many one-core\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  if (one_core) {
    measure_one_core();
  } else {
    bytes = (size_t)atoi(argv[2]);
    writes = (size_t)atoi(argv[3]);
    bound = atoi(argv[4]);
    if (bytes < 8 || bytes > sizeof content) {
      MPI_Abort(MPI_COMM_WORLD, 2);
    }
    measure_random();
  }
  check(rpipe_finalize(RPIPE_FOREVER), "rpipe_finalize");
  if (sink == 1) {
    printf("\n"); /* the sums are used */
  }
  MPI_Finalize();
  return 0;
}
