/* Direct input and output while another thread drives everything out of memory: the device writes into pages that must not be
   taken away. Prints "ok". usage: direct_io MIB ROUNDS */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "pressure.h"

static atomic_int over;

static void* press_on(void* unused) {
  while (!over) {
    press();
  }
  return unused;
}

int main(int argc, char** argv) {
  (void)argc;
  bytes = (size_t)atoi(argv[1]) << 20;
  pressure = malloc(bytes);
  const size_t count = bytes / 8;
  unsigned char *in = aligned_alloc(4096, count), *out = aligned_alloc(4096, count);
  char path[64];
  snprintf(path, sizeof path, "/var/tmp/direct_io-%d", getpid());
  int file = open(path, O_CREAT | O_RDWR | O_TRUNC | O_DIRECT, 0600);
  CHECK(file >= 0);
  unlink(path);
  pthread_t other;
  CHECK(pthread_create(&other, NULL, press_on, NULL) == 0);
  for (unsigned round = 0; round < (unsigned)atoi(argv[2]); ++round) {
    fill(out, count, round);
    CHECK(pwrite(file, out, count, 0) == (ssize_t)count);
    memset(in, 0, count);
    for (int again = 0; again < 4; ++again) {
      CHECK(pread(file, in, count, 0) == (ssize_t)count);
    }
    CHECK(same(in, count, round));
  }
  over = 1;
  pthread_join(other, NULL);
  printf("ok\n");
  return 0;
}
