// Signals as the fault engines need them, seen by the program as if nothing were changed.
//
// The sigsegv engine needs its handler in place and SIGSEGV deliverable in every thread. And an engine that does not serve the
// kernel needs the stacks on which the kernel puts signal frames to be resident: alternate stacks and stacks of threads and
// coroutines that the program allocated in the arena are held for good.
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <ucontext.h>

#include <algorithm>

#include "heap/heap.h"
#include "heap/real_function.h"
#include "pager/pager.h"

#define HEADROOM_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using namespace headroom;

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // some of these are
HEADROOM_REAL(sigaction);
HEADROOM_REAL(signal);
HEADROOM_REAL(__sysv_signal);
HEADROOM_REAL(sigset);
HEADROOM_REAL(sighold);
HEADROOM_REAL(sigignore);
HEADROOM_REAL(sigblock);
HEADROOM_REAL(sigsetmask);
HEADROOM_REAL(sigprocmask);
HEADROOM_REAL(pthread_sigmask);
HEADROOM_REAL(sigaltstack);
HEADROOM_REAL(pthread_attr_setstack);
HEADROOM_REAL(swapcontext);

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
  // fault of such a thread, and a thread that joins it would wait for ever.
  const size_t pinned = pager::engine_serves_kernel() ? std::min<size_t>(bytes, kControlBlock) : bytes;
  pager::pin(static_cast<const char*>(stack) + (bytes - pinned), pinned);
}

}  // namespace

HEADROOM_EXPORT int sigaction(int number, const struct sigaction* action, struct sigaction* old) noexcept {
  if (number == SIGSEGV && guards_fault_signal()) {
    pager::exchange_program_action(action, old);
    return 0;
  }
  if (action == nullptr || !guards_fault_signal()) {
    return real_sigaction.get()(number, action, old);
  }
  struct sigaction copy = *action;  // a handler that runs with SIGSEGV blocked could not touch absent memory
  sigdelset(&copy.sa_mask, SIGSEGV);
  return real_sigaction.get()(number, &copy, old);
}

HEADROOM_EXPORT sighandler_t signal(int number, sighandler_t handler) noexcept {
  return is_guarded(number) ? exchange_handler(handler, SA_RESTART) : real_signal.get()(number, handler);
}

// signal() under older standards, and the functions that other systems had in its place.
HEADROOM_EXPORT sighandler_t bsd_signal(int number, sighandler_t handler) noexcept { return signal(number, handler); }
HEADROOM_EXPORT sighandler_t ssignal(int number, sighandler_t handler) noexcept { return signal(number, handler); }
HEADROOM_EXPORT sighandler_t __sysv_signal(int number, sighandler_t handler) noexcept {
  return is_guarded(number) ? exchange_handler(handler, SA_RESETHAND | SA_NODEFER) : real___sysv_signal.get()(number, handler);
}
HEADROOM_EXPORT sighandler_t sysv_signal(int number, sighandler_t handler) noexcept { return __sysv_signal(number, handler); }
HEADROOM_EXPORT sighandler_t sigset(int number, sighandler_t handler) noexcept {
  if (!is_guarded(number)) {
    return real_sigset.get()(number, handler);
  }
  if (handler == SIG_HOLD) {  // it is never blocked
    struct sigaction now = {};
    pager::exchange_program_action(nullptr, &now);
    return now.sa_handler;
  }
  return exchange_handler(handler, 0);
}
HEADROOM_EXPORT int sighold(int number) noexcept { return is_guarded(number) ? 0 : real_sighold.get()(number); }
HEADROOM_EXPORT int sigignore(int number) noexcept {
  return is_guarded(number) ? (exchange_handler(SIG_IGN, 0), 0) : real_sigignore.get()(number);
}
HEADROOM_EXPORT int sigblock(int mask) noexcept {
  return real_sigblock.get()(guards_fault_signal() ? mask & ~(1 << (SIGSEGV - 1)) : mask);
}
HEADROOM_EXPORT int sigsetmask(int mask) noexcept {
  return real_sigsetmask.get()(guards_fault_signal() ? mask & ~(1 << (SIGSEGV - 1)) : mask);
}

HEADROOM_EXPORT int sigprocmask(int how, const sigset_t* set, sigset_t* old) noexcept {
  sigset_t place;
  return real_sigprocmask.get()(how, mask_for(how, set, place), old);
}

HEADROOM_EXPORT int pthread_sigmask(int how, const sigset_t* set, sigset_t* old) noexcept {
  sigset_t place;
  return real_pthread_sigmask.get()(how, mask_for(how, set, place), old);
}

HEADROOM_EXPORT int sigaltstack(const stack_t* stack, stack_t* old) noexcept {
  if (stack != nullptr && (stack->ss_flags & SS_DISABLE) == 0) {
    keep_stack_resident(stack->ss_sp, stack->ss_size);
  }
  return real_sigaltstack.get()(stack, old);
}

HEADROOM_EXPORT int pthread_attr_setstack(pthread_attr_t* attributes, void* stack, size_t bytes) noexcept {
  keep_stack_resident(stack, bytes);
  return real_pthread_attr_setstack.get()(attributes, stack, bytes);
}

HEADROOM_EXPORT int swapcontext(ucontext_t* from, const ucontext_t* to) noexcept {
  keep_stack_resident(to->uc_stack.ss_sp, to->uc_stack.ss_size);
  return real_swapcontext.get()(from, to);
}
