/* What the kernel is given to work on after a call has returned, and is more than may stay resident: asynchronous input and
   output of files, by POSIX and by libaio, memory for pipes, and sending without a copy. Prints "ok" or what went wrong.
   usage: beyond_pins MIB FILE */
#define _GNU_SOURCE
#include <aio.h>
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/errqueue.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "pressure.h"

static unsigned char *buffer, *other;
static size_t half;
static volatile sig_atomic_t signalled;
static volatile int notified;

static void on_signal(int number, siginfo_t* info, void* context) {
  (void)number;
  (void)context;
  signalled = info->si_code == SI_ASYNCIO ? info->si_value.sival_int : -1;
}
static void on_notice(union sigval value) { notified = value.sival_int; }

static struct aiocb operation_on(int file, void* memory, size_t count, off_t offset) {
  struct aiocb operation = {0};
  operation.aio_fildes = file;
  operation.aio_buf = memory;
  operation.aio_nbytes = count;
  operation.aio_offset = offset;
  operation.aio_sigevent.sigev_notify = SIGEV_NONE;
  return operation;
}

static ssize_t ended(struct aiocb* operation) {
  const struct aiocb* const list[] = {operation};
  while (aio_error(operation) == EINPROGRESS) {
    CHECK(aio_suspend(list, 1, NULL) == 0 || errno == EINTR);
  }
  CHECK(operation->aio_fildes < 0 || aio_cancel(operation->aio_fildes, operation) == AIO_ALLDONE);
  return aio_return(operation);
}

static void posix(int file) {
  fill(buffer, half, 1);
  press();
  struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO}, before;
  CHECK(sigaction(SIGRTMIN, &action, &before) == 0);
  struct aiocb writes = operation_on(file, buffer, half, 0);
  writes.aio_sigevent = (struct sigevent){.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN, .sigev_value.sival_int = 7};
  CHECK(aio_write(&writes) == 0 && ended(&writes) == (ssize_t)half);
  for (int look = 0; look < 2000 && signalled != 7; ++look) {
    usleep(1000);
  }
  CHECK(signalled == 7);
  memset(other, 0, half);
  press();
  struct aiocb reads = operation_on(file, other, half, 0);
  reads.aio_sigevent.sigev_notify = SIGEV_THREAD;
  reads.aio_sigevent.sigev_notify_function = on_notice;
  reads.aio_sigevent.sigev_value.sival_int = 8;
  CHECK(aio_read(&reads) == 0 && ended(&reads) == (ssize_t)half);
  for (int look = 0; look < 2000 && notified != 8; ++look) {
    usleep(1000);
  }
  CHECK(notified == 8);
  press();
  CHECK(same(other, half, 1));
  struct aiocb nowhere = operation_on(-1, buffer, half, 0);
  CHECK((aio_write(&nowhere) == -1 && errno == EBADF) || ended(&nowhere) == -1);
}

static void list_of_both(int file) {
  static unsigned char small[4096];
  memset(small, 5, sizeof small);
  fill(buffer, half, 2);
  press();
  struct aiocb large = operation_on(file, buffer, half, 0), little = operation_on(file, small, sizeof small, (off_t)half);
  large.aio_lio_opcode = little.aio_lio_opcode = LIO_WRITE;
  struct aiocb* const writes[] = {&large, NULL, &little};
  CHECK(lio_listio(LIO_WAIT, writes, 3, NULL) == 0);
  CHECK(aio_return(&large) == (ssize_t)half && aio_return(&little) == sizeof small);
  memset(other, 0, half);
  press();
  large = operation_on(file, other, half, 0);
  large.aio_lio_opcode = LIO_READ;
  struct aiocb* const reads[] = {&large};
  notified = 0;
  struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = on_notice, .sigev_value.sival_int = 9};
  CHECK(lio_listio(LIO_NOWAIT, reads, 1, &event) == 0 && ended(&large) == (ssize_t)half);
  for (int look = 0; look < 2000 && notified != 9; ++look) {
    usleep(1000);
  }
  CHECK(notified == 9 && same(other, half, 2));
}

static void appended(const char* path) {
  const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
  static unsigned char first[4096];
  memset(first, 3, sizeof first);
  fill(buffer, half, 3);
  press();
  struct aiocb little = operation_on(file, first, sizeof first, 0), large = operation_on(file, buffer, half, 0);
  CHECK(aio_write(&little) == 0 && aio_write(&large) == 0);
  CHECK(ended(&little) == sizeof first && ended(&large) == (ssize_t)half);
  close(file);
  const int again = open(path, O_RDONLY);
  unsigned char byte = 0;
  CHECK(pread(again, &byte, 1, 0) == 1 && byte == 3 && pread(again, &byte, 1, sizeof first) == 1 && byte == buffer[0]);
  close(again);
}

