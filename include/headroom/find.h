/* How a program that links with nothing finds Headroom's functions; included by the headers that declare them.
 *
 * Each name is a macro for a pointer, which is looked up once at each place that mentions it and is null without Headroom: so
 * `if (headroom_hold) headroom_hold(...)` does what it says. Weak functions would be simpler, but in a program that is not
 * position independent (-no-pie -fno-pic) the linker settles those that nobody defines as null for good. An absence is
 * remembered, too: a preloaded library is there before the program begins. Before glibc 2.34 link with -ldl. */
#ifndef HEADROOM_FIND_H
#define HEADROOM_FIND_H

#include <dlfcn.h>

/* `found`: null until looked up; its own address stands for an absent function. Threads that look at a time find the same. */
static inline void* headroom_find(const char* name, void** found) {
  void* function = __atomic_load_n(found, __ATOMIC_RELAXED);
  if (!function) {
    function = dlsym(0, name); /* 0: RTLD_DEFAULT, whose name needs _GNU_SOURCE */
    if (!function) {
      function = (void*)found;
    }
    __atomic_store_n(found, function, __ATOMIC_RELAXED);
  }
  return function == (void*)found ? 0 : function;
}

#define HEADROOM_FIND(name)                                   \
  (__extension__({                                            \
    static void* headroom_found;                              \
    (__typeof__(&name))headroom_find(#name, &headroom_found); \
  }))

#endif
