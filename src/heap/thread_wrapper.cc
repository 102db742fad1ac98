// Threads with small stacks.
//
// A thread's stack also holds the data that libraries have for each thread, and 11 KiB of that are Headroom's (jemalloc's, for
// the most part). The C library refuses a thread whose stack has no room for it, so with PTHREAD_STACK_MIN, which is 16 KiB,
// none could be started. And the wrappers of calls and, with the engine sigsegv, the handler of faults run on the program's
// stacks. So a program that asks for a small stack gets as much more as Headroom may need of it. (A signal stack of our own for
// each thread would have helped with the handler alone.) A stack that the program itself provides (pthread_attr_setstack) is as
// large as it is.
#include <pthread.h>

#include <cstdint>

#include "heap/real_function.h"

#define HEADROOM_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

HEADROOM_REAL(pthread_create);

constexpr size_t kOurPart = 32 << 10;
constexpr size_t kSmall = 256 << 10;  // a program that asks for so much has room to spare

/// If the program gives no stack, the lower end lies the stack's size below address 0.
bool has_stack(const pthread_attr_t& attributes) {
  void* lower_end = nullptr;
  size_t bytes = 0;
  return pthread_attr_getstack(&attributes, &lower_end, &bytes) == 0 && reinterpret_cast<uintptr_t>(lower_end) + bytes != 0;
}

}  // namespace

HEADROOM_EXPORT int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                                   void* argument) noexcept {
  size_t bytes = 0;
  if (attributes == nullptr || pthread_attr_getstacksize(attributes, &bytes) != 0 || bytes >= kSmall ||
      has_stack(*attributes)) {
    return real_pthread_create.get()(thread, attributes, body, argument);
  }
  pthread_attr_t larger = *attributes;  // memory that it points to stays the program's: nothing here is to be destroyed
  (void)pthread_attr_setstacksize(&larger, bytes + kOurPart);
  return real_pthread_create.get()(thread, &larger, body, argument);
}
