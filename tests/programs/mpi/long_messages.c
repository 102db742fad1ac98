/* Long messages between ranks of different nodes, from and to anywhere in memory that may be larger than there is room for:
   each is checked byte by byte, with what lies on both sides of it. usage: long_messages MIB ROUNDS
   [aligned|same|anywhere|short|whole] [SEED] `same`: at the same place in their pages on both sides; `whole`: nearly all of the
   memory in each message. Rank r exchanges with rank (r + 1) % 2 of its pair. Prints "ok", how many messages, and how many
   bytes. The shell command in AT_BEGIN is run by rank 0 once a message has gone each way. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "end_in_time.h"

#define CHECK(condition)                                                                           \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      fprintf(stderr, "rank %d, round %d: %s (line %d)\n", rank, round_now, #condition, __LINE__); \
      MPI_Abort(MPI_COMM_WORLD, 1);                                                                \
    }                                                                                              \
  } while (0)

static int rank, round_now;
static uint64_t state;

static uint64_t next_random(void) { /* alike on both ranks of a pair */
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

static unsigned char byte_at(uint64_t seed, size_t at) { return (unsigned char)(seed + at * 131 + (at >> 8) * 7 + (at >> 12)); }

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const size_t bytes = (size_t)atol(argv[1]) << 20;
  const int rounds = atoi(argv[2]);
  const char* how = argc > 3 ? argv[3] : "anywhere";
  state = 88172645463325252ull + (uint64_t)(rank / 2) * 977 + (argc > 4 ? strtoull(argv[4], NULL, 10) * 7919 : 0);
  const int peer = rank ^ 1;
  unsigned char* from = malloc(bytes);
  unsigned char* into = malloc(bytes);
  for (size_t at = 0; at < bytes; at += 4096) {
    from[at] = 1;
    into[at] = 1;
  }
  const size_t most = bytes / 2 < (5 << 20) ? bytes / 2 : 5 << 20;
  long messages = 0;
  uint64_t sum = 0;
  if (peer < ranks) { /* ranks know each other */
    MPI_Sendrecv(from, 70000, MPI_BYTE, peer, 8, into, 70000, MPI_BYTE, peer, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0 && getenv("AT_BEGIN") != NULL) {
    CHECK(system(getenv("AT_BEGIN")) == 0);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  for (round_now = 0; round_now < rounds && peer < ranks; ++round_now) {
    size_t length[2], out[2], in[2];
    for (int each = 0; each < 2; ++each) { /* what the lower rank sends, and the upper */
      length[each] =
          (strcmp(how, "short") == 0 ? 0 : 70000) + next_random() % (strcmp(how, "short") == 0 ? 3000 : most - 70000);
      length[each] = strcmp(how, "whole") == 0 ? bytes - 12288 - length[each] % 4096 : length[each];
      out[each] = 4096 + next_random() % (bytes - length[each] - 8192);
      in[each] = 4096 + next_random() % (bytes - length[each] - 8192);
      if (strcmp(how, "aligned") == 0) {
        out[each] &= ~(size_t)4095;
        in[each] &= ~(size_t)4095;
      } else if (strcmp(how, "same") == 0) {
        in[each] = (in[each] & ~(size_t)4095) | (out[each] & 4095);
      }
    }
    const int mine = rank & 1, theirs = mine ^ 1;
    const uint64_t seed = (uint64_t)round_now * 3 + (uint64_t)rank;
    const uint64_t their_seed = (uint64_t)round_now * 3 + (uint64_t)peer;
    for (size_t at = 0; at < length[mine]; ++at) {
      from[out[mine] + at] = byte_at(seed, at);
    }
    unsigned char* const target = into + in[theirs];
    target[-1] = 0xA5;
    target[length[theirs]] = 0x5A;
    const int kind = (int)(next_random() % 4);
    MPI_Status status;
    MPI_Request request;
    if (kind == 0) {
      MPI_Irecv(target, (int)length[theirs], MPI_BYTE, peer, 7, MPI_COMM_WORLD, &request);
      MPI_Send(from + out[mine], (int)length[mine], MPI_BYTE, peer, 7, MPI_COMM_WORLD);
      MPI_Wait(&request, &status);
    } else if (kind == 1) {
      MPI_Isend(from + out[mine], (int)length[mine], MPI_BYTE, peer, 7, MPI_COMM_WORLD, &request);
      MPI_Recv(target, (int)length[theirs] + 1, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else if (kind == 2) {
      MPI_Sendrecv(from + out[mine], (int)length[mine], MPI_BYTE, peer, 7, target, (int)length[theirs], MPI_BYTE, peer, 7,
                   MPI_COMM_WORLD, &status);
    } else {
      MPI_Issend(from + out[mine], (int)length[mine], MPI_BYTE, peer, 7, MPI_COMM_WORLD, &request);
      MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
      int count;
      MPI_Get_count(&status, MPI_BYTE, &count);
      CHECK((size_t)count == length[theirs]);
      MPI_Recv(target, count, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD, &status);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    int count;
    MPI_Get_count(&status, MPI_BYTE, &count);
    CHECK((size_t)count == length[theirs] && status.MPI_SOURCE == peer && status.MPI_TAG == 7);
    for (size_t at = 0; at < length[theirs]; ++at) {
      if (target[at] != byte_at(their_seed, at)) {
        fprintf(stderr, "rank %d, round %d, kind %d: byte %zu of %zu at %zu\n", rank, round_now, kind, at, length[theirs],
                in[theirs]);
        MPI_Abort(MPI_COMM_WORLD, 1);
      }
    }
    CHECK(target[-1] == 0xA5 && target[length[theirs]] == 0x5A);
    memset(from + out[mine], 0xEE, length[mine]); /* what was sent may be written again */
    ++messages;
    sum += length[theirs];
  }
  long all = 0;
  MPI_Reduce(&messages, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  uint64_t all_bytes = 0;
  MPI_Reduce(&sum, &all_bytes, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    printf("ok %ld %llu\n", all, (unsigned long long)all_bytes);
  }
  end_in_time();
  MPI_Finalize();
  return 0;
}
