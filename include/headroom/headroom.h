/* Headroom's public C interface: the facts that a program may ask for under `headroom run`. Entirely optional.
 *
 * A program that uses it links with nothing: the function is found at run time in the preloaded library (find.h),
 *
 *     #include <headroom/headroom.h>
 *     struct headroom_statistics now = {.size = sizeof now};
 *     if (headroom_read_statistics && headroom_read_statistics(&now) == 0) ...
 *
 * and its name is a null pointer without Headroom. It is thread-safe, returns 0 or -errno and does not touch errno. */
#ifndef HEADROOM_HEADROOM_H
#define HEADROOM_HEADROOM_H

#include <stdint.h>

#include "find.h"

#ifdef __cplusplus
extern "C" {
#endif

struct headroom_statistics {
  uint32_t size;            /* in: sizeof of the caller's structure; out: how much of it was filled */
  uint32_t short_of_memory; /* 1 once something had to leave memory */
  uint64_t budget_bytes;    /* that the ranks of this node may keep resident together */
  uint64_t node_bytes;      /* of these, taken */
  uint64_t resident_bytes;  /* of the taken ones, this process's */
  uint64_t allocated_bytes; /* large allocations of this process */
  uint64_t read_bytes;      /* read from storage by this process */
  uint64_t written_bytes;   /* written to storage by this process */
  uint64_t faults;          /* page faults served for this process */
};

/* Fills `statistics`. Returns -EINVAL if `size` is too small, -ENOENT if the process has no evictable memory (yet). */
int headroom_read_statistics(struct headroom_statistics* statistics);

#ifdef __cplusplus
}
#endif

#ifndef HEADROOM_DEFINES_THEM /* the preloaded library itself */
#define headroom_read_statistics HEADROOM_FIND(headroom_read_statistics)
#endif

#endif
