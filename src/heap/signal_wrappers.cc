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

const sigset_t* mask_for(int how, const sigset_t* set, sigset_t& place) {
  return how == SIG_UNBLOCK ? set : pager::without_fault_signal(set, place);
}

bool is_guarded(int number) { return number == SIGSEGV && guards_fault_signal(); }

/// signal() for the signal that is guarded.
sighandler_t exchange_handler(sighandler_t handler, unsigned flags) {
  struct sigaction action = {};
  struct sigaction old = {};
  action.sa_handler = handler;
  action.sa_flags = static_cast<int>(flags);
  pager::exchange_program_action(&action, &old);
  return old.sa_handler;  // one storage holds both kinds of handler
}

constexpr size_t kControlBlock = 64 << 10;

void keep_stack_resident(const void* stack, size_t bytes) {
  if (stack == nullptr || !pager::covers(stack) || pager::is_forked_child()) {
    return;
  }
  // The kernel writes to a thread's control block, at the upper end of its stack, when the thread has ended; nobody serves a
  // fault of such a thread, and who joins it would wait for ever.
  const size_t pinned = pager::engine_serves_kernel() && bytes > kControlBlock ? kControlBlock : bytes;
  pager::pin(static_cast<const char*>(stack) + (bytes - pinned), pinned);
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
  return is_guarded(number) ? exchange_handler(handler, SA_RESTART) : real(number, handler);
}

// What signal() is under older standards, and what other systems had in its place.
HEADROOM_EXPORT sighandler_t bsd_signal(int number, sighandler_t handler) noexcept { return signal(number, handler); }
HEADROOM_EXPORT sighandler_t ssignal(int number, sighandler_t handler) noexcept { return signal(number, handler); }
HEADROOM_EXPORT sighandler_t __sysv_signal(int number, sighandler_t handler) noexcept {
  static const auto real = next<sighandler_t (*)(int, sighandler_t)>("__sysv_signal");
  return is_guarded(number) ? exchange_handler(handler, SA_RESETHAND | SA_NODEFER) : real(number, handler);
}
HEADROOM_EXPORT sighandler_t sysv_signal(int number, sighandler_t handler) noexcept { return __sysv_signal(number, handler); }
HEADROOM_EXPORT sighandler_t sigset(int number, sighandler_t handler) noexcept {
  static const auto real = next<sighandler_t (*)(int, sighandler_t)>("sigset");
  if (!is_guarded(number)) {
    return real(number, handler);
  }
  if (handler == SIG_HOLD) {  // it is never blocked
    struct sigaction now = {};
    pager::exchange_program_action(nullptr, &now);
    return now.sa_handler;
  }
  return exchange_handler(handler, 0);
}
HEADROOM_EXPORT int sighold(int number) noexcept {
  static const auto real = next<int (*)(int)>("sighold");
  return is_guarded(number) ? 0 : real(number);
}
HEADROOM_EXPORT int sigignore(int number) noexcept {
  static const auto real = next<int (*)(int)>("sigignore");
  return is_guarded(number) ? (exchange_handler(SIG_IGN, 0), 0) : real(number);
}
HEADROOM_EXPORT int sigblock(int mask) noexcept {
  static const auto real = next<int (*)(int)>("sigblock");
  return real(guards_fault_signal() ? mask & ~(1 << (SIGSEGV - 1)) : mask);
}
HEADROOM_EXPORT int sigsetmask(int mask) noexcept {
  static const auto real = next<int (*)(int)>("sigsetmask");
  return real(guards_fault_signal() ? mask & ~(1 << (SIGSEGV - 1)) : mask);
}

HEADROOM_EXPORT int sigprocmask(int how, const sigset_t* set, sigset_t* old) noexcept {
  static const auto real = next<MaskFunction>("sigprocmask");
  sigset_t place;
  return real(how, mask_for(how, set, place), old);
}

HEADROOM_EXPORT int pthread_sigmask(int how, const sigset_t* set, sigset_t* old) noexcept {
  static const auto real = next<MaskFunction>("pthread_sigmask");
  sigset_t place;
  return real(how, mask_for(how, set, place), old);
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
