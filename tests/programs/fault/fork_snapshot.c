/* A forked child sees memory as it was at the fork, whatever the parent writes later, and its own writes stay its own: heap,
   static data, memory on storage, memory that the kernel may write at any time (a stream's buffer, locked memory), a part whose
   rights the child changes; a grandchild too. system() and posix_spawn work. usage: fork_snapshot MIB */
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned char table[8 << 20];
extern char** environ;

static unsigned char *locked, *stream_buffer;
enum { kKept = 1 << 20 };

static long count_wrong_kept(void) {
  long wrong = 0;
  for (size_t i = 0; i < kKept; ++i) {
    wrong += locked[i] != (unsigned char)(i * 5);
    wrong += stream_buffer[i] != (unsigned char)(i * 9);
  }
  return wrong;
}

static long count_wrong(const uint64_t* array, uint64_t words) {
  long wrong = 0;
  for (uint64_t i = 0; i < words; ++i) {
    wrong += array[i] != i * 3;
  }
  for (size_t i = 0; i < sizeof table; ++i) {
    wrong += table[i] != (unsigned char)(i * 7);
  }
  return wrong;
}

static int child(uint64_t* array, uint64_t words, int wait_for) {
  char byte;
  if (read(wait_for, &byte, 1) != 1) {
    return 9;
  }
  long wrong = count_wrong(array, words) + count_wrong_kept();
  char* page = (char*)(((uintptr_t)array + words * 4) & ~(uintptr_t)4095); /* one mapping becomes three in the child */
  wrong += mprotect(page, 4096, PROT_READ) != 0 || mprotect(page, 4096, PROT_READ | PROT_WRITE) != 0;
  for (uint64_t i = 0; i < words; i += 512) {
    array[i] = 5;
    array[i] = i * 3;
  }
  const pid_t grandchild = fork();
  if (grandchild == 0) {
    _exit(count_wrong(array, words) != 0);
  }
  int status;
  waitpid(grandchild, &status, 0);
  wrong += status != 0;
  memset(array, 0xee, words * 8);
  char* more = malloc(4 << 20);
  memset(more, 1, 4 << 20);
  free(more);
  free(array);
  return wrong != 0;
}

int main(int argc, char** argv) {
  const uint64_t words = (uint64_t)atoi(argc > 1 ? argv[1] : "8") << 17;
  uint64_t* array = malloc(words * 8);
  for (uint64_t i = 0; i < words; ++i) {
    array[i] = i * 3;
  }
  for (size_t i = 0; i < sizeof table; ++i) {
    table[i] = (unsigned char)(i * 7);
  }
  locked = malloc(kKept);
  stream_buffer = malloc(kKept);
  FILE* stream = fopen("/dev/null", "w");
  if (mlock(locked, kKept) != 0 || stream == NULL || setvbuf(stream, (char*)stream_buffer, _IOFBF, kKept) != 0) {
    return 8;
  }
  for (size_t i = 0; i < kKept; ++i) {
    locked[i] = (unsigned char)(i * 5);
    stream_buffer[i] = (unsigned char)(i * 9);
  }
  int go[2];
  if (pipe(go) != 0) {
    return 9;
  }
  const pid_t pid = fork();
  if (pid == 0) {
    _exit(child(array, words, go[0]));
  }
  const pid_t early = fork(); /* a child that dies at once must not hold the parent up */
  if (early == 0) {
    _exit(0);
  }
  memset(locked, 1, kKept);
  memset(stream_buffer, 1, kKept);
  for (uint64_t i = 0; i < words; i += 3) {
    array[i] = 1;
  }
  memset(table, 2, sizeof table / 2);
  if (write(go[1], "x", 1) != 1) {
    return 9;
  }
  for (uint64_t i = 1; i < words; i += 3) {
    array[i] = 2;
  }
  uint64_t* discarded = malloc(4 << 20);
  memset(discarded, 1, 4 << 20);
  free(discarded);
  int status, spawned;
  waitpid(pid, &status, 0);
  waitpid(early, &spawned, 0);
  long wrong = 0;
  for (uint64_t i = 0; i < words; ++i) {
    wrong += array[i] != (i % 3 == 0 ? 1 : i % 3 == 1 ? 2 : i * 3);
  }
  pid_t other;
  char* words_of_true[] = {"true", NULL};
  wrong +=
      posix_spawnp(&other, "true", NULL, NULL, words_of_true, environ) != 0 || waitpid(other, &spawned, 0) != other || spawned;
  wrong += system("true") != 0;
  wrong += munlock(locked, kKept) != 0 || munlock(array, 4096) != 0; /* also what was never locked */
  free(locked);
  fclose(stream);
  free(stream_buffer);
  printf("parent wrong %ld child %d\n", wrong, status);
  return wrong != 0 || status != 0;
}
