/* What the C library and the kernel promise, in memory that may be moved to storage: one promise a run. usage: posix_promises
 * CASE [WITH]. WITH is a library, or "pressed": then a thread drives everything else out of memory all the time. Prints "ok",
 * or what is wrong. */
#include "posix_promises_calls.h"
#include "posix_promises_job.h"
#include "posix_promises_processes.h"

/// A program that closes all that may be open, then opens files of its own.
static void descriptors(const char* way) {
  memset(array, 1, sizeof array);
  if (strcmp(way, "close") == 0) {
    for (int i = 3; i < 1024; ++i) {
      close(i);
    }
  } else if (strcmp(way, "close_range") == 0) {
    close_range(3, ~0u, 0);
  } else if (strcmp(way, "raw") == 0) {
    syscall(SYS_close_range, 3, ~0u, 0);
  } else if (strcmp(way, "dup2") == 0) {
    for (int i = 3; i < 1024; ++i) {
      if (dup2(0, i) == i) {
        close(i);
      }
    }
  } else {
    closefrom(3);
  }
  int files[kFiles];
  char name[64];
  for (int i = 0; i < kFiles; ++i) {
    snprintf(name, sizeof name, "file-%d", i);
    files[i] = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    must(files[i] == i + 3, "the program's numbers are not those that it would have");
    must(write(files[i], "mine", 4) == 4, "write");
  }
  uint64_t* words = filled(64, 3);
  must(is_filled(words, 64, 3), "memory is damaged");
  free(words);
  words = filled(64, 4);
  must(is_filled(words, 64, 4), "memory is damaged");
  for (int i = 0; i < kFiles; ++i) {
    char content[16] = {0};
    must(lseek(files[i], 0, SEEK_END) == 4, "a file has grown");
    must(pread(files[i], content, sizeof content, 0) == 4 && memcmp(content, "mine", 4) == 0, "a file was overwritten");
    must(close(files[i]) == 0, "close");
  }
}

/// What C23 has for objects whose size is known, where the C library, or what is before it, knows of it.
static void sized(void) {
  void (*free_sized)(void*, size_t) = (void (*)(void*, size_t))dlsym(RTLD_DEFAULT, "free_sized");
  void (*free_aligned_sized)(void*, size_t, size_t) =
      (void (*)(void*, size_t, size_t))dlsym(RTLD_DEFAULT, "free_aligned_sized");
  must(free_sized != NULL && free_aligned_sized != NULL, "not there");
  for (int round = 0; round < 100 && wrong == NULL; ++round) { /* of more than there is, if they do nothing */
    void* object = malloc(8 * kMib);
    memset(object, 1, 8 * kMib);
    free_sized(object, 8 * kMib);
    object = aligned_alloc(1 << 16, 8 * kMib);
    memset(object, 1, 8 * kMib);
    free_aligned_sized(object, 1 << 16, 8 * kMib);
    free_sized(malloc(100), 100);
    free_sized(NULL, 0);
  }
}

