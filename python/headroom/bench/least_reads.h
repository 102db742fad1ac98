/* The least that ranks must read again, as Belady's MIN finds it; part of applications.c.
 *
 * The program says which arrays it walks, in step, one pass after the other (walk), and when it meets the other ranks (meet).
 * Afterwards least_reads() goes over these passes in granules of 64 KiB, with a memory from which that granule leaves that is
 * used last of all again: no replacement reads less. All ranks are taken to do the same, and the better of two ways counts:
 * each has an equal part of memory, or each in turn has all of it until they meet, in an order that turns round. What is
 * touched for the first time need not be read; what was freed is not used again, so it leaves first.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { kGranule = 64 << 10, kWalkedAtOnce = 12, kMostPasses = 1024, kMostArrays = 256 };

struct Walked {
  const void* array;
  uint64_t bytes;
};
static struct KnownArray {
  const void* array;
  uint32_t first_granule;
} known_arrays[kMostArrays];
static struct Pass {
  int meetings; /* before it */
  int arrays;
  struct {
    uint32_t first, count;
  } granules[kWalkedAtOnce];
} passes[kMostPasses];
static int array_count, pass_count, meetings;
static uint32_t granule_count;

static void* checked_memory(void* memory) {
  if (memory == NULL) {
    fprintf(stderr, "applications: no memory\n");
    exit(2);
  }
  return memory;
}

/* From now on this memory is an array of its own, even if there was another at its place before. */
static void know_array(const void* array, uint64_t bytes) {
  int at = 0;
  while (at < array_count && known_arrays[at].array != array) {
    ++at;
  }
  if (at == kMostArrays) {
    fprintf(stderr, "applications: more than %d arrays\n", kMostArrays);
    exit(2);
  }
  array_count = at == array_count ? at + 1 : array_count;
  known_arrays[at] = (struct KnownArray){array, granule_count};
  granule_count += (uint32_t)((bytes + kGranule - 1) / kGranule);
}

/* The program has walked these from their beginnings, in step; returns the bytes of all. */
static uint64_t walk(int count, const struct Walked* walked) {
  if (pass_count == kMostPasses || count > kWalkedAtOnce) {
    fprintf(stderr, "applications: more than %d passes, or %d arrays in one\n", kMostPasses, kWalkedAtOnce);
    exit(2);
  }
  struct Pass* pass = &passes[pass_count++];
  uint64_t bytes = 0;
  pass->meetings = meetings;
  pass->arrays = count;
  for (int each = 0; each < count; ++each) {
    int at = 0;
    while (known_arrays[at].array != walked[each].array) {
      if (++at == array_count) {
        fprintf(stderr, "applications: an array that is walked is not known\n");
        exit(2);
      }
    }
    pass->granules[each].first = known_arrays[at].first_granule;
    pass->granules[each].count = (uint32_t)((walked[each].bytes + kGranule - 1) / kGranule);
    bytes += walked[each].bytes;
  }
  return bytes;
}

/* All ranks have met. */
static void meet(void) { ++meetings; }

/* The granules of a pass in the order in which they are used, of `rank`; returns how many, and writes them if `to` is not NULL.
 */
static uint64_t list_pass(const struct Pass* pass, uint32_t rank, uint32_t* to) {
  uint64_t steps = 0, count = 0;
  for (int each = 0; each < pass->arrays; ++each) {
    steps = pass->granules[each].count > steps ? pass->granules[each].count : steps;
  }
  for (uint64_t step = 0; step < steps; ++step) {
    for (int each = 0; each < pass->arrays; ++each) {
      const uint64_t granules = pass->granules[each].count;
      for (uint64_t granule = step * granules / steps; granule < (step + 1) * granules / steps; ++granule, ++count) {
        if (to != NULL) {
          to[count] = rank * granule_count + pass->granules[each].first + (uint32_t)granule;
        }
      }
    }
  }
  return count;
}

/* The same of all passes of so many ranks in turn, which go in the other order after each meeting; `*before` of them are before
   the meeting `from`. */
static uint64_t list_uses(uint32_t ranks_in_turn, int from, uint64_t* before, uint32_t* to) {
  uint64_t count = 0;
  for (int first = 0, end = 0; first < pass_count; first = end) {
    const int met = passes[first].meetings;
    while (end < pass_count && passes[end].meetings == met) {
      ++end;
    }
    for (uint32_t turn = 0; turn < ranks_in_turn; ++turn) {
      for (int pass = first; pass < end; ++pass) {
        count += list_pass(&passes[pass], met % 2 == 0 ? turn : ranks_in_turn - 1 - turn, to == NULL ? NULL : to + count);
      }
    }
    *before = met < from ? count : *before;
  }
  return count;
}

/* Granules that are read after the meeting `from`, by so many ranks in turn in so much memory. */
static uint64_t reads_of(uint32_t ranks_in_turn, int from, uint64_t most_resident) {
  uint64_t before = 0, reads = 0, resident = 0;
  const uint64_t count = list_uses(ranks_in_turn, from, &before, NULL), granules = (uint64_t)granule_count * ranks_in_turn;
  uint32_t* uses = checked_memory(malloc((count + 1) * sizeof *uses));
  uint64_t* next_use = checked_memory(malloc((count + 1) * sizeof *next_use));
  uint64_t* used_next = checked_memory(calloc(granules + 1, sizeof *used_next)); /* of a granule, from here on */
  uint32_t* in_memory = checked_memory(malloc((most_resident + 1) * sizeof *in_memory));
  uint8_t* state = checked_memory(calloc(granules + 1, 1)); /* 0 never used, 1 elsewhere, 2 in memory */
  list_uses(ranks_in_turn, from, &before, uses);
  for (uint64_t use = count; use-- > 0;) {
    next_use[use] = used_next[uses[use]] != 0 ? used_next[uses[use]] : UINT64_MAX;
    used_next[uses[use]] = use + 1; /* one more, so that 0 is none */
  }
  for (uint64_t use = 0; use < count; ++use) {
    const uint32_t granule = uses[use];
    used_next[granule] = next_use[use];
    if (state[granule] == 2) {
      continue;
    }
    reads += state[granule] == 1 && use >= before;
    uint64_t place = resident;
    if (resident == most_resident) {
      place = 0;
      for (uint64_t each = 1; each < resident; ++each) {
        place = used_next[in_memory[each]] > used_next[in_memory[place]] ? each : place;
      }
      state[in_memory[place]] = 1;
    } else {
      ++resident;
    }
    in_memory[place] = granule;
    state[granule] = 2;
  }
  free(uses);
  free(next_use);
  free(used_next);
  free(in_memory);
  free(state);
  return reads;
}

/* Bytes that all ranks together must read after the meeting `from`, with `memory` bytes in all. */
static double least_reads(int from, uint32_t all_ranks, double memory) {
  const uint64_t granules = (uint64_t)(memory / kGranule), part = granules / all_ranks;
  const uint64_t apart = all_ranks * reads_of(1, from, part > 0 ? part : 1);
  const uint64_t in_turn = reads_of(all_ranks, from, granules > 0 ? granules : 1);
  return (double)(apart < in_turn ? apart : in_turn) * kGranule;
}
