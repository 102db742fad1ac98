/* One transfer of many small pieces, each in a block of its own, which together are far more memory than there is: to a file
   and back, and through a socket. Prints "ok". usage: scattered_vectors MIB */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define CHECK(condition)                                      \
  do {                                                        \
    if (!(condition)) {                                       \
      fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
      exit(1);                                                \
    }                                                         \
  } while (0)

enum { kPiece = 100, kBlock = 256 << 10, kMost = 1000 };

static struct iovec pieces[kMost];
static int count;
static char* memory;

static void fill(unsigned round) {
  for (int index = 0; index < count; ++index) {
    memset(pieces[index].iov_base, (int)((unsigned)index * 7 + round) & 0xff, kPiece);
  }
}

static void check(unsigned round) {
  for (int index = 0; index < count; ++index) {
    const unsigned char* at = pieces[index].iov_base;
    for (int byte = 0; byte < kPiece; ++byte) {
      CHECK(at[byte] == (((unsigned)index * 7 + round) & 0xff));
    }
  }
}

/* Drives everything else out. */
static void press(void) {
  for (int index = 0; index < count; ++index) {
    memory[(size_t)index * kBlock + kBlock / 2] += 1;
  }
}

static ssize_t all(ssize_t (*transfer)(int, const struct iovec*, int), int file) {
  ssize_t done = 0;
  while (done < (ssize_t)count * kPiece) { /* may come back short, at any place */
    const int first = (int)(done / kPiece);
    const int skipped = (int)(done % kPiece);
    struct iovec rest[kMost];
    memcpy(rest, pieces + first, (size_t)(count - first) * sizeof *rest);
    rest[0].iov_base = (char*)rest[0].iov_base + skipped;
    rest[0].iov_len -= (size_t)skipped;
    const ssize_t moved = transfer(file, rest, count - first);
    CHECK(moved > 0);
    done += moved;
  }
  return done;
}

static ssize_t send_vectors(int file, const struct iovec* vectors, int many) {
  struct msghdr message = {.msg_iov = (struct iovec*)vectors, .msg_iovlen = (size_t)many};
  return sendmsg(file, &message, 0);
}

static ssize_t receive_vectors(int file, const struct iovec* vectors, int many) {
  struct msghdr message = {.msg_iov = (struct iovec*)vectors, .msg_iovlen = (size_t)many};
  return recvmsg(file, &message, 0);
}

/* A datagram goes as a whole, however many blocks it lies in, and what a pipe holds is all that a read waits for. */
static void small_ones(void) {
  int ends[2];
  CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0);
  fill(7);
  press();
  CHECK(writev(ends[0], pieces, count) == (ssize_t)count * kPiece);
  fill(8);
  press();
  CHECK(readv(ends[1], pieces, count) == (ssize_t)count * kPiece);
  check(7);
  CHECK(pipe(ends) == 0);
  CHECK(writev(ends[1], pieces, 10) == 10 * kPiece);
  CHECK(readv(ends[0], pieces, count) == 10 * kPiece);
  check(7);
}

int main(int argc, char** argv) {
  count = argc > 1 ? (atoi(argv[1]) << 20) / kBlock : 0;
  CHECK(count > 0 && count <= kMost);
  memory = malloc((size_t)count * kBlock);
  CHECK(memory != NULL);
  for (int index = 0; index < count; ++index) {
    pieces[index] = (struct iovec){memory + (size_t)index * kBlock + (size_t)index % 60 * 64, kPiece};
  }
  FILE* const temporary = tmpfile();
  CHECK(temporary != NULL);
  const int file = fileno(temporary);
  int ends[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  for (unsigned round = 0; round < 3; ++round) {
    fill(round);
    press();
    CHECK(lseek(file, 0, SEEK_SET) == 0 && all(writev, file) == (ssize_t)count * kPiece);
    fill(round + 100);
    press();
    CHECK(lseek(file, 0, SEEK_SET) == 0 && all(readv, file) == (ssize_t)count * kPiece);
    check(round);
    press();
    CHECK(all(send_vectors, ends[0]) == (ssize_t)count * kPiece); /* what a socket takes without a reader */
    fill(round + 50);
    press();
    CHECK(all(receive_vectors, ends[1]) == (ssize_t)count * kPiece);
    check(round);
  }
  small_ones();
  printf("ok\n");
  return 0;
}
