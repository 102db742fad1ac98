/* Hands evictable memory to the kernel in many ways: read, write, pread, readv, direct I/O, fread, fwrite, static arrays whose
   ends lie outside the arena, datagrams one and several at a time, messages larger than memory on a stream, asynchronous
   input and output, calls by syscall(), paths and structures, setvbuf, sigaltstack, stacks of a coroutine and of a thread (and
   fork() on it), madvise, mremap, mprotect. Prints "ok" or what went wrong. usage: system_calls MIB */
#define _GNU_SOURCE
#include <aio.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "pressure.h"

int io_submit(aio_context_t context, long count, struct iocb** operations) __attribute__((weak));

static void files(const char* path) {
  const size_t count = bytes / 2;
  unsigned char *out = malloc(count), *in = malloc(count);
  fill(out, count, 1);
  press();
  int file = open(path, O_CREAT | O_RDWR | O_TRUNC, 0600);
  CHECK(file >= 0 && write(file, out, count) == (ssize_t)count);
  press();
  CHECK(pread(file, in, count, 0) == (ssize_t)count && same(in, count, 1));
  memset(in, 0, count);
  press();
  struct iovec parts[3] = {{in, count / 3}, {in + count / 3, count / 3}, {in + 2 * (count / 3), count - 2 * (count / 3)}};
  CHECK(lseek(file, 0, SEEK_SET) == 0 && readv(file, parts, 3) == (ssize_t)count && same(in, count, 1));
  /* a short read must leave what is behind it alone */
  in[10] = 77;
  CHECK(pread(file, in, count, (off_t)count - 10) == 10 && in[10] == 77);
  close(file);

  int direct = open(path, O_RDWR | O_DIRECT);
  if (direct >= 0) { /* the device writes into pages that must not be taken away meanwhile */
    unsigned char* aligned = aligned_alloc(4096, count);
    press();
    CHECK(pread(direct, aligned, count & ~4095ul, 0) == (ssize_t)(count & ~4095ul));
    press();
    CHECK(same(aligned, count & ~4095ul, 1));
    free(aligned);
    close(direct);
  }

  FILE* stream = fopen(path, "w+");
  char* own_buffer = malloc(2 << 20);
  CHECK(stream != NULL && setvbuf(stream, own_buffer, _IOFBF, 2 << 20) == 0);
  fill(out, count, 5);
  press();
  CHECK(fwrite(out, 1, count, stream) == count && fflush(stream) == 0);
  rewind(stream);
  memset(in, 0, count);
  press();
  CHECK(fread(in, 1, count, stream) == count && same(in, count, 5));
  fclose(stream);
  unlink(path);
  free(own_buffer);
  free(in);
  free(out);
}

/* Of a static array only whole pages can be moved into the arena: its first and last bytes stay where they are. */
static unsigned char before_array = 1;
static unsigned char odd_array[(8 << 20) + 1001] = {1};
static void static_arrays(const char* path) {
  const size_t count = sizeof odd_array - 1;
  unsigned char* array = odd_array + before_array;
  fill(array, count, 9);
  press();
  int file = open(path, O_CREAT | O_RDWR | O_TRUNC, 0600);
  CHECK(file >= 0 && write(file, array, count) == (ssize_t)count);
  memset(array, 0, count);
  press();
  CHECK(pread(file, array, count, 0) == (ssize_t)count && same(array, count, 9));
  const size_t stored = (size_t)lseek(file, 0, SEEK_END); /* unknown to the compiler: __pread_chk under _FORTIFY_SOURCE */
  CHECK(pread(file, odd_array, stored, 0) == (ssize_t)count && same(odd_array, count, 9));
  FILE* stream = fdopen(file, "r+");
  CHECK(stream != NULL && fseek(stream, 0, SEEK_SET) == 0);
  memset(array, 0, count);
  press();
  CHECK(fread(array, 1, count, stream) == count && same(array, count, 9));
  fclose(stream);
  unlink(path);
}

