// Copying bytes: short pieces inline, long ones past the cache.
#pragma once

#include <cstdint>
#include <cstring>

namespace headroom::direct {

/// From here on a copy goes past the cache, with no line read to be overwritten: what was copied first would have left the
/// cache by the end of it. A quarter of the largest cache, since source and target go through the caches of both sides.
uint64_t past_cache_from();

/// Copies with non-temporal stores where the processor has them.
void copy_past_cache(char* to, const char* from, uint64_t bytes);

/// The routines behind it that this processor can run, the best first. They want a target that is a multiple of 64.
using CopyRoutine = void (*)(char* to, const char* from, uint64_t bytes);
struct CopyRoutines {
  struct {
    const char* name;
    CopyRoutine copy;
  } all[3] = {};
  int count = 0;
  void add(const char* name, CopyRoutine copy) { all[count++] = {name, copy}; }
};
CopyRoutines usable_copy_routines();

/// Copies at most a few lines without a call.
inline void copy_short(char* to, const char* from, uint64_t bytes) {
  if (bytes >= 64) {
    memcpy(to, from, bytes);
  } else if (bytes >= 16) {
    // Overlapping from both ends.
    char first[32];
    char last[32];
    const uint64_t half = bytes >= 32 ? 32 : 16;
    if (half == 32) {
      memcpy(first, from, 32);
      memcpy(last, from + bytes - 32, 32);
      memcpy(to, first, 32);
      memcpy(to + bytes - 32, last, 32);
    } else {
      memcpy(first, from, 16);
      memcpy(last, from + bytes - 16, 16);
      memcpy(to, first, 16);
      memcpy(to + bytes - 16, last, 16);
    }
  } else if (bytes >= 8) {
    uint64_t first = 0;
    uint64_t last = 0;
    memcpy(&first, from, 8);
    memcpy(&last, from + bytes - 8, 8);
    memcpy(to, &first, 8);
    memcpy(to + bytes - 8, &last, 8);
  } else if (bytes >= 4) {  // a word is stored whole: others look at it meanwhile, in windows
    uint32_t first = 0;
    uint32_t last = 0;
    memcpy(&first, from, 4);
    memcpy(&last, from + bytes - 4, 4);
    memcpy(to, &first, 4);
    memcpy(to + bytes - 4, &last, 4);
  } else if (bytes >= 2) {
    uint16_t first = 0;
    uint16_t last = 0;
    memcpy(&first, from, 2);
    memcpy(&last, from + bytes - 2, 2);
    memcpy(to, &first, 2);
    memcpy(to + bytes - 2, &last, 2);
  } else if (bytes == 1) {
    *to = *from;
  }
}

/// The lengths that datatypes are made of without a call.
inline void copy_bytes(char* to, const char* from, uint64_t bytes) {
  switch (bytes) {
    case 4:
      memcpy(to, from, 4);
      return;
    case 8:
      memcpy(to, from, 8);
      return;
    case 16:
      memcpy(to, from, 16);
      return;
    case 32:
      memcpy(to, from, 32);
      return;
    case 64:
      memcpy(to, from, 64);
      return;
    default:
      memcpy(to, from, bytes);
  }
}

}  // namespace headroom::direct
