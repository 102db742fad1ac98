/* Part of messages.c: each way to send with each way to receive, of content with gaps on one side or both. The types are freed
   as soon as a call has them. */
#pragma once

#include "messages_calls.h"

enum { kElement = 12, kSentExtent = 20, kTakenExtent = 28 }; /* bytes */

/* 12 bytes, and a gap of 8. */
static MPI_Datatype sent_type(void) {
  MPI_Datatype whole, type;
  MPI_Type_contiguous(kElement, MPI_BYTE, &whole);
  MPI_Type_create_resized(whole, 0, kSentExtent, &type);
  MPI_Type_commit(&type);
  MPI_Type_free(&whole);
  return type;
}

/* Three times 4 bytes, each with a gap of 4 behind it, and 4 more. */
static MPI_Datatype taken_type(void) {
  MPI_Datatype apart, type;
  MPI_Type_vector(3, 4, 8, MPI_BYTE, &apart);
  MPI_Type_create_resized(apart, 0, kTakenExtent, &type);
  MPI_Type_commit(&type);
  MPI_Type_free(&apart);
  return type;
}

static size_t place_when_sent(size_t at, int gaps) { return gaps ? at / kElement * kSentExtent + at % kElement : at; }

static size_t place_when_taken(size_t at, int gaps) {
  return gaps ? at / kElement * kTakenExtent + at % kElement / 4 * 8 + at % 4 : at;
}

static unsigned char content_of(size_t at, unsigned seed) { return (unsigned char)(at * 31 + seed + (at >> 12)); }

static void typed(unsigned stride) {
  const int sizes[] = {0, 1, 3, 10, 11, 42, 43, 341, 680, 681, 1366, 5462, 21846, 87382};
  const size_t most = 87382 + 83;
  unsigned char *out = malloc(most * kSentExtent), *in = malloc(most * kTakenExtent);
  unsigned char* attached = malloc(16 << 20);
  MPI_Buffer_attach(attached, 16 << 20);
  unsigned seed = 0;
  for (unsigned s = 0; s < sizeof sizes / sizeof *sizes; ++s) {
    for (int sends = 0; sends < SENDS; ++sends) {
      for (int receives = 0; receives < RECEIVES; ++receives) {
        if (++seed % stride != 0) {
          continue;
        }
        const int count = sizes[s], tag = (int)(seed % 30000);
        const int gaps_sent = seed % 3 != 0, gaps_taken = seed % 3 != 1;
        const int room = count + (seed % 2 == 0 ? 0 : 83);
        const size_t content = (size_t)count * kElement;
        for (size_t at = 0; at < content; ++at) {
          out[place_when_sent(at, gaps_sent)] = content_of(at, seed + (unsigned)rank);
        }
        memset(in, 0x5a, (size_t)room * kTakenExtent);
        if (received % 16 == 0) {
          press();
        }
        const MPI_Datatype sent = gaps_sent ? sent_type() : MPI_BYTE, taken = gaps_taken ? taken_type() : MPI_BYTE;
        const int sent_count = gaps_sent ? count : count * kElement, taken_count = gaps_taken ? room : room * kElement;
        transfer(sends, receives, out, sent_count, sent, in, taken_count, taken, (int)content, tag);
        size_t next = 0;
        for (size_t at = 0; at < content; ++at) {
          const size_t place = place_when_taken(at, gaps_taken);
          for (; next < place; ++next) {
            CHECK(in[next] == 0x5a); /* gaps are left alone */
          }
          CHECK(in[place] == content_of(at, seed + (unsigned)from));
          next = place + 1;
        }
        for (; next < (size_t)room * kTakenExtent; ++next) {
          CHECK(in[next] == 0x5a);
        }
      }
    }
  }
  int size;
  void* detached;
  MPI_Buffer_detach(&detached, &size);
}