/* Several datagrams with one call. */
static void many_datagrams(void) {
  int ends[2];
  CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0);
  unsigned char* buffer = malloc(4 << 20);
  fill(buffer, 4 << 20, 6);
  struct iovec out[3], in[3];
  struct mmsghdr sent[3] = {0}, received[3] = {0};
  for (int i = 0; i < 3; ++i) {
    out[i] = (struct iovec){buffer + i * 4096, 4096};
    in[i] = (struct iovec){buffer + (2 << 20) + i * 4096, 4096};
    sent[i].msg_hdr.msg_iov = &out[i];
    received[i].msg_hdr.msg_iov = &in[i];
    sent[i].msg_hdr.msg_iovlen = received[i].msg_hdr.msg_iovlen = 1;
  }
  press();
  CHECK(sendmmsg(ends[0], sent, 3, 0) == 3);
  press();
  CHECK(recvmmsg(ends[1], received, 3, 0, NULL) == 3);
  CHECK(memcmp(buffer, buffer + (2 << 20), 3 * 4096) == 0);
  enum { kBatch = 64 }; /* the usual batch */
  static struct iovec batch_in[kBatch], batch_out[kBatch];
  static struct mmsghdr batch_sent[kBatch], batch_received[kBatch];
  int high = 1 << 20;
  CHECK(setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &high, sizeof high) == 0);
  int got = 0, put = 0;
  memset(buffer + (2 << 20), 0, 1 << 20);
  for (int i = 0; i < kBatch; ++i) {
    batch_out[i] = (struct iovec){buffer + i * 1024, 1024};
    batch_in[i] = (struct iovec){buffer + (2 << 20) + i * 1024, 1024};
    batch_sent[i].msg_hdr = (struct msghdr){.msg_iov = &batch_out[i], .msg_iovlen = 1};
    batch_received[i].msg_hdr = (struct msghdr){.msg_iov = &batch_in[i], .msg_iovlen = 1};
  }
  while (got < kBatch) { /* the queue of such a socket holds fewer */
    press();
    int sent_now = sendmmsg(ends[0], batch_sent + put, (unsigned)(kBatch - put), MSG_DONTWAIT);
    put += sent_now > 0 ? sent_now : 0;
    press();
    int received_now = recvmmsg(ends[1], batch_received + got, (unsigned)(kBatch - got), MSG_DONTWAIT, NULL);
    CHECK(received_now > 0);
    got += received_now;
  }
  CHECK(memcmp(buffer, buffer + (2 << 20), kBatch * 1024) == 0);
  free(buffer);
  close(ends[0]);
  close(ends[1]);
}

struct stream_end {
  int socket;
  unsigned char* buffer;
  size_t count;
};

static void* receive_whole(void* argument) {
  struct stream_end* end = argument;
  const size_t third = end->count / 3;
  struct iovec parts[2] = {{end->buffer, third}, {end->buffer + third, end->count - third}};
  struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
  CHECK(recvmsg(end->socket, &message, MSG_WAITALL) == (ssize_t)end->count);
  return NULL;
}

