/* What the C library and the kernel promise, in memory that may be moved to storage: one promise a run. usage: fine_print CASE
 * [WITH]. Prints "ok", or what is wrong. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
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

/// Locks memory again and again; on a stack of the program's own.
static void* lock_often(void* argument) {
  while (__atomic_load_n(&writing, __ATOMIC_ACQUIRE)) {
    must(mlock(argument, 4096) == 0 && munlock(argument, 4096) == 0, "mlock");
  }
  return NULL;
}

/// Forks while a thread whose stack lies in memory that the fork protects is at work on memory itself.
static void forks(void) {
  enum { kForks = 300, kStack = 512 << 10 };
  char* stack = mmap(NULL, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  char* memory = mmap(NULL, 4 * kMib, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstack(&attributes, stack, kStack);
  writing = 1;
  pthread_t thread;
  must(pthread_create(&thread, &attributes, lock_often, memory) == 0, "pthread_create");
  for (int i = 0; i < kForks; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      _exit(0);
    }
    must(child > 0 && waitpid(child, NULL, 0) == child, "fork");
  }
  __atomic_store_n(&writing, 0, __ATOMIC_RELEASE);
  pthread_join(thread, NULL);
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

/// Moving and replacing a mapping past the C library, as hooks of its functions do.
static void raw_maps(void) {
  char* mapping = mmap(NULL, 8 * kMib, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  char* neighbour = mmap(NULL, 4 * kMib, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(mapping, 5, 8 * kMib);
  memset(neighbour, 6, 4 * kMib);
  char* moved = (char*)syscall(SYS_mremap, mapping, (size_t)(8 * kMib), (size_t)(12 * kMib), (long)MREMAP_MAYMOVE, NULL);
  must(moved != MAP_FAILED, "mremap");
  char* later = malloc(8 * kMib); /* where the mapping was */
  memset(later, 7, 8 * kMib);
  press();
  for (int i = 0; i < 12 * kMib; ++i) {
    must(moved[i] == (i < 8 * kMib ? 5 : 0), "what was moved");
  }
  must(syscall(SYS_mmap, moved + kMib, (size_t)kMib, (long)(PROT_READ | PROT_WRITE),
               (long)(MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED), -1L, 0L) == (long)(moved + kMib),
       "mmap");
  for (int i = 0; i < kMib; ++i) {
    must(moved[kMib + i] == 0, "a fresh mapping is not zero");
    moved[kMib + i] = 8;
  }
  press();
  for (int i = 0; i < 12 * kMib; ++i) {
    must(moved[i] == (i >= kMib && i < 2 * kMib ? 8 : i < 8 * kMib ? 5 : 0), "what was written to a fresh mapping is lost");
  }
  for (int i = 0; i < 4 * kMib; ++i) {
    must(neighbour[i] == 6 && later[i] == 7 && later[4 * kMib + i] == 7, "a neighbour");
  }
}

static void raw_calls(void) {
  uint64_t* words = filled(32, 5);
  const int file = open("content", O_RDWR | O_CREAT | O_TRUNC, 0600);
  must(syscall(SYS_write, file, words, (size_t)(32 * kMib)) == 32 * kMib, "write");
  press();
  must(syscall(SYS_pread64, file, words, (size_t)(32 * kMib), (off_t)0) == 32 * kMib && is_filled(words, 32, 5), "pread");
  press();
  struct iovec vectors[2] = {{words, 16}, {words + 2, 8 * kMib - 16}};
  must(syscall(SYS_preadv, file, vectors, 2, (off_t)0, 0L) == 8 * kMib && is_filled(words, 32, 5), "preadv");
  must(syscall(SYS_read, -1, words, (size_t)8) == -1 && errno == EBADF, "an error");
  close(file);
  /* Input that goes on after the call, past the page cache. */
  const int direct = open("content", O_RDWR | O_DIRECT);
  if (direct < 0) {
    return;
  }
  char* aligned = mmap(NULL, 4 * kMib, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  aio_context_t context = 0;
  must(syscall(SYS_io_setup, 8, &context) == 0, "io_setup");
  for (int round = 0; round < 4; ++round) {
    struct iocb operation = {0}, *list = &operation;
    operation.aio_lio_opcode = IOCB_CMD_PREAD;
    operation.aio_fildes = (uint32_t)direct;
    operation.aio_buf = (uint64_t)(uintptr_t)(aligned + round * kMib);
    operation.aio_nbytes = kMib;
    operation.aio_offset = round * kMib;
    must(syscall(SYS_io_submit, context, 1L, &list) == 1, "io_submit");
  }
  press();
  struct io_event events[4];
  must(syscall(SYS_io_getevents, context, 4L, 4L, events, NULL) == 4, "io_getevents");
  press();
  must(is_filled((uint64_t*)aligned, 4, 5), "what a device has read is lost");
}

static void sockets(void) {
  int ends[2];
  must(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0, "socketpair");
  char message[1000], header[16];
  memset(message, 6, sizeof message);
  char* body = malloc(32 * kMib);
  must(send(ends[0], message, sizeof message, 0) == 1000, "send");
  struct iovec vectors[2] = {{header, sizeof header}, {body, 32 * kMib}};
  must(readv(ends[1], vectors, 2) == 1000 && header[15] == 6 && body[983] == 6, "readv of a datagram loses the rest");
  const int stream = socket(AF_INET, SOCK_STREAM, 0), one = 1;
  must(setsockopt(stream, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof one) == -1 && errno == ENOPROTOOPT, "sending without a copy");
}

/// A message of more than may be held at once goes as one.
static void messages(void) {
  enum { kMessage = 3 * kMib };
  int ends[2], high = 4 * kMib;
  must(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0, "socketpair");
  setsockopt(ends[0], SOL_SOCKET, SO_SNDBUFFORCE, &high, sizeof high);
  socklen_t length = sizeof high;
  must(getsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &high, &length) == 0, "getsockopt");
  if (high < kMessage + 65536) { /* who may not have so much */
    return;
  }
  char* out = malloc(kMessage);
  char* in = malloc(2 * kMessage);
  memset(out, 5, kMessage);
  memset(in, 6, 2 * kMessage);
  press();
  must(write(ends[0], out, kMessage) == kMessage, "write of a message");
  press();
  must(read(ends[1], in, 2 * kMessage) == kMessage, "read of a message");
  for (int i = 0; i < 2 * kMessage; ++i) {
    must(in[i] == (i < kMessage ? 5 : 6), "a message's content");
  }
}

