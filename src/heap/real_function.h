// The functions that our wrappers stand before.
//
// They are looked up as the process begins. To look up takes the dynamic loader's lock, which a library's constructor has while
// it waits, maybe, for a thread whose first call of a wrapped function that would be; and signal handlers may not do it. A
// function that is called earlier still (by other libraries' constructors), or is not there yet (in a library that is loaded
// later), is looked up where it is called.
#pragma once

#include <dlfcn.h>

#include <atomic>

namespace headroom::heap {

class RealFunction {
 public:
  explicit constexpr RealFunction(const char* name) : name_(name) {}
  void* find() {
    void* known = function_.load(std::memory_order_relaxed);
    if (__builtin_expect(known == nullptr, 0)) {
      known = dlsym(RTLD_NEXT, name_);
      function_.store(known, std::memory_order_relaxed);
    }
    return known;
  }
  /// Whether it was found before; looks nothing up.
  [[nodiscard]] bool was_found() const { return function_.load(std::memory_order_relaxed) != nullptr; }

 private:
  const char* name_;
  std::atomic<void*> function_{nullptr};
};

template <typename Function>
class Real : private RealFunction {
 public:
  using RealFunction::RealFunction;
  using RealFunction::was_found;
  Function get() { return reinterpret_cast<Function>(find()); }
};

// The C library declares these with attributes (nonnull, access) that a template argument cannot carry.
#pragma GCC diagnostic ignored "-Wignored-attributes"
// All of them lie in a section of their own, which is how they are found; used there, so that no compiler takes one apart.
#define HEADROOM_REAL(name) \
  __attribute__((used, section("headroom_real"))) static constinit ::headroom::heap::Real<decltype(&(name))> real_##name(#name)

// The section's ends; by the linker.
extern "C" RealFunction __start_headroom_real[] __attribute__((visibility("hidden")));
extern "C" RealFunction __stop_headroom_real[] __attribute__((visibility("hidden")));

inline void find_real_functions() {
  for (RealFunction* each = __start_headroom_real; each != __stop_headroom_real; ++each) {
    (void)each->find();
  }
  (void)dlerror();  // else a missing function would be the first error that the program hears of
}

}  // namespace headroom::heap
