// Seeds of random tests: each has its own, the same in each run, so that a failure comes again. HEADROOM_TEST_SEED=N makes
// others of them all, and is printed.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace headroom::test {

/// The seed of a part of a test that is `own` by itself.
inline uint32_t seed_of(int own) {
  constexpr uint32_t kFarApart = 1000003;
  const char* const asked = getenv("HEADROOM_TEST_SEED");
  const auto number = static_cast<uint32_t>(asked != nullptr ? atoi(asked) : 0);
  if (number != 0) {
    printf("HEADROOM_TEST_SEED=%u, for %d\n", number, own);
  }
  return static_cast<uint32_t>(own) + number * kFarApart;
}

}  // namespace headroom::test
