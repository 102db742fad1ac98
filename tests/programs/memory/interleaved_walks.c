/* Jumps about in memory, and in turns with that goes through many blocks at a time, page for page in each, as many threads
   would that wait for each other's faults. The blocks of each half of these come in another order at each page: no distance
   between two accesses comes again, and between two to one block are as many others as half of the blocks. Prints how many
   words were wrong. usage: interleaved_walks MIB ROUNDS JUMPS BLOCKS */
#include <stdint.h>

#include "pressure.h"

enum { kPage = 4096, kPagesInBlock = 64, kMostBlocks = 64 };

static uint64_t random_state = 88172645463325252ull;

static size_t random_below(size_t limit) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state % limit;
}

static void shuffle(size_t* numbers, size_t count) {
  for (; count > 1; --count) {
    const size_t other = random_below(count);
    const size_t swapped = numbers[count - 1];
    numbers[count - 1] = numbers[other];
    numbers[other] = swapped;
  }
}

int main(int argc, char** argv) {
  CHECK(argc > 4);
  bytes = (size_t)atoi(argv[1]) << 20;
  const int rounds = atoi(argv[2]);
  const int jumps = atoi(argv[3]);
  const size_t walked = (size_t)atoi(argv[4]);
  const size_t pages = bytes / kPage;
  CHECK(walked <= kMostBlocks && walked < pages / kPagesInBlock);
  char* const memory = aligned_alloc(kPage * kPagesInBlock, bytes);
  for (size_t page = 0; page < pages; ++page) {
    *(volatile uint64_t*)(memory + page * kPage) = page + 1;
  }
  size_t wrong = 0;
  for (int round = 0; round < rounds; ++round) {
    for (int jump = 0; jump < jumps; ++jump) {
      const size_t page = random_below(pages);
      wrong += *(volatile uint64_t*)(memory + page * kPage) != page + 1;
    }
    size_t blocks[kMostBlocks];
    const size_t every = pages / kPagesInBlock / walked;
    for (size_t block = 0; block < walked; ++block) {
      blocks[block] = block * every + (size_t)round % every;
    }
    for (size_t at = 0; at < kPagesInBlock; ++at) {
      shuffle(blocks, walked / 2);
      shuffle(blocks + walked / 2, walked - walked / 2);
      for (size_t block = 0; block < walked; ++block) {
        const size_t page = blocks[block] * kPagesInBlock + at;
        wrong += *(volatile uint64_t*)(memory + page * kPage) != page + 1;
      }
    }
  }
  printf("wrong %zu\n", wrong);
  return wrong != 0;
}
