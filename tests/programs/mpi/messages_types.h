/* Part of messages.c: random datatypes, against MPI_Pack and MPI_Unpack, and one whose parts lie in several kinds of memory. */
#pragma once

#include <stdint.h>

#include "messages_job.h"
#include "random_datatypes.h"

static void types(uint64_t seed, int count) {
  const size_t area = 48 << 20, middle = 24 << 20;
  unsigned char *out = malloc(area), *in = malloc(area), *expected = malloc(area);
  for (int round = 0; round < count; ++round) {
    state = seed + (uint64_t)round * 977;
    int sent_atoms, kept_atoms, sent_bytes;
    const unsigned kind = pick(ATOMS);
    MPI_Datatype sent = bounded_type(&sent_atoms, kind, kPacksOverlaps), kept = bounded_type(&kept_atoms, kind, 0);
    MPI_Type_size(sent, &sent_bytes);
    /* As many atoms on both sides. */
    const int times = 1 + (int)pick(3), sent_count = kept_atoms * times, kept_count = sent_atoms * times;
    const int bytes_packed = sent_bytes * sent_count;
    MPI_Aint lower, extent, true_lower, true_extent;
    MPI_Type_get_extent(kept, &lower, &extent);
    MPI_Type_get_true_extent(kept, &true_lower, &true_extent);
    MPI_Aint sent_lower, sent_extent;
    MPI_Type_get_extent(sent, &sent_lower, &sent_extent);
    if (extent < true_extent || kept_count * (extent > 0 ? extent : -extent) > (20 << 20) ||
        sent_count * (sent_extent > 0 ? sent_extent : -sent_extent) > (20 << 20)) {
      MPI_Type_free(&sent);
      MPI_Type_free(&kept);
      continue;
    }
    const size_t reach = (size_t)(kept_count * extent) + (256 << 10),
                 sent_reach = (size_t)(sent_count * (sent_extent > 0 ? sent_extent : -sent_extent)) + (256 << 10);
    unsigned char* packed = malloc((size_t)bytes_packed);
    /* What the previous rank sends, and what that must become here. */
    for (size_t i = 0; i < 2 * sent_reach; ++i) {
      out[middle - sent_reach + i] = (unsigned char)(i * 7 + (size_t)from + (i >> 9));
    }
    int position = 0;
    MPI_Pack(out + middle, sent_count, sent, packed, bytes_packed, &position, MPI_COMM_WORLD);
    memset(in + middle - (256 << 10), 0x33, reach + (256 << 10));
    memset(expected + middle - (256 << 10), 0x33, reach + (256 << 10));
    position = 0;
    MPI_Unpack(packed, bytes_packed, &position, expected + middle, kept_count, kept, MPI_COMM_WORLD);
    for (size_t i = 0; i < 2 * sent_reach; ++i) {
      out[middle - sent_reach + i] = (unsigned char)(i * 7 + (size_t)rank + (i >> 9));
    }
    if (round % 5 == 0) {
      press(); /* both sides' content is on storage when memory is short */
    }
    MPI_Request request;
    MPI_Status status;
    MPI_Irecv(in + middle, kept_count, kept, from, 3, MPI_COMM_WORLD, &request);
    if (round % 2 == 0) {
      MPI_Send(out + middle, sent_count, sent, to, 3, MPI_COMM_WORLD);
    } else {
      MPI_Request sending;
      MPI_Issend(out + middle, sent_count, sent, to, 3, MPI_COMM_WORLD, &sending);
      MPI_Type_free(&sent); /* may be freed in flight */
      MPI_Wait(&sending, MPI_STATUS_IGNORE);
    }
    MPI_Wait(&request, &status);
    int got;
    MPI_Get_count(&status, kept, &got);
    CHECK(got == kept_count);
    CHECK(memcmp(in + middle - (256 << 10), expected + middle - (256 << 10), reach + (256 << 10)) == 0);
    ++received;
    free(packed);
    if (sent != MPI_DATATYPE_NULL) {
      MPI_Type_free(&sent);
    }
    MPI_Type_free(&kept);
  }
}

/* One datatype whose parts lie in the heap, in static data and on the stack. */
static int static_part[100];
static void scattered(void) {
  int stack_part[100], lengths[3] = {200000, 100, 100};
  int* heap_part = malloc(1 << 20);
  MPI_Aint places[3];
  MPI_Datatype types[3] = {MPI_INT, MPI_INT, MPI_INT}, all;
  for (int i = 0; i < 200000; ++i) {
    heap_part[i] = rank + i;
    if (i < 100) {
      static_part[i] = rank + 2 * i;
      stack_part[i] = rank + 3 * i;
    }
  }
  MPI_Get_address(heap_part, &places[0]);
  MPI_Get_address(static_part, &places[1]);
  MPI_Get_address(stack_part, &places[2]);
  MPI_Type_create_struct(3, lengths, places, types, &all);
  MPI_Type_commit(&all);
  for (int i = 0; i < 3; ++i) {
    MPI_Sendrecv_replace(MPI_BOTTOM, 1, all, to, 0, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    const int distance = (to - rank + ranks) % ranks, came_from = (rank + (ranks - distance) * (i + 1)) % ranks;
    CHECK(heap_part[0] == came_from && heap_part[199999] == came_from + 199999);
    CHECK(static_part[99] == came_from + 198 && stack_part[99] == came_from + 297);
    int* straight = malloc(200200 * sizeof(int));
    MPI_Request request;
    MPI_Irecv(straight, 200200, MPI_INT, from, 1, MPI_COMM_WORLD, &request);
    MPI_Send(MPI_BOTTOM, 1, all, to, 1, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    const int now = (came_from + ranks - distance) % ranks;
    CHECK(straight[0] == now && straight[200000] == now && straight[200199] == now + 297);
    received += 2;
    free(straight);
  }
  MPI_Type_free(&all);
  free(heap_part);
}

/* Many short runs, which take a core long enough that the sender, who waits, copies some of them: from the lower of each pair.
 */
static void helped(int count) {
  enum { RUN = 8, RUNS = (200 << 10) / RUN };
  static const int sizes[] = {(64 << 10) / RUN, (64 << 10) / RUN + 1, (100 << 10) / RUN + 3, RUNS};
  unsigned char *strided = malloc(2 * RUN * RUNS), *straight = malloc(RUN * RUNS);
  for (int round = 0; round < count; ++round) {
    const int runs = sizes[round % 4];
    const size_t whole = (size_t)runs * RUN;
    MPI_Datatype type;
    MPI_Type_vector(runs, RUN, 2 * RUN, MPI_BYTE, &type);
    MPI_Type_commit(&type);
    if (rank % 2 == 0) {
      fill(straight, whole, (unsigned)round);
      for (int run = 0; run < runs; ++run) {
        memcpy(strided + 2 * RUN * run, straight + RUN * run, RUN);
      }
      MPI_Ssend(strided, 1, type, rank + 1, 0, MPI_COMM_WORLD); /* not copied aside while the receiver looks at the last one */
    } else {
      memset(strided, 0x5a, 2 * RUN * RUNS);
      MPI_Recv(strided, 1, type, rank - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      for (int run = 0; run < RUNS; ++run) {
        CHECK(strided[2 * RUN * run + RUN] == 0x5a && (run < runs || strided[2 * RUN * run] == 0x5a));
        memcpy(straight + RUN * run, strided + 2 * RUN * run, RUN);
      }
      CHECK(same(straight, whole, (unsigned)round));
      ++received;
    }
    MPI_Type_free(&type);
    if (round % 16 == 0) {
      press();
    }
  }
  free(strided);
  free(straight);
}
