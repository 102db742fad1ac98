/* Part of posix_promises.c: what is asked of the system, past the C library and through it. */
#pragma once

#include "posix_promises_job.h"

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
  must(setsockopt(stream, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof one) == 0, "sending without a copy");
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

enum { kRecord = 2 * kMib, kRecords = 24, kReaders = 12 };
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
  for (int pass = 0; pass < 60; ++pass) { /* how much may be held differs from call to call */
    must(lseek(records, 0, SEEK_SET) == 0, "lseek");
    pthread_t threads[kReaders];
    for (int i = 0; i < kReaders; ++i) {
      must(pthread_create(&threads[i], NULL, read_records, i % 2 == 0 ? NULL : &records) == 0, "pthread_create");
    }
    for (int i = 0; i < kReaders; ++i) {
      pthread_join(threads[i], NULL);
    }
    must(lseek(records, 0, SEEK_CUR) == (off_t)kRecords * kRecord, "the position at the end");
  }
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