static void by_libaio(int file) {
  aio_context_t context = 0;
  CHECK(syscall(SYS_io_setup, 4, &context) == 0);
  fill(buffer, half, 4);
  press();
  struct iocb writes = {.aio_lio_opcode = IOCB_CMD_PWRITE,
                        .aio_fildes = (uint32_t)file,
                        .aio_buf = (uint64_t)buffer,
                        .aio_nbytes = half,
                        .aio_data = 11};
  struct iocb* list[] = {&writes};
  struct io_event event = {0};
  CHECK(syscall(SYS_io_submit, context, 1, list) == 1);
  CHECK(syscall(SYS_io_getevents, context, 1, 1, &event, NULL) == 1);
  CHECK(event.data == 11 && event.obj == (uint64_t)&writes && event.res == (int64_t)half);
  memset(other, 0, half);
  press();
  const struct iovec vectors[] = {{other, half / 2}, {other + half / 2, half / 2}};
  struct iocb reads = {.aio_lio_opcode = IOCB_CMD_PREADV,
                       .aio_fildes = (uint32_t)file,
                       .aio_buf = (uint64_t)vectors,
                       .aio_nbytes = 2,
                       .aio_data = 12};
  list[0] = &reads;
  CHECK(syscall(SYS_io_submit, context, 1, list) == 1);
  CHECK(syscall(SYS_io_getevents, context, 1, 1, &event, NULL) == 1);
  CHECK(event.data == 12 && event.res > 0 && event.res <= (int64_t)half);
  press();
  CHECK(same(other, (size_t)event.res, 4));
  CHECK(syscall(SYS_io_destroy, context) == 0);
}

static void pipes(void) {
  int ends[2];
  CHECK(pipe(ends) == 0 && fcntl(ends[1], F_SETPIPE_SZ, 1 << 20) > 0);
  fill(buffer, half, 5);
  press();
  const struct iovec whole = {buffer, half};
  const ssize_t given = vmsplice(ends[1], &whole, 1, SPLICE_F_NONBLOCK);
  CHECK(given > 0);
  press();
  memset(other, 0, half);
  for (ssize_t got = 0; got < given;) {
    const struct iovec rest = {other + got, (size_t)(given - got)};
    const ssize_t more = vmsplice(ends[0], &rest, 1, 0);
    CHECK(more > 0);
    got += more;
  }
  CHECK(same(other, (size_t)given, 5));
  close(ends[0]);
  close(ends[1]);
}

static void* receive_all(void* argument) {
  const int socket_of_it = *(int*)argument;
  usleep(100000);
  for (size_t got = 0; got < half;) {
    const ssize_t more = recv(socket_of_it, other + got, half - got, 0);
    CHECK(more > 0);
    got += (size_t)more;
  }
  return NULL;
}

static void without_copy(void) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof address;
  CHECK(bind(listener, (struct sockaddr*)&address, length) == 0 && listen(listener, 1) == 0);
  CHECK(getsockname(listener, (struct sockaddr*)&address, &length) == 0);
  const int sender = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(connect(sender, (struct sockaddr*)&address, length) == 0);
  int receiver = accept(listener, NULL, NULL);
  const int on = 1;
  CHECK(setsockopt(sender, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on) == 0);
  fill(buffer, half, 6);
  press();
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, receive_all, &receiver) == 0);
  for (size_t sent = 0; sent < half;) {
    const ssize_t more = send(sender, buffer + sent, half - sent, MSG_ZEROCOPY);
    CHECK(more > 0);
    sent += (size_t)more;
  }
  press();
  pthread_join(thread, NULL);
  CHECK(same(other, half, 6));
  struct pollfd told = {sender, POLLERR, 0};
  CHECK(poll(&told, 1, 5000) == 1); /* the program is told that it may change its memory */
  close(sender);
  close(receiver);
  close(listener);
}

int main(int argc, char** argv) {
  if (argc != 3) {
    return 2;
  }
  bytes = (size_t)atoi(argv[1]) << 20;
  half = bytes / 2;
  buffer = malloc(half);
  other = malloc(half);
  pressure = malloc(bytes);
  memset(pressure, 0, bytes);
  const int file = open(argv[2], O_RDWR | O_CREAT | O_TRUNC, 0600);
  CHECK(file >= 0);
  posix(file);
  list_of_both(file);
  by_libaio(file);
  appended(argv[2]);
  pipes();
  without_copy();
  printf("ok\n");
  return 0;
}
