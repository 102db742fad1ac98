/* Mappings at fixed addresses inside evictable memory, and access rights of the program's own making: what was mapped over is
   zero, what was not keeps its content, rights hold and come back, all while memory is pressed out.
   Prints "ok" or what went wrong. usage: fixed_maps MIB EXPECT_RIGHTS_OF_MUCH KERNEL_SEES_WHAT_IS_UNMAPPED */
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pressure.h"

#define MIB ((size_t)1 << 20)
static int zero(const unsigned char* buffer, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (buffer[i] != 0) {
      return 0;
    }
  }
  return 1;
}

static sigjmp_buf back;
static void on_fault(int number) {
  (void)number;
  siglongjmp(back, 1);
}

/* Whether touching `address` is a violation that the program's own handler gets to see. */
static int faults(volatile unsigned char* address, int write) {
  struct sigaction action = {.sa_handler = on_fault}, before;
  CHECK(sigaction(SIGSEGV, &action, &before) == 0);
  int faulted = 1;
  if (sigsetjmp(back, 1) == 0) {
    if (write) {
      *address = 1;
    } else {
      (void)*address;
    }
    faulted = 0;
  }
  CHECK(sigaction(SIGSEGV, &before, NULL) == 0);
  return faulted;
}

static unsigned char* map_at(void* address, size_t count, int rights, int flags) {
  return mmap(address, count, rights, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
}

static void over_memory_in_use(void) {
  unsigned char* map = map_at(NULL, 16 * MIB, PROT_READ | PROT_WRITE, 0);
  fill(map, 16 * MIB, 1);
  press();
  CHECK(map_at(map + 3 * MIB + 4096, 2 * MIB, PROT_READ | PROT_WRITE, MAP_FIXED) == map + 3 * MIB + 4096);
  press();
  CHECK(same_between(map, 0, 3 * MIB + 4096, 1) && zero(map + 3 * MIB + 4096, 2 * MIB) &&
        same_between(map, 5 * MIB + 4096, 16 * MIB, 1));
  fill(map, 16 * MIB, 2);
  press();
  CHECK(same_between(map, 0, 16 * MIB, 2));
  CHECK(munmap(map, 16 * MIB) == 0);
}

/* Memory is asked for, given back, and asked for again at the same place, as allocators that align do. */
static void over_memory_given_back(void) {
  unsigned char* map = map_at(NULL, 12 * MIB, PROT_READ | PROT_WRITE, 0);
  fill(map, 12 * MIB, 3);
  CHECK(munmap(map + 4 * MIB + 8192, 4 * MIB) == 0);
  press();
  unsigned char* again = map_at(map + 5 * MIB, 6 * MIB, PROT_READ | PROT_WRITE, MAP_FIXED);
  CHECK(again == map + 5 * MIB && zero(again, 6 * MIB));
  fill(again, 6 * MIB, 4);
  press();
  CHECK(same_between(again, 0, 6 * MIB, 4) && same_between(map, 0, 4 * MIB + 8192, 3) &&
        same_between(map, 11 * MIB, 12 * MIB, 3));
  CHECK(munmap(map, 12 * MIB) == 0);
}

/* What was given back is the program's no more: it faults, and the kernel says so, until it is mapped again. */
static void given_back_faults(int kernel_says_so) {
  unsigned char* map = map_at(NULL, 8 * MIB, PROT_READ | PROT_WRITE, 0);
  fill(map, 8 * MIB, 9);
  CHECK(munmap(map + MIB, 4 * MIB) == 0);
  press();
  CHECK(faults(map + MIB, 0) && faults(map + 3 * MIB, 1) && faults(map + 5 * MIB - 1, 1));
  CHECK(!faults(map + MIB - 1, 0) && !faults(map + 5 * MIB, 0));
  CHECK(same_between(map, 0, MIB, 9) && same_between(map, 5 * MIB, 8 * MIB, 9));
  CHECK(mprotect(map + 2 * MIB, MIB, PROT_READ) == -1 && errno == ENOMEM);
  CHECK(madvise(map + 2 * MIB, MIB, MADV_DONTNEED) == -1 && errno == ENOMEM);
  CHECK(mlock(map + 2 * MIB, 4096) == -1 && errno == ENOMEM);
  CHECK(msync(map + 2 * MIB, MIB, MS_SYNC) == -1 && errno == ENOMEM);
  if (kernel_says_so) {
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    CHECK(write(pipes[1], map + 2 * MIB, 4096) == -1 && errno == EFAULT);
    close(pipes[0]);
    close(pipes[1]);
  }
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    map[2 * MIB] = 1;
    _exit(0);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
  CHECK(madvise(map, 8 * MIB, MADV_DONTNEED) == -1 && errno == ENOMEM); /* and what is mapped is zero */
  CHECK(zero(map, MIB) && zero(map + 5 * MIB, 3 * MIB));
  CHECK(map_at(map + 2 * MIB, MIB, PROT_READ | PROT_WRITE, MAP_FIXED) == map + 2 * MIB);
  CHECK(zero(map + 2 * MIB, MIB) && faults(map + 2 * MIB - 1, 0) && faults(map + 3 * MIB, 0));
  fill(map + 2 * MIB, MIB, 5);
  press();
  CHECK(same_between(map + 2 * MIB, 0, MIB, 5));
  CHECK(munmap(map, 8 * MIB) == 0);
  for (int round = 0; round < 2000; ++round) { /* the addresses can be used again */
    unsigned char* again = map_at(NULL, MIB + (size_t)(round % 7) * 4096, PROT_READ | PROT_WRITE, 0);
    CHECK(again != MAP_FAILED && again[0] == 0 && again[MIB - 1] == 0);
    again[0] = again[MIB - 1] = 1;
    CHECK(munmap(again, MIB + (size_t)(round % 7) * 4096) == 0);
  }
}

/* Space is reserved, committed and decommitted, as run-time systems do. */
static void commit_and_decommit(void) {
  unsigned char* map = map_at(NULL, 8 * MIB, PROT_READ | PROT_WRITE, 0);
  fill(map, 8 * MIB, 5);
  CHECK(map_at(map + MIB, MIB, PROT_NONE, MAP_FIXED | MAP_NORESERVE) == map + MIB);
  CHECK(faults(map + MIB + 5000, 0) && !faults(map + 2 * MIB, 0));
  press();
  CHECK(faults(map + 2 * MIB - 1, 1));
  CHECK(mprotect(map + MIB, MIB, PROT_READ | PROT_WRITE) == 0 && zero(map + MIB, MIB));
  CHECK(same_between(map, 0, MIB, 5) && same_between(map, 2 * MIB, 8 * MIB, 5));
  CHECK(munmap(map, 8 * MIB) == 0);
}

static void own_rights(int of_much) {
  const size_t count = of_much ? bytes / 2 : MIB;
  unsigned char* map = map_at(NULL, count, PROT_READ | PROT_WRITE, 0);
  fill(map, count, 6);
  CHECK(mprotect(map, count, PROT_READ) == 0);
  for (int round = 0; round < 2; ++round) {
    press();
    CHECK(same_between(map, 0, count, 6) && faults(map + count / 2, 1) && !faults(map + count / 2, 0));
  }
  CHECK(munmap(map, count) == 0);
  unsigned char* next = map_at(NULL, count, PROT_READ | PROT_WRITE, 0); /* most likely at the same place */
  fill(next, count, 7);
  press();
  CHECK(same_between(next, 0, count, 7));
  CHECK(munmap(next, count) == 0);
}

static void move_to_a_fixed_place(void) {
  unsigned char* from = map_at(NULL, 4 * MIB, PROT_READ | PROT_WRITE, 0);
  unsigned char* to = map_at(NULL, 6 * MIB, PROT_NONE, 0);
  fill(from, 4 * MIB, 8);
  press();
  CHECK(mremap(from, 4 * MIB, 6 * MIB, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
  CHECK(same_between(to, 0, 4 * MIB, 8) && zero(to + 4 * MIB, 2 * MIB));
  CHECK(munmap(to, 6 * MIB) == 0);
}

/* Decommitting as allocators do it, and moving or freeing what cannot be written. */
static void rights_of_freed_memory(int of_much) {
  unsigned char* map = map_at(NULL, 4 * MIB, PROT_READ | PROT_WRITE, 0);
  fill(map, 4 * MIB, 11);
  CHECK(mprotect(map + 4096, MIB / 2, PROT_NONE) == 0 && madvise(map + 4096, MIB / 2, MADV_DONTNEED) == 0);
  press();
  CHECK(mprotect(map + 4096, MIB / 2, PROT_READ | PROT_WRITE) == 0 && zero(map + 4096, MIB / 2));
  CHECK(same_between(map, 0, 4096, 11) && same_between(map, 4096 + MIB / 2, 4 * MIB, 11));
  const size_t count = of_much ? 4 * MIB : MIB;
  fill(map, 4 * MIB, 12);
  CHECK(mprotect(map, count, PROT_READ) == 0);
  unsigned char* moved = mremap(map, 4 * MIB, 9 * MIB, MREMAP_MAYMOVE);
  CHECK(moved != MAP_FAILED && same_between(moved, 0, 4 * MIB, 12) && zero(moved + 4 * MIB, 5 * MIB));
  unsigned char* next = malloc(4 * MIB); /* most likely where the map was */
  fill(next, 4 * MIB, 13);
  press();
  CHECK(same_between(next, 0, 4 * MIB, 13));
  CHECK(mprotect((void*)(((size_t)next + 4095) & ~(size_t)4095), MIB / 2, PROT_READ) == 0);
  free(next);
  next = malloc(4 * MIB);
  fill(next, 4 * MIB, 14);
  free(next);
  CHECK(munmap(moved, 9 * MIB) == 0);
}

static void what_cannot_be(void) {
  unsigned char* map = map_at(NULL, 4 * MIB, PROT_READ | PROT_WRITE, 0);
  fill(map, 4 * MIB, 9);
  CHECK(mmap(map, 2 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED &&
        errno == ENOMEM);
  press();
  CHECK(same_between(map, 0, 4 * MIB, 9));
  CHECK(munmap(map, 4 * MIB) == 0);
}

int main(int argc, char** argv) {
  bytes = (size_t)atoi(argc > 1 ? argv[1] : "16") * MIB;
  unsigned char* early = map_at(NULL, 2 * MIB, PROT_READ | PROT_WRITE, 0); /* rights that are older than the pressure */
  fill(early, 2 * MIB, 10);
  CHECK(mprotect(early, 2 * MIB, PROT_READ) == 0);
  pressure = malloc(bytes);
  memset(pressure, 0, bytes);
  over_memory_in_use();
  over_memory_given_back();
  commit_and_decommit();
  own_rights(argc > 2 && atoi(argv[2]) != 0);
  move_to_a_fixed_place();
  rights_of_freed_memory(argc > 2 && atoi(argv[2]) != 0);
  given_back_faults(argc > 3 && atoi(argv[3]) != 0);
  what_cannot_be();
  CHECK(same_between(early, 0, 2 * MIB, 10) && faults(early + MIB, 1) && !faults(early + MIB, 0));
  printf("ok\n");
  return 0;
}
