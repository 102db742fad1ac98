// An order between two threads of this process that the peer makes: one thread frees a buffer, the peer sees that and writes
// with the same number again, another thread reads that. ThreadSanitizer sees one process and is told.
#pragma once

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace headroom::rpipe {

inline void before_peer([[maybe_unused]] void* what) {
#if defined(__SANITIZE_THREAD__)
  __tsan_release(what);
#endif
}

inline void after_peer([[maybe_unused]] void* what) {
#if defined(__SANITIZE_THREAD__)
  __tsan_acquire(what);
#endif
}

}  // namespace headroom::rpipe
