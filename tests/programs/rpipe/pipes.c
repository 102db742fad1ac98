/* Ranks that send pieces of large arrays to each other by pipes, while the arrays are on storage: each rank has one, fills it
 * by a formula, and in each round writes pieces of it to the next and the one after that, in place and by copies, and reads,
 * checks and adds up those of the ones before. At the end each array must be as it was. Prints "right MESSAGES" on rank 0.
 * usage: pipes MIB_A_RANK ROUNDS POLICY [compute] [by-mpi|by-ofi|on-node|elsewhere]: "compute": sums its array up in between;
 * the backend is RPIPE_MPI, RPIPE_OFI, RPIPE_NODE, or chosen and by messages; without, chosen and through memory. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "headroom/rpipe.h"

static int self, ranks;
static void check(int error, const char* call) {
  if (error != 0) {
    fprintf(stderr, "rank %d: %s: %s\n", self, call, rpipe_error(error));
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
}
static void expect(int right, const char* what) {
  if (!right) {
    fprintf(stderr, "rank %d: wrong: %s\n", self, what);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
}

static uint64_t state;
static uint64_t next_number(void) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return state >> 33;
}
static uint64_t word_of(int rank, uint64_t index) { return (index * 0x9e3779b97f4a7c15u) ^ ((uint64_t)rank << 56); }

enum { kWays = 2 };
static rpipe_t to[kWays], from[kWays];
static uint64_t *array, words, messages;

static uint64_t words_of(uint64_t choice) {
  static const uint64_t choices[] = {1, 4, 6, 7, 40, 511, 3000, 20000};
  return choices[choice % 8];
}

/* A message: where in the writer's array the piece is, and the piece. */
static void write_one(int way) {
  const uint64_t count = words_of(next_number());
  const uint64_t begin = next_number() % (words - count);
  if (next_number() % 2 == 0) {
    raddr_t buffer;
    check(rpipe_alloc(to[way], (count + 1) * 8, &buffer, RPIPE_FOREVER), "rpipe_alloc");
    uint64_t* const at = rpipe_at(buffer);
    at[0] = begin;
    memcpy(at + 1, array + begin, count * 8);
    check(rpipe_write(buffer, RPIPE_ALL, RPIPE_FOREVER), "rpipe_write");
  } else {
    check(rpipe_send(to[way], &begin, 8, RPIPE_FOREVER), "rpipe_send");
    check(rpipe_send(to[way], array + begin, count * 8, RPIPE_FOREVER), "rpipe_send"); /* from storage, perhaps */
  }
}

static void check_piece(int writer, uint64_t begin, const uint64_t* at, uint64_t count) {
  for (uint64_t each = 0; each < count; ++each) {
    expect(at[each] == word_of(writer, begin + each), "a piece");
  }
}

static void read_one(int way) {
  const int writer = (self + ranks - 1 - way) % ranks;
  raddr_t buffer;
  size_t bytes;
  check(rpipe_read(from[way], &buffer, &bytes, RPIPE_FOREVER), "rpipe_read");
  const uint64_t* at = rpipe_at(buffer);
  const uint64_t begin = at[0];
  if (bytes > 8) {
    check_piece(writer, begin, at + 1, bytes / 8 - 1);
  } else {
    /* into the array itself, where the same words of this rank's are put back afterwards */
    size_t room = (words - begin) * 8;
    check(rpipe_receive(from[way], array + begin, room, &bytes, RPIPE_FOREVER), "rpipe_receive");
    check_piece(writer, begin, array + begin, bytes / 8);
    for (uint64_t each = 0; each < bytes / 8; ++each) {
      array[begin + each] = word_of(self, begin + each);
    }
  }
  check(rpipe_free(buffer), "rpipe_free");
  ++messages;
}

static uint64_t sum(void) {
  uint64_t total = 0;
  for (uint64_t each = 0; each < words; ++each) {
    total += array[each];
  }
  return total;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  check(rpipe_init(&self, &ranks), "rpipe_init");
  if (argc < 4) {
    return 2;
  }
  const int rounds = atoi(argv[2]);
  const int computes = argc > 4 && strcmp(argv[4], "compute") == 0;
  const char* const way_asked = argv[argc - 1];
  const uint32_t asked = strcmp(way_asked, "by-mpi") == 0    ? RPIPE_MPI
                         : strcmp(way_asked, "by-ofi") == 0  ? RPIPE_OFI
                         : strcmp(way_asked, "on-node") == 0 ? RPIPE_NODE
                                                             : RPIPE_ANY;
  const uint32_t expected = strcmp(way_asked, "elsewhere") == 0 ? RPIPE_MPI : asked == RPIPE_ANY ? RPIPE_NODE : asked;
  words = (uint64_t)atoi(argv[1]) << 17;
  array = malloc(words * 8);
  for (uint64_t each = 0; each < words; ++each) {
    array[each] = word_of(self, each);
  }
  const uint64_t total = sum();
  state = (uint64_t)self + 1;
  struct rpipe_options options = {.size = sizeof options, .heap_bytes = 4 << 20, .policy = (uint32_t)atoi(argv[3])};
  options.backend = asked;
  for (int way = 0; way < kWays; ++way) {
    options.channel = (uint32_t)(way * ranks + self); /* the writer's: of 4 ranks two write to each other the second way */
    check(rpipe_open(&to[way], (self + 1 + way) % ranks, RPIPE_WRITER, &options), "rpipe_open");
    options.channel = (uint32_t)(way * ranks + (self + ranks - 1 - way) % ranks);
    check(rpipe_open(&from[way], (self + ranks - 1 - way) % ranks, RPIPE_READER, &options), "rpipe_open");
  }
  for (int round = 0; round < rounds; ++round) {
    for (int way = 0; way < kWays; ++way) {
      write_one(way);
      write_one(way);
    }
    if (computes) {
      expect(sum() == total, "the array while messages are on their way");
    }
    for (int way = 0; way < kWays; ++way) {
      read_one(way);
      read_one(way);
    }
  }
  expect(sum() == total, "the array");
  for (int way = 0; way < kWays; ++way) {
    struct rpipe_state went = {.size = sizeof went};
    check(rpipe_read_state(to[way], &went), "rpipe_read_state");
    expect(went.backend == expected, "the backend");
  }
  check(rpipe_finalize(RPIPE_FOREVER), "rpipe_finalize");
  uint64_t all = 0;
  MPI_Reduce(&messages, &all, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
  if (self == 0) {
    printf("right %lu\n", (unsigned long)all);
  }
  MPI_Finalize();
  return 0;
}