/// A small object that is aligned to more than there is memory takes no more of it than it has bytes.
static void aligned(void) {
  char* first = malloc(2 * kMib); /* from here on small objects are looked after, too */
  memset(first, 1, 2 * kMib);
  for (int round = 0; round < 8; ++round) {
    void* place = NULL;
    must(posix_memalign(&place, (size_t)1 << 30, 64) == 0 && (uintptr_t)place % ((size_t)1 << 30) == 0, "posix_memalign");
    memset(place, 2, 64);
    must(malloc_usable_size(place) >= 64, "its size");
    place = realloc(place, 200);
    must(((char*)place)[63] == 2, "its content");
    free(place);
    free(aligned_alloc((size_t)4 << 20, 0));
  }
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/// What is opened gets the lowest number that the program has not in use, whatever goes on beside it; and who closes all there
/// is and opens files of its own has nothing read from them.
static void numbers(void) {
  char* memory = malloc(160 * kMib); /* as much as makes looking at it take a while */
  memset(memory, 1, 160 * kMib);
  char content[4096];
  memset(content, 5, sizeof content);
  for (const double begin = now(); now() - begin < 6 && wrong == NULL;) {
    for (int i = 0; i < 20; ++i) {
      close(0);
      usleep(500);
      must(open("/dev/null", O_RDONLY) == 0, "another number than the lowest");
    }
    close_range(3, ~0u, 0);
    const int file = open("numbers", O_RDWR | O_CREAT | O_TRUNC, 0600);
    must(file == 3 && write(file, content, sizeof content) == (ssize_t)sizeof content, "a file of the program's");
    must(lseek(file, 0, SEEK_CUR) == (off_t)sizeof content, "the position of a file of the program's");
    close(file);
  }
  must(memory[100 * kMib] == 1, "content");
}

static void maps(void) {
  void* before = malloc(2 * kMib);
  memset(before, 0xff, 2 * kMib);
  free(before);
  char* part = mmap(NULL, 2 * kMib - 100, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (int i = 0; i < 2 * kMib; ++i) {
    must(part[i] == 0, "the last page of a mapping is not zero");
  }
  memset(part, 5, 2 * kMib);
  must(madvise(part + 100, 10, MADV_DONTNEED) == -1 && errno == EINVAL && part[100] == 5, "advice at no page's address");
  must(madvise(part, 4096, MADV_WIPEONFORK) == -1 && errno == EINVAL, "a promise that is not kept");
  must(madvise(part, 4096, 12345) == -1 && errno == EINVAL, "advice that nobody knows");
  must(madvise(part, 4096, MADV_SEQUENTIAL) == 0 && madvise(part, 4096, MADV_FREE) == 0, "advice that is known");
  memset(array, 1, sizeof array);
  must(madvise(array + 4096, 4 * kMib, MADV_DONTNEED) == 0 && array[4095] == 1 && array[4 * kMib + 4096] == 1, "static data");
  for (int i = 4096; i < 4 * kMib + 4096; ++i) {
    must(array[i] == 0, "static data keeps what was given up");
  }
  must(madvise(array, 4096, MADV_FREE) == 0, "MADV_FREE of static data");
  char* fixed = mmap(array, kMib, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  must(fixed == MAP_FAILED && errno == ENOMEM, "a mapping over static data is not refused");
  press();
  must(array[4095] != 2 && array[4 * kMib + 4096] == 1, "static data is damaged");
}

/// Sizes that nobody has, near what a number can be.
static void sizes(void) {
  enum { kMebibytes = 4 };
  const volatile size_t most = SIZE_MAX; /* unknown to the compiler */
  uint64_t* const words = filled(kMebibytes, 1);
  uint64_t* const volatile place = words; /* nor that this is it */
  must(realloc(place, most) == NULL && errno == ENOMEM, "realloc to as much as a number can be");
  errno = 0;
  must(realloc(place, most - 7999) == NULL && errno == ENOMEM, "realloc to nearly as much");
  errno = 0;
  must(pvalloc(most) == NULL && errno == ENOMEM, "pvalloc");
  errno = 0;
  must(mmap(words, most - 100, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED, "mmap");
  must(munmap(words, most) == -1 && errno == EINVAL, "munmap");
  must(mremap(words, 4096, most, MREMAP_MAYMOVE) == MAP_FAILED, "mremap");
  uint64_t* other = filled(kMebibytes, 2); /* where the first one is, if that has been given up */
  must(is_filled(words, kMebibytes, 1) && is_filled(other, kMebibytes, 2), "memory that is still in use was given up");
  free(other);
  free(words);
}

static void rights(void) {
  char* block = malloc(64 * kMib);
  memset(block, 1, 64 * kMib);
  char* upper = (char*)(((uintptr_t)block + 48 * kMib) & ~(uintptr_t)4095);
  must(mprotect(upper, kMib, PROT_READ) == 0, "mprotect");
  block = realloc(block, 32 * kMib);
  char* next = malloc(30 * kMib);
  memset(next, 2, 30 * kMib); /* where the memory is, with the rights that it had */
  must(block[5] == 1 && next[5] == 2, "content");
  struct rlimit limit = {16 * kMib, 16 * kMib};
  setrlimit(RLIMIT_MEMLOCK, &limit);
  for (int i = 0; i < 64; ++i) { /* each of them as much as may be locked at once */
    must(mlock(next, kMib) == 0 && munlockall() == 0, "what is unlocked as a whole stays locked");
    next += 256 << 10;
  }
}

static void* press_on(void* argument) {
  for (char* memory = argument;;) {
    for (size_t at = 0; at < 64 * kMib; at += 4096) {
      ++memory[at];
    }
  }
  return NULL;
}

int main(int argc, char** argv) {
  const char* name = argc > 1 ? argv[1] : "";
  if (argc > 2 && strcmp(argv[2], "pressed") == 0) {
    pthread_t thread;
    is_pressed = 1;
    press();
    must(pthread_create(&thread, NULL, press_on, malloc(64 * kMib)) == 0, "pthread_create");
  }
  if (strncmp(name, "descriptors-", 12) == 0) {
    descriptors(name + 12);
  } else if (strcmp(name, "numbers") == 0) {
    numbers();
  } else if (strcmp(name, "maps") == 0) {
    maps();
  } else if (strcmp(name, "raw_maps") == 0) {
    raw_maps();
  } else if (strcmp(name, "sizes") == 0) {
    sizes();
  } else if (strcmp(name, "rights") == 0) {
    rights();
  } else if (strcmp(name, "children") == 0) {
    children();
  } else if (strcmp(name, "children_with_threads") == 0) {
    children_with_threads();
  } else if (strcmp(name, "forks") == 0) {
    forks();
  } else if (strcmp(name, "streams") == 0) {
    streams();
  } else if (strcmp(name, "handlers") == 0) {
    handlers();
  } else if (strcmp(name, "raw_calls") == 0) {
    raw_calls();
  } else if (strcmp(name, "sockets") == 0) {
    sockets();
  } else if (strcmp(name, "messages") == 0) {
    messages();
  } else if (strcmp(name, "positions") == 0) {
    positions();
  } else if (strcmp(name, "buffers") == 0) {
    buffers();
  } else if (strcmp(name, "constructor") == 0 && argc > 2) {
    constructor(argv[2]);
  } else if (strcmp(name, "limited") == 0) {
    limited();
  } else if (strcmp(name, "sized") == 0) {
    sized();
  } else if (strcmp(name, "aligned") == 0) {
    aligned();
  } else if (strcmp(name, "executions") == 0) {
    executions();
  } else if (strcmp(name, "stacks") == 0) {
    stacks();
  } else if (strcmp(name, "small_stacks") == 0) {
    small_stacks();
  } else {
    wrong = "no such case";
  }
  printf("%s\n", wrong == NULL ? "ok" : wrong);
  return wrong == NULL ? 0 : 1;
}