/* One sendmsg and one recvmsg of as much as everything that may be resident; and a datagram of more than may be held. */
static void large_messages(void) {
  const size_t count = bytes / 2;
  int ends[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  unsigned char *out = malloc(count), *in = malloc(count);
  fill(out, count, 11);
  memset(in, 0, count);
  press();
  struct stream_end end = {ends[0], in, count};
  pthread_t receiver;
  CHECK(pthread_create(&receiver, NULL, receive_whole, &end) == 0);
  struct iovec parts[2] = {{out, count / 2}, {out + count / 2, count - count / 2}};
  struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
  CHECK(sendmsg(ends[1], &message, 0) == (ssize_t)count);
  CHECK(pthread_join(receiver, NULL) == 0 && same(in, count, 11));
  struct mmsghdr first = {.msg_hdr = {.msg_iov = parts, .msg_iovlen = 2}}; /* nobody reads now: as much as there is room for */
  CHECK(sendmmsg(ends[1], &first, 1, MSG_DONTWAIT) == 1 && first.msg_len > 0 && first.msg_len < count);
  close(ends[0]);
  close(ends[1]);
  CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
  CHECK(sendto(ends[1], out, count, 0, NULL, 0) == -1 && errno == EMSGSIZE); /* whole or not at all */
  free(in);
  free(out);
  close(ends[0]);
  close(ends[1]);
}

/* The calls return at once; the buffers must stay where they are until the disk is done with them. */
static void asynchronous(const char* path) {
  const size_t count = 1 << 20;
  unsigned char* buffer = aligned_alloc(4096, 2 * count);
  int file = open(path, O_CREAT | O_RDWR | O_TRUNC | O_DIRECT, 0600);
  file = file >= 0 ? file : open(path, O_CREAT | O_RDWR | O_TRUNC, 0600);
  fill(buffer, count, 12);
  for (int round = 0; round < 4; ++round) {
    press();
    struct aiocb out = {.aio_fildes = file, .aio_buf = buffer, .aio_nbytes = count};
    struct aiocb in = {.aio_fildes = file, .aio_buf = buffer + count, .aio_nbytes = count, .aio_lio_opcode = LIO_READ};
    const struct aiocb* wait = &out;
    CHECK(aio_write(&out) == 0);
    press();
    CHECK(aio_suspend(&wait, 1, NULL) == 0 && aio_error(&out) == 0 && aio_return(&out) == (ssize_t)count);
    memset(buffer + count, 0, count);
    press();
    struct aiocb* list = &in;
    CHECK((round % 2 == 0 ? aio_read(&in) : lio_listio(LIO_NOWAIT, &list, 1, NULL)) == 0);
    press();
    wait = &in;
    CHECK(aio_suspend(&wait, 1, NULL) == 0 && aio_return(&in) == (ssize_t)count);
    press();
    CHECK(same(buffer + count, count, 12));
  }
  aio_context_t context = 0;
  CHECK(syscall(SYS_io_setup, 4, &context) == 0);
  if (io_submit != NULL) { /* libaio's, where something has loaded it */
    struct iocb in = {.aio_lio_opcode = IOCB_CMD_PREAD, .aio_fildes = (unsigned)file, .aio_nbytes = count};
    in.aio_buf = (uintptr_t)(buffer + count);
    struct iocb* list[] = {&in};
    memset(buffer + count, 0, count);
    press();
    CHECK(io_submit(context, 1, list) == 1);
    press();
    struct io_event event;
    CHECK(syscall(SYS_io_getevents, context, 1, 1, &event, NULL) == 1 && event.res == (long)count);
    press();
    CHECK(same(buffer + count, count, 12));
  }
  CHECK(syscall(SYS_io_destroy, context) == 0);
  int ends[2];
  CHECK(pipe(ends) == 0);
  struct iovec vector = {buffer, 16384};
  CHECK(vmsplice(ends[1], &vector, 1, 0) == 16384);
  press();
  unsigned char taken[16384];
  CHECK(read(ends[0], taken, sizeof taken) == sizeof taken && same(taken, sizeof taken, 12));
  close(ends[0]);
  close(ends[1]);
  close(file);
  unlink(path);
  free(buffer);
}

/* Calls that no wrapper knows. */
static void bare_calls(void) {
  char* buffer = malloc(2 << 20);
  char* path = malloc(2 << 20);
  char here[4096];
  CHECK(getcwd(here, sizeof here) != NULL);
  memset(buffer, 1, 2 << 20);
  press();
  CHECK(syscall(SYS_getcwd, buffer, 4096L) == (long)strlen(here) + 1 && strcmp(buffer, here) == 0);
  strcpy(path, here);
  press();
  const int folder = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_DIRECTORY);
  CHECK(folder >= 0);
  press();
  CHECK(syscall(SYS_getdents64, folder, buffer + (1 << 20), 1L << 20) > 0);
  close(folder);
  press();
  CHECK(syscall(SYS_uname, buffer + (2 << 20) - 390) == 0); /* 390 bytes, to the end of the allocation */
  press();
  CHECK(syscall(SYS_clock_gettime, CLOCK_REALTIME, buffer) == 0);
  CHECK(syscall(SYS_uname, (void*)8) == -1 && errno == EFAULT);
  /* One that has changed the setting before it fails to tell the old one may not be made again: it would tell the new one. */
  sigset_t blocked, now;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR2);
  press();
  const long told = syscall(SYS_rt_sigprocmask, SIG_BLOCK, &blocked, buffer, 8L);
  CHECK(told == 0 || errno == EFAULT);
  CHECK(told != 0 || !sigismember((sigset_t*)buffer, SIGUSR2));
  CHECK(sigprocmask(SIG_UNBLOCK, &blocked, &now) == 0);
  free(path);
  free(buffer);
}

static void* late_sender(void* socket) {
  static unsigned char datagram[50000];
  usleep(200000);
  fill(datagram, sizeof datagram, 3);
  CHECK(send(*(int*)socket, datagram, sizeof datagram, 0) == sizeof datagram);
  return NULL;
}

/* A datagram arrives while the receiver waits in a buffer that others want evicted. */
static void datagrams(void) {
  int ends[2];
  CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0);
  unsigned char* buffer = malloc(2 << 20);
  memset(buffer, 0, 2 << 20);
  press();
  pthread_t sender;
  CHECK(pthread_create(&sender, NULL, late_sender, &ends[1]) == 0);
  CHECK(recv(ends[0], buffer, 2 << 20, 0) == 50000 && same(buffer, 50000, 3));
  pthread_join(sender, NULL);
  free(buffer);
  close(ends[0]);
  close(ends[1]);
}