enum { kRecord = 4 * kMib, kRecords = 12 };
static int records;

static void* read_records(void* with_readv) {
  char* in = malloc(kRecord);
  for (ssize_t got = kRecord; got > 0;) {
    struct iovec parts[2] = {{in, 100}, {in + 100, kRecord - 100}};
    got = with_readv != NULL ? readv(records, parts, 2) : read(records, in, kRecord);
    must(got == 0 || got == kRecord, "a record is cut");
    for (int i = 0; i < got; ++i) {
      must(in[i] == in[0], "a record is made of several");
    }
  }
  free(in);
  return NULL;
}

/// Threads that share a file's position read records of more than may be held at once.
static void positions(void) {
  records = open("records", O_RDWR | O_CREAT | O_TRUNC, 0600);
  char* out = malloc(kRecord);
  for (int i = 0; i < kRecords; ++i) {
    memset(out, i, kRecord);
    must(pwrite(records, out, kRecord, (off_t)i * kRecord) == kRecord, "pwrite");
  }
  press();
  pthread_t threads[4];
  for (int i = 0; i < 4; ++i) {
    must(pthread_create(&threads[i], NULL, read_records, i % 2 == 0 ? NULL : &records) == 0, "pthread_create");
  }
  for (int i = 0; i < 4; ++i) {
    pthread_join(threads[i], NULL);
  }
  must(lseek(records, 0, SEEK_CUR) == (off_t)kRecords * kRecord, "the position at the end");
  must(lseek(records, -10, SEEK_CUR) > 0 && read(records, out, kRecord) == 10 && out[9] == kRecords - 1, "the last bytes");
  must(lseek(records, 0, SEEK_CUR) == (off_t)kRecords * kRecord && read(records, out, kRecord) == 0, "the end");
}

/// A stream's buffer, which the C library gives to the kernel, set in each way there is.
static void buffers(void) {
  enum { kContent = 4 * kMib, kWays = 3 };
  char* out = malloc(kContent);
  char* in = malloc(kContent);
  memset(out, 5, kContent);
  for (int way = 0; way < kWays; ++way) {
    FILE* stream = fopen("buffers", "w+");
    char* buffer = malloc(2 * kMib);
    must(stream != NULL, "fopen");
    if (way == 0) {
      setbuf(stream, buffer);
    } else if (way == 1) {
      setbuffer(stream, buffer, kMib);
    } else {
      must(setvbuf(stream, buffer, _IOFBF, kMib) == 0, "setvbuf");
    }
    for (int i = 0; i < kContent; i += 1000) {
      must(fwrite(out + i, 1, 1000 < kContent - i ? 1000 : (size_t)(kContent - i), stream) > 0, "fwrite");
      if (i % kMib < 1000) {
        press();
      }
    }
    press();
    must(fflush(stream) == 0, "fflush");
    rewind(stream);
    memset(in, 0, kContent);
    press();
    for (int i = 0; i < kContent; i += 1000) {
      must(fread(in + i, 1, 1000 < kContent - i ? 1000 : (size_t)(kContent - i), stream) > 0, "fread");
    }
    must(memcmp(in, out, kContent) == 0, "content that went by way of a stream's buffer");
    fclose(stream);
    free(buffer);
  }
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

int main(int argc, char** argv) {
  const char* name = argc > 1 ? argv[1] : "";
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
  } else {
    wrong = "no such case";
  }
  printf("%s\n", wrong == NULL ? "ok" : wrong);
  return wrong == NULL ? 0 : 1;
}
