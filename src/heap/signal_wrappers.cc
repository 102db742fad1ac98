// Signals as the fault engines need them, seen by the program as if nothing were changed.
//
// The sigsegv engine needs its handler in place and SIGSEGV deliverable in every thread. And whatever engine does not serve
// the kernel needs the stacks on which the kernel puts signal frames to be resident: alternate stacks and stacks of threads
// and coroutines that the program allocated in the arena are held for good.
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <ucontext.h>

#include "heap/heap.h"
#include "pager/pager.h"
#include "pager/signals.h"

#define HEADROOM_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using namespace headroom;

template <typename Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

using SigactionFunction = int (*)(int, const struct sigaction*, struct sigaction*);
using MaskFunction = int (*)(int, const sigset_t*, sigset_t*);

bool guards_fault_signal() { return pager::fault_handler_installed(); }

/// The mask without SIGSEGV, where our handler must stay deliverable.
const sigset_t* without_fault_signal(const sigset_t* set, int how, sigset_t& place) {
  if (set == nullptr || how == SIG_UNBLOCK || !guards_fault_signal()) {
    return set;
  }
  place = *set;
  sigdelset(&place, SIGSEGV);
  return &place;
}

void keep_stack_resident(const void* stack, size_t bytes) {
  if (stack != nullptr && pager::covers(stack) && !pager::engine_serves_kernel() && !pager::is_forked_child()) {
    pager::pin(stack, bytes);
  }
}

}  // namespace

HEADROOM_EXPORT int sigaction(int number, const struct sigaction* action, struct sigaction* old) noexcept {
  static const auto real = next<SigactionFunction>("sigaction");
  if (number == SIGSEGV && guards_fault_signal()) {
    pager::exchange_program_action(action, old);
    return 0;
  }
  if (action == nullptr || !guards_fault_signal()) {
    return real(number, action, old);
  }
  struct sigaction copy = *action;  // a handler that runs with SIGSEGV blocked could not touch absent memory
  sigdelset(&copy.sa_mask, SIGSEGV);
  return real(number, &copy, old);
}

HEADROOM_EXPORT sighandler_t signal(int number, sighandler_t handler) noexcept {
  static const auto real = next<sighandler_t (*)(int, sighandler_t)>("signal");
  if (number != SIGSEGV || !guards_fault_signal()) {
    return real(number, handler);
  }
  struct sigaction action = {};
  struct sigaction old = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  pager::exchange_program_action(&action, &old);
  return old.sa_handler;  // one storage holds both kinds of handler
}

HEADROOM_EXPORT int sigprocmask(int how, const sigset_t* set, sigset_t* old) noexcept {
  static const auto real = next<MaskFunction>("sigprocmask");
  sigset_t place;
  return real(how, without_fault_signal(set, how, place), old);
}

HEADROOM_EXPORT int pthread_sigmask(int how, const sigset_t* set, sigset_t* old) noexcept {
  static const auto real = next<MaskFunction>("pthread_sigmask");
  sigset_t place;
  return real(how, without_fault_signal(set, how, place), old);
}

HEADROOM_EXPORT int sigaltstack(const stack_t* stack, stack_t* old) noexcept {
  static const auto real = next<int (*)(const stack_t*, stack_t*)>("sigaltstack");
  if (stack != nullptr && (stack->ss_flags & SS_DISABLE) == 0) {
    keep_stack_resident(stack->ss_sp, stack->ss_size);
  }
  return real(stack, old);
}

HEADROOM_EXPORT int pthread_attr_setstack(pthread_attr_t* attributes, void* stack, size_t bytes) noexcept {
  static const auto real = next<int (*)(pthread_attr_t*, void*, size_t)>("pthread_attr_setstack");
  keep_stack_resident(stack, bytes);
  return real(attributes, stack, bytes);
}

HEADROOM_EXPORT int swapcontext(ucontext_t* from, const ucontext_t* to) noexcept {
  static const auto real = next<int (*)(ucontext_t*, const ucontext_t*)>("swapcontext");
  keep_stack_resident(to->uc_stack.ss_sp, to->uc_stack.ss_size);
  return real(from, to);
}