static volatile sig_atomic_t signals;
static void on_signal(int number) {
  (void)number;
  ++signals;
}

static void* on_own_stack(void* argument) {
  char local[1 << 16];
  memset(local, 1, sizeof local);
  press();
  CHECK(fork() == -1 && errno == ENOMEM); /* the child would begin without a stack */
  return local[100] == 1 ? argument : NULL;
}

static ucontext_t main_context, coroutine_context;
static int coroutine_done;
static void coroutine(void) {
  char local[1 << 16];
  memset(local, 2, sizeof local);
  press();
  coroutine_done = local[500] == 2;
  swapcontext(&coroutine_context, &main_context);
}

static void stacks(void) {
  char* own = malloc(2 << 20);
  CHECK(getcontext(&coroutine_context) == 0);
  coroutine_context.uc_stack = (stack_t){.ss_sp = own, .ss_size = 2 << 20};
  coroutine_context.uc_link = &main_context;
  makecontext(&coroutine_context, coroutine, 0);
  press();
  CHECK(swapcontext(&main_context, &coroutine_context) == 0 && coroutine_done);

  char* stack = malloc(2 << 20);
  stack_t alternate = {.ss_sp = stack, .ss_size = 2 << 20};
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
  CHECK(sigaltstack(&alternate, NULL) == 0 && sigaction(SIGUSR1, &action, NULL) == 0);
  press();
  CHECK(raise(SIGUSR1) == 0 && signals == 1);
  stack_t none = {.ss_flags = SS_DISABLE};
  CHECK(sigaltstack(&none, NULL) == 0);

  char* thread_stack = mmap(NULL, 4 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  CHECK(pthread_attr_setstack(&attributes, thread_stack, 4 << 20) == 0);
  pthread_t thread;
  void* result;
  CHECK(pthread_create(&thread, &attributes, on_own_stack, thread_stack) == 0 && pthread_join(thread, &result) == 0);
  CHECK(result == thread_stack);
  CHECK(munmap(thread_stack, 4 << 20) == 0);
}

/* Paths, structures and lists in evictable memory. */
static void small_arguments(const char* path) {
  enum { kMiB = 1 << 20 };
  char* place = malloc(8 * kMiB);
  char *name = place + kMiB, *other = place + 2 * kMiB;
  struct stat* status = (struct stat*)(place + 3 * kMiB);
  struct pollfd* list = (struct pollfd*)(place + 4 * kMiB);
  int* result = (int*)(place + 5 * kMiB);
  char* text = place + 6 * kMiB;
  memset(place, 1, 8 * kMiB);
  strcpy(name, path);
  strcpy(other, path);
  strcat(other, "-other");
  press();
  int file = open(name, O_CREAT | O_RDWR | O_TRUNC, 0640);
  CHECK(file >= 0);
  press();
  CHECK(stat(name, status) == 0 && (status->st_mode & 0777) == 0640);
  press();
  CHECK(fstat(file, status) == 0);
  press();
  CHECK(rename(name, other) == 0);
  press();
  CHECK(access(other, R_OK) == 0 && lstat(other, status) == 0);
  list[0] = (struct pollfd){.fd = file, .events = POLLIN};
  press();
  CHECK(poll(list, 1, 0) == 1 && list[0].revents == POLLIN);
  static struct pollfd many[1 << 18];                       /* 2 MiB, so in the arena */
  const nfds_t entries = (nfds_t)(list[0].revents & 1) * 8; /* unknown to the compiler: __poll_chk under _FORTIFY_SOURCE */
  many[7] = list[0];
  for (nfds_t i = 0; i < 7; ++i) {
    many[i].fd = -1;
  }
  press();
  CHECK(poll(many, entries, 0) == 1);
  press();
  CHECK(getrandom(text, kMiB, 0) > 0);
  press();
  CHECK(ioctl(file, FIONREAD, result) == 0 && *result == 0);
  press();
  CHECK(unlink(other) == 0);
  press();
  CHECK(readlink("/proc/self/exe", text, 200) > 0);
  const pid_t child = vfork();
  if (child == 0) {
    _exit(3);
  }
  press();
  CHECK(waitpid(child, result, 0) == child && WEXITSTATUS(*result) == 3);
  close(file);
  free(place);
}

static atomic_int presses_on;

static void* press_on(void* unused) {
  while (atomic_load(&presses_on)) {
    press();
  }
  return unused;
}

/* A child that shares memory with its parent until it executes another program uses what is on storage, and what it executes is
   named there, while other threads drive memory out. */
static void vforked(void) {
  enum { kBytes = 4 << 20, kTimes = 6 };
  unsigned char* buffer = malloc(kBytes);
  volatile unsigned char* shared = buffer; /* what the child changes is the parent's, too */
  char* name = malloc(2 << 20);
  pthread_t presser;
  fill(buffer, kBytes, 9);
  strcpy(name, "/bin/true");
  press();
  atomic_store(&presses_on, 1);
  CHECK(pthread_create(&presser, NULL, press_on, NULL) == 0);
  for (int round = 0; round < kTimes; ++round) {
    const pid_t child = vfork();
    if (child == 0) {
      if (!same(buffer, kBytes, 9)) {
        _exit(4);
      }
      shared[round] ^= 0xff;
      execl(name, name, (char*)NULL);
      _exit(5);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    shared[round] ^= 0xff;
  }
  atomic_store(&presses_on, 0);
  CHECK(pthread_join(presser, NULL) == 0);
  CHECK(same(buffer, kBytes, 9));
  free(name);
  free(buffer);
}

/* The program blocks every signal and still touches memory that is not there. */
static void blocked_signals(void) {
  sigset_t all, before;
  sigfillset(&all);
  CHECK(sigprocmask(SIG_SETMASK, &all, &before) == 0);
  press();
  press();
  CHECK(sigprocmask(SIG_SETMASK, &before, NULL) == 0);
}

static void maps(void) {
  unsigned char* map = mmap(NULL, 8 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(map != MAP_FAILED);
  fill(map, 8 << 20, 2);
  press();
  CHECK(madvise(map + (1 << 20) + 4096, 2 << 20, MADV_DONTNEED) == 0);
  for (size_t i = 0; i < (2 << 20); i += 513) {
    CHECK(map[(1 << 20) + 4096 + i] == 0);
  }
  CHECK(same(map, (1 << 20) + 4096, 2));
  fill(map, 8 << 20, 4);
  unsigned char* moved = mremap(map, 8 << 20, 20 << 20, MREMAP_MAYMOVE);
  CHECK(moved != MAP_FAILED);
  press();
  CHECK(same(moved, 8 << 20, 4) && moved[(20 << 20) - 1] == 0);
  CHECK(mprotect(moved + (10 << 20), 4096, PROT_NONE) == 0 && mprotect(moved + (10 << 20), 4096, PROT_READ | PROT_WRITE) == 0);
  moved[10 << 20] = 1;
  CHECK(munmap(moved + (4 << 20), 2 << 20) == 0);
  press();
  CHECK(same(moved, 4 << 20, 4));
  CHECK(munmap(moved, 4 << 20) == 0 && munmap(moved + (6 << 20), 14 << 20) == 0);
  void* aligned;
  CHECK(posix_memalign(&aligned, 1 << 21, 3 << 20) == 0 && (uintptr_t)aligned % (1 << 21) == 0);
  CHECK(malloc_usable_size(aligned) >= 3 << 20);
  free(aligned);
  char* grown = malloc(1000);
  memset(grown, 6, 1000);
  grown = realloc(grown, 5 << 20);
  CHECK(grown[999] == 6);
  memset(grown, 7, 5 << 20);
  grown = realloc(grown, 30 << 20);
  CHECK(grown[(5 << 20) - 1] == 7);
  grown = realloc(grown, 100);
  CHECK(grown[99] == 7);
  free(grown);
}

int main(int argc, char** argv) {
  bytes = (size_t)atoi(argc > 1 ? argv[1] : "16") << 20;
  sigset_t all, none; /* blocked before Headroom has anything to do in this process */
  sigfillset(&all);
  CHECK(sigprocmask(SIG_SETMASK, &all, &none) == 0);
  pressure = malloc(bytes);
  memset(pressure, 0, bytes);
  char path[256];
  snprintf(path, sizeof path, "%s/system_calls-%d", argc > 2 ? argv[2] : "/var/tmp", getpid());
  files(path);
  CHECK(sigprocmask(SIG_SETMASK, &none, NULL) == 0);
  static_arrays(path);
  many_datagrams();
  large_messages();
  asynchronous(path);
  bare_calls();
  datagrams();
  stacks();
  small_arguments(path);
  blocked_signals();
  vforked();
  maps();
  printf("ok\n");
  return 0;
}
