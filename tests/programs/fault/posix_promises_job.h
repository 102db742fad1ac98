/* What the parts of posix_promises.c share: memory that is filled and looked at, and what is wrong. */
#pragma once

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/aio_abi.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kMib = 1 << 20, kFiles = 40 };

static const char* wrong;
static int is_pressed; /* by a thread, all the time */
static char array[8 * kMib] __attribute__((aligned(4096)));

static void must(int holds, const char* what) {
  if (!holds && wrong == NULL) {
    wrong = what;
  }
}

static uint64_t* filled(size_t mebibytes, uint64_t seed) {
  uint64_t* words = malloc(mebibytes * kMib);
  for (size_t i = 0; i < mebibytes * kMib / 8; ++i) {
    words[i] = i * 2654435761u + seed;
  }
  return words;
}

static int is_filled(const uint64_t* words, size_t mebibytes, uint64_t seed) {
  for (size_t i = 0; i < mebibytes * kMib / 8; ++i) {
    if (words[i] != i * 2654435761u + seed) {
      return 0;
    }
  }
  return 1;
}

/// Pushes everything else out.
static void press(void) {
  uint64_t* other = filled(64, 7);
  must(is_filled(other, 64, 7), "what presses is damaged");
  free(other);
}
