// Copying bytes: short pieces inline, long ones past the cache.
#pragma once

#include <cstdint>
#include <cstring>

namespace headroom::direct {

/// From here on a copy goes past the cache, with no line read to be overwritten: the bytes copied first would have left the
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

/// Copies as many bytes as one Word has, or up to two: overlapping, from both ends.
template <typename Word>
void copy_ends(char* to, const char* from, uint64_t bytes) {
  Word first;
  Word last;
  memcpy(&first, from, sizeof(Word));
  memcpy(&last, from + bytes - sizeof(Word), sizeof(Word));
  memcpy(to, &first, sizeof(Word));
  memcpy(to + bytes - sizeof(Word), &last, sizeof(Word));
}

/// Copies at most a few lines without a call. A word of 2, 4 or 8 bytes is stored whole: in windows others look at it
/// meanwhile.
inline void copy_short(char* to, const char* from, uint64_t bytes) {
  struct Half {
    char bytes[32];
  };
  struct Quarter {
    char bytes[16];
  };
  if (bytes >= 64) {
    memcpy(to, from, bytes);
  } else if (bytes >= sizeof(Half)) {
    copy_ends<Half>(to, from, bytes);
  } else if (bytes >= sizeof(Quarter)) {
    copy_ends<Quarter>(to, from, bytes);
  } else if (bytes >= 8) {
    copy_ends<uint64_t>(to, from, bytes);
  } else if (bytes >= 4) {
    copy_ends<uint32_t>(to, from, bytes);
  } else if (bytes >= 2) {
    copy_ends<uint16_t>(to, from, bytes);
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
