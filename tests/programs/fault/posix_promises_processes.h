/* Part of posix_promises.c: children, threads, handlers and other programs. */
#pragma once

#include "posix_promises_job.h"

static void children(void) {
  char* zeros = mmap(NULL, 16 * kMib, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  char* other = mmap(NULL, 4 * kMib, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(other, 3, 4 * kMib);
  int go[2], seen[2];
  must(pipe(go) == 0 && pipe(seen) == 0, "pipe");
  if (fork() == 0) {
    must(mprotect(other, 8192, PROT_NONE) == 0 && madvise(other, 8192, MADV_DONTNEED) == 0, "decommit");
    if (fork() == 0) { /* the grandchild */
      char byte;
      must(read(go[0], &byte, 1) == 1, "read");
      for (int i = 0; i < 16 * kMib; ++i) {
        must(zeros[i] == 0, "a grandchild sees what was written later");
      }
      must(mprotect(other, 8192, PROT_READ) == 0 && other[0] == 0 && other[8192] == 3, "a grandchild's rights");
      must(write(seen[1], wrong == NULL ? "y" : "n", 1) == 1, "write");
      if (wrong != NULL) {
        printf("grandchild: %s\n", wrong);
        fflush(stdout);
      }
      _exit(0);
    }
    must(mremap(other, 4 * kMib, 2 * kMib, 0) == other, "a mapping that becomes smaller");
    int status;
    wait(&status);
    _exit(wrong == NULL && status == 0 ? 0 : 1);
  }
  usleep(300000);
  memset(zeros, 9, 16 * kMib);
  press();
  must(zeros[4096] == 9, "content");
  must(write(go[1], "g", 1) == 1, "write");
  char answer = 0;
  must(read(seen[0], &answer, 1) == 1 && answer == 'y', "the grandchild's memory");
  int status;
  wait(&status);
  must(status == 0, "a child ended with an error");
}

enum { kPieces = 128, kPiece = 256 << 10, kRoundsOfWriting = 60 };
static int writing;

/// Writes a little here and there, looks whether it is still there, and makes it zero again.
static void* write_and_look(void* argument) {
  volatile char* memory = argument;
  for (int round = 0; round < kRoundsOfWriting && wrong == NULL; ++round) {
    for (int i = 0; i < kPieces; ++i) {
      memory[(size_t)i * kPiece] = 1;
      usleep(i % 16 == 0 ? 500 : 0);
    }
    for (int i = 0; i < kPieces; ++i) {
      must(memory[(size_t)i * kPiece] == 1, "what a thread of a child wrote is lost");
      memory[(size_t)i * kPiece] = 0;
    }
  }
  __atomic_store_n(&writing, 0, __ATOMIC_RELEASE);
  return NULL;
}

/// A child of which one thread writes while another forks.
static void children_with_threads(void) {
  char* memory = mmap(NULL, kPieces * kPiece, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memory[0] = 0;
  press();
  const pid_t child = fork();
  if (child == 0) {
    pthread_t thread;
    writing = 1;
    must(pthread_create(&thread, NULL, write_and_look, memory) == 0, "pthread_create");
    while (__atomic_load_n(&writing, __ATOMIC_ACQUIRE)) {
      const pid_t grandchild = fork();
      if (grandchild == 0) {
        _exit(0);
      }
      waitpid(grandchild, NULL, 0);
    }
    pthread_join(thread, NULL);
    if (wrong != NULL) {
      printf("child: %s\n", wrong);
      fflush(stdout);
    }
    _exit(wrong == NULL ? 0 : 1);
  }
  int status;
  must(waitpid(child, &status, 0) == child && status == 0, "a child ended with an error");
}

/// Locks memory and gives some up again and again; on a stack of the program's own.
static void* lock_and_give_up(void* argument) {
  char* const given_up = (char*)argument + kMib;
  while (__atomic_load_n(&writing, __ATOMIC_ACQUIRE)) {
    must(mlock(argument, 4096) == 0 && munlock(argument, 4096) == 0, "mlock");
    given_up[0] = 1;
    must(madvise(given_up, 2 * kMib, MADV_DONTNEED) == 0 && given_up[0] == 0, "madvise");
  }
  return NULL;
}

/// Forks while a thread whose stack lies in memory that the fork protects is at work on memory itself.
static void forks(void) {
  enum { kStack = 512 << 10 };
  const int forks = is_pressed ? 30 : 300;
  char* stack = mmap(NULL, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  char* memory = mmap(NULL, 4 * kMib, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstack(&attributes, stack, kStack);
  writing = 1;
  pthread_t thread;
  must(pthread_create(&thread, &attributes, lock_and_give_up, memory) == 0, "pthread_create");
  for (int i = 0; i < forks; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      _exit(0);
    }
    must(child > 0 && waitpid(child, NULL, 0) == child, "fork");
  }
  __atomic_store_n(&writing, 0, __ATOMIC_RELEASE);
  pthread_join(thread, NULL);
}

static char* written_late;

/// How a stream of the program's own writes: late, and to memory.
static ssize_t write_late(void* memory, const char* text, size_t size) {
  (void)text;
  usleep(20000);
  written_late = memory;
  memset(memory, 1, kMib);
  return (ssize_t)size;
}

static void* flush_all(void* memory) {
  const cookie_io_functions_t functions = {.write = write_late};
  FILE* stream = fopencookie(memory, "w", functions);
  must(stream != NULL, "fopencookie");
  while (__atomic_load_n(&writing, __ATOMIC_ACQUIRE)) {
    must(fputs("line", stream) >= 0 && fflush(NULL) == 0, "fflush");
  }
  fclose(stream);
  return NULL;
}

/// Forks while a thread has the list of all streams and writes to memory.
static void streams(void) {
  char* memory = mmap(NULL, 4 * kMib, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(memory, 2, 4 * kMib);
  writing = 1;
  pthread_t thread;
  must(pthread_create(&thread, NULL, flush_all, memory) == 0, "pthread_create");
  for (int i = 0; i < 20; ++i) {
    usleep(10000);
    const pid_t child = fork();
    if (child == 0) {
      _exit(memory[2 * kMib] == 2 ? 0 : 1);
    }
    int status = -1;
    must(child > 0 && waitpid(child, &status, 0) == child && status == 0, "fork");
  }
  __atomic_store_n(&writing, 0, __ATOMIC_RELEASE);
  pthread_join(thread, NULL);
  must(written_late == memory && memory[5] == 1, "content");
}

static int null_file;
static volatile sig_atomic_t ticks;

static void dump(int number) {
  (void)number;
  ++ticks;
  must(write(null_file, array + 4096 * (ticks % 1000), 64) == 64, "write in a handler");
}

/// A handler that writes, while the program gives memory up.
static void handlers(void) {
  null_file = open("/dev/null", O_WRONLY);
  signal(SIGALRM, dump);
  const struct itimerval often = {{0, 500}, {0, 500}};
  setitimer(ITIMER_REAL, &often, NULL);
  for (int round = 0; round < 60 || ticks < 100; ++round) {
    char* block = malloc(64 * kMib);
    memset(block, 1, 64 * kMib);
    free(block);
  }
  const struct itimerval never = {{0, 0}, {0, 0}};
  setitimer(ITIMER_REAL, &never, NULL);
}

static void* nothing(void* argument) {
  *(volatile char*)argument = 1;
  return NULL;
}

/// Threads on stacks of the program's own, which leave while memory is short.
static void stacks(void) {
  enum { kThreads = 8, kRounds = 40, kStack = 512 << 10 };
  char* memory = mmap(NULL, kThreads * kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  uint64_t* others = filled(64, 1);
  for (int round = 0; round < kRounds; ++round) {
    pthread_t threads[kThreads];
    for (int i = 0; i < kThreads; ++i) {
      pthread_attr_t attributes;
      pthread_attr_init(&attributes);
      pthread_attr_setstack(&attributes, memory + i * kStack, kStack);
      must(pthread_create(&threads[i], &attributes, nothing, (char*)others + (round * kThreads + i) * 65536 % (64 * kMib)) == 0,
           "pthread_create");
    }
    for (int i = 0; i < kThreads; ++i) {
      must(pthread_join(threads[i], NULL) == 0, "pthread_join");
    }
  }
}

static char* volatile touched_in_handler;

static void touch_in_handler(int number) {
  (void)number;
  ++*touched_in_handler;
}

static int content_file;

/// Uses most of the smallest stack there is and, at the deepest point, memory that is on storage: itself, in a handler, and by
/// a call.
static void* use_small_stack(void* argument) {
  volatile char own[6 << 10];
  char* const memory = argument;
  for (size_t i = 0; i < sizeof own; ++i) {
    own[i] = (char)i;
  }
  for (int i = 0; i < 16; ++i) {
    char* const place = memory + i * kMib;
    if (i % 4 == 0) {
      ++*place;
    } else if (i % 4 == 1) {
      must(*place == i, "what is read");
      ++*place;
    } else if (i % 4 == 2) {
      touched_in_handler = place;
      raise(SIGUSR1);
    } else {
      const char next = (char)(i + 1);
      must(pwrite(content_file, &next, 1, 0) == 1 && pread(content_file, place, 1, 0) == 1, "pread");
    }
  }
  for (size_t i = 0; i < sizeof own; ++i) {
    must(own[i] == (char)i, "a small stack is damaged");
  }
  return NULL;
}

/// Threads on stacks as small as they may be.
static void small_stacks(void) {
  signal(SIGUSR1, touch_in_handler);
  content_file = open("content", O_RDWR | O_CREAT | O_TRUNC, 0600);
  char* memory = malloc(16 * kMib);
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 16 * kMib; ++i) {
      memory[i] = (char)(i / kMib);
    }
    press();
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    const size_t smallest = (size_t)PTHREAD_STACK_MIN;
    must(pthread_attr_setstacksize(&attributes, smallest) == 0, "pthread_attr_setstacksize");
    pthread_t thread;
    if (pthread_create(&thread, &attributes, use_small_stack, memory) != 0) {
      must(0, "a thread with the smallest stack there is cannot be started");
      return;
    }
    pthread_join(thread, NULL);
    size_t asked = 0;
    must(pthread_attr_getstacksize(&attributes, &asked) == 0 && asked == smallest, "the program's attributes were changed");
    pthread_attr_destroy(&attributes);
    for (int i = 0; i < 16 * kMib; ++i) {
      must(memory[i] == i / kMib + (i % kMib == 0), "content");
    }
  }
}

static volatile sig_atomic_t status_of_child = -1;

static void execute_here(int number) {
  (void)number;
  const pid_t child = fork();
  if (child == 0) {
    execl("/bin/true", "true", (char*)NULL);
    _exit(9);
  }
  int status = -1;
  waitpid(child, &status, 0);
  status_of_child = status;
}

#define FIVE "a", "a", "a", "a", "a"
#define FIFTY FIVE, FIVE, FIVE, FIVE, FIVE, FIVE, FIVE, FIVE, FIVE, FIVE
#define FIVE_HUNDRED FIFTY, FIFTY, FIFTY, FIFTY, FIFTY, FIFTY, FIFTY, FIFTY, FIFTY, FIFTY
#define FIVE_THOUSAND                                                                                             \
  FIVE_HUNDRED, FIVE_HUNDRED, FIVE_HUNDRED, FIVE_HUNDRED, FIVE_HUNDRED, FIVE_HUNDRED, FIVE_HUNDRED, FIVE_HUNDRED, \
      FIVE_HUNDRED, FIVE_HUNDRED

/// execl() needs no more stack than its arguments, of which there may be many.
static void executions(void) {
  char* memory = malloc(2 * kMib);
  memset(memory, 1, 2 * kMib);
  const size_t size = ((size_t)SIGSTKSZ + 4095) & ~(size_t)4095;
  char* stack = mmap(NULL, 4096 + size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  must(mprotect(stack, 4096, PROT_NONE) == 0, "mprotect");
  const stack_t alternate = {.ss_sp = stack + 4096, .ss_size = size};
  const struct sigaction action = {.sa_handler = execute_here, .sa_flags = SA_ONSTACK};
  must(sigaltstack(&alternate, NULL) == 0 && sigaction(SIGUSR1, &action, NULL) == 0, "sigaltstack");
  raise(SIGUSR1);
  must(status_of_child == 0, "execl on a small stack");
  const pid_t child = fork();
  if (child == 0) {
    execl("/bin/sh", "sh", "-c", "test $# = 5000 && test $1 = a", "sh", FIVE_THOUSAND, (char*)NULL);
    _exit(9);
  }
  int status = -1;
  must(waitpid(child, &status, 0) == child && status == 0, "execl with many arguments");
}

/// Small mappings, until files may not be larger and beyond.
static void limited(void) {
  enum { kMappings = 400, kEach = 68 << 10 };
  char* mappings[kMappings];
  for (int i = 0; i < kMappings; ++i) {
    mappings[i] = mmap(NULL, kEach, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(mappings[i] != MAP_FAILED, "mmap");
    memset(mappings[i], i % 100, kEach);
  }
  for (int i = 0; i < kMappings; ++i) {
    must(mappings[i][0] == i % 100 && mappings[i][kEach - 1] == i % 100, "content");
  }
}

/// A library whose constructor waits for a thread (constructor_thread_library.c).
static void constructor(const char* library) { must(dlopen(library, RTLD_NOW) != NULL, "dlopen"); }
