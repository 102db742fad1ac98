/* Many more threads than memory has room for, half of them in system calls: each comes to its turn. A thread goes over its own
   blocks at random until every one has made so many accesses, and checks what it finds: in each page of a block, or it would do
   with single pages, which there is room for. Prints how many accesses all of them made to blocks, not counting those to the
   same one again. usage: many_waiters MIB_PER_THREAD WRITERS READERS ACCESSES */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>

#include "pressure.h"

enum { kBlock = 256 << 10, kPage = 4096, kMostThreads = 256, kMostBlocks = 64 };

static unsigned char* memory;
static int threads, writers, wanted, zero_device;
static size_t blocks;
static atomic_int satisfied;
static atomic_long accesses, wrong;

static void* use_own_blocks(void* argument) {
  const int self = (int)(intptr_t)argument;
  uint64_t expected[kMostBlocks] = {0};
  uint64_t random = 88172645463325252ull + (uint64_t)self * 7919;
  size_t last = blocks;
  for (int count = 0; atomic_load(&satisfied) < threads;) {
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    const size_t block = random % blocks;
    if (block == last) {
      continue;
    }
    last = block;
    uint64_t* word = (uint64_t*)(memory + ((size_t)self * blocks + block) * kBlock);
    if (self >= writers) { /* the kernel is the first to touch it */
      CHECK(read(zero_device, word + 1, 4096) == 4096);
    }
    wrong += *word != expected[block];
    *word = ++expected[block];
    for (size_t at = kPage; at < kBlock; at += kPage) {
      wrong += word[at / sizeof *word + 8] != 1;
    }
    ++accesses;
    satisfied += ++count == wanted ? 1 : 0;
  }
  return NULL;
}

int main(int argc, char** argv) {
  CHECK(argc > 4);
  blocks = (size_t)atoi(argv[1]) * 4;
  writers = atoi(argv[2]);
  threads = writers + atoi(argv[3]);
  wanted = atoi(argv[4]);
  CHECK(blocks <= kMostBlocks && threads <= kMostThreads);
  zero_device = open("/dev/zero", O_RDONLY);
  bytes = (size_t)threads * blocks * kBlock;
  memory = aligned_alloc(kBlock, bytes);
  for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
    *(uint64_t*)(memory + at) = at % kBlock == 0 ? 0 : 1;
  }
  pthread_t ids[kMostThreads];
  for (int thread = 0; thread < threads; ++thread) {
    CHECK(pthread_create(&ids[thread], NULL, use_own_blocks, (void*)(intptr_t)thread) == 0);
  }
  for (int thread = 0; thread < threads; ++thread) {
    pthread_join(ids[thread], NULL);
  }
  printf("wrong %ld\n%ld\n", wrong, accesses);
  return wrong != 0;
}
