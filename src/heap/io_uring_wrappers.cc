// Rings of io_uring that the program makes itself are refused, as on a kernel without io_uring: the kernel pins memory that is
// handed to a ring while it works on it, or for good once it is registered, and nothing tells which memory that is, or until
// when; memory that is evicted meanwhile loses what the device writes, with success reported. Programs that use rings have
// another way for such kernels. Calls of a liburing linked statically, and system calls made without the C library, are not
// seen.
#include "heap/io_uring_wrappers.h"

#include "base/log.h"
#include "base/system_calls.h"
#include "heap/held_calls.h"

struct io_uring;
struct io_uring_params;
extern "C" {
int io_uring_queue_init(unsigned entries, io_uring* ring, unsigned flags);
int io_uring_queue_init_params(unsigned entries, io_uring* ring, io_uring_params* parameters);
int io_uring_queue_init_mem(unsigned entries, io_uring* ring, io_uring_params* parameters, void* memory, size_t bytes);
}

namespace {

using namespace headroom;

template <typename... Arguments>
int make_ring(const char* name, const void* caller, Arguments... arguments) {
  if (heap::refuses_ring(caller)) {
    return -ENOSYS;
  }
  auto* real = reinterpret_cast<int (*)(Arguments...)>(dlsym(RTLD_NEXT, name));
  return real != nullptr ? real(arguments...) : -ENOSYS;
}

}  // namespace

namespace headroom::heap {

/// The MPI library's own memory never leaves, so its rings may be.
bool refuses_ring(const void* caller) {
  if (large_bytes.load(std::memory_order_relaxed) == SIZE_MAX || !belongs_in_arena(caller, SIZE_MAX)) {
    return false;
  }
  static std::atomic<bool> said{false};
  if (!said.exchange(true, std::memory_order_relaxed)) {
    base::log_warning(
        "the program's io_uring is refused, as if the kernel had none: memory in a ring could not be moved safely. If it needs "
        "one, run it without Headroom");
  }
  return true;
}

}  // namespace headroom::heap

HEADROOM_EXPORT int io_uring_queue_init(unsigned entries, io_uring* ring, unsigned flags) {
  return make_ring("io_uring_queue_init", __builtin_return_address(0), entries, ring, flags);
}
HEADROOM_EXPORT int io_uring_queue_init_params(unsigned entries, io_uring* ring, io_uring_params* parameters) {
  return make_ring("io_uring_queue_init_params", __builtin_return_address(0), entries, ring, parameters);
}
HEADROOM_EXPORT int io_uring_queue_init_mem(unsigned entries, io_uring* ring, io_uring_params* parameters, void* memory,
                                            size_t bytes) {
  return make_ring("io_uring_queue_init_mem", __builtin_return_address(0), entries, ring, parameters, memory, bytes);
}
