// See own_threads.h.
#include "base/own_threads.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <iterator>

#include "base/system_calls.h"

namespace headroom::base {
namespace {

constexpr int kMostThreads = 16;  // there is no need for more
std::atomic<int32_t> numbers[kMostThreads];
std::atomic<int> started_threads{0};

thread_local bool own_thread __attribute__((tls_model("initial-exec"))) = false;

struct Start {
  const char* name;
  void* (*body)(void*);
  void* argument;
};

}  // namespace

bool on_own_thread() { return own_thread; }

bool is_own_thread(int32_t number) {
  return std::any_of(std::begin(numbers), std::end(numbers),
                     [number](const auto& known) { return known.load(std::memory_order_relaxed) == number; });
}

static void* run(void* argument) {
  own_thread = true;
  const int place = started_threads.fetch_add(1, std::memory_order_relaxed);
  if (place < kMostThreads) {
    numbers[place].store(static_cast<int32_t>(system_call(SYS_gettid)), std::memory_order_relaxed);
  }
  const Start start = *static_cast<Start*>(argument);
  delete static_cast<Start*>(argument);
  (void)system_call(SYS_prctl, PR_SET_NAME, start.name);
  return start.body(start.argument);
}

bool start_thread(const char* name, void* (*body)(void*), void* argument) {
  auto* start = new Start{name, body, argument};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 256 << 10);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread = {};
  const bool started = pthread_create(&thread, &attributes, run, start) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  if (!started) {
    delete start;
  }
  return started;
}

}  // namespace headroom::base
