// Every routine that copies past the cache on this processor moves the bytes that it was asked to, and no others.
#include "direct/copy.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace headroom::direct {
namespace {

constexpr char kUntouched = 0x55;
constexpr uint64_t kMargin = 256;

void copies_exactly(const char* name, CopyRoutine copy, uint64_t bytes, uint64_t from_offset) {
  std::vector<char> source(bytes + kMargin);
  for (uint64_t at = 0; at < source.size(); ++at) {
    source[at] = static_cast<char>(at * 2654435761U >> 11);
  }
  std::vector<char> target(bytes + 3 * kMargin, kUntouched);
  char* to = target.data() + kMargin;
  to += (64 - reinterpret_cast<uintptr_t>(to) % 64) % 64;
  copy(to, source.data() + from_offset, bytes);
  ASSERT_EQ(memcmp(to, source.data() + from_offset, bytes), 0) << name << ", " << bytes << " bytes from " << from_offset;
  for (const char* at = target.data(); at < target.data() + target.size(); at = at + 1 == to ? to + bytes : at + 1) {
    ASSERT_EQ(*at, kUntouched) << name << ", " << bytes << " bytes, at " << at - to;
  }
}

TEST(Copy, EachRoutineMovesWhatItWasAskedTo) {
  const CopyRoutines usable = usable_copy_routines();
  ASSERT_GE(usable.count, 1);
#if defined(__aarch64__)
  ASSERT_STREQ(usable.all[0].name, "neon");
#endif
  ASSERT_STREQ(usable.all[usable.count - 1].name, "plain");
  for (int index = 0; index < usable.count; ++index) {
    for (const uint64_t bytes : {0, 1, 63, 64, 127, 128, 129, 255, 256, 257, 511, 512, 1000, 4096, 65'537}) {
      for (const uint64_t from_offset : {0, 1, 8, 31, 64, 100}) {
        copies_exactly(usable.all[index].name, usable.all[index].copy, bytes, from_offset);
      }
    }
  }
}

TEST(Copy, TheTargetNeedNotBeAligned) {
  std::vector<char> source(10'000);
  for (uint64_t at = 0; at < source.size(); ++at) {
    source[at] = static_cast<char>(at * 40503U >> 5);
  }
  for (uint64_t to_offset = 0; to_offset < 70; ++to_offset) {
    std::vector<char> target(source.size() + 200, kUntouched);
    copy_past_cache(target.data() + to_offset, source.data(), source.size());
    ASSERT_EQ(memcmp(target.data() + to_offset, source.data(), source.size()), 0);
    ASSERT_EQ(target[to_offset + source.size()], kUntouched);
    ASSERT_TRUE(to_offset == 0 || target[to_offset - 1] == kUntouched);
  }
}

}  // namespace
}  // namespace headroom::direct
