// How often tests repeat what they do: less under a sanitizer, where each step takes several times as long.
#pragma once

namespace headroom::test {

constexpr int repeated(int times) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return times / 4;
#else
  return times;
#endif
}

}  // namespace headroom::test
