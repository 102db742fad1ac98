/* Hints that a program may give Headroom of its memory. Entirely optional: they change what is moved between memory and
 * storage, and when; content changes only where headroom_will_overwrite() says so.
 *
 * A program that uses these functions links with nothing: they are found at run time in the preloaded library (find.h), and
 * each name is a null pointer without Headroom:
 *
 *     #include <headroom/memory.h>
 *     if (headroom_will_need) headroom_will_need(next, bytes);
 *
 * Addresses need no alignment and may lie outside memory that can be moved; such parts are passed over. All functions are
 * thread-safe, return 0 or -errno, and do not touch errno. -ENOENT: the process has no evictable memory (yet). */
#ifndef HEADROOM_MEMORY_H
#define HEADROOM_MEMORY_H

#include <stddef.h>

#include "find.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The range will be used soon: it is read from storage as far as there is room. Returns at once. */
int headroom_will_need(const void* address, size_t bytes);

/* The range will not be used for long: while memory is short it leaves before anything else. Returns at once. */
int headroom_will_not_need(const void* address, size_t bytes);

/* Every byte of the range will be written before it is read: its content is neither written to storage nor read again.
 * Until it has been written its content is undefined. No other thread may use the range during the call. */
int headroom_will_overwrite(void* address, size_t bytes);

/* The range stays in memory until headroom_release(), for instance for a device that the program hands it to. Counted by block
 * of 256 KiB, once: a second hold of a range adds nothing. -ENOMEM if half of what this process may have would then be held. */
int headroom_hold(const void* address, size_t bytes);
int headroom_release(const void* address, size_t bytes);

#ifdef __cplusplus
}
#endif

#ifndef HEADROOM_DEFINES_THEM /* the preloaded library itself */
#define headroom_will_need HEADROOM_FIND(headroom_will_need)
#define headroom_will_not_need HEADROOM_FIND(headroom_will_not_need)
#define headroom_will_overwrite HEADROOM_FIND(headroom_will_overwrite)
#define headroom_hold HEADROOM_FIND(headroom_hold)
#define headroom_release HEADROOM_FIND(headroom_release)
#endif

#endif
