// See signals.h.
#include "pager/signals.h"

#include <string.h>

#include <atomic>

#include "base/system_calls.h"
#include "pager/pager.h"

namespace headroom::pager {
namespace {

struct sigaction program_action = {};
base::FutexLock program_action_lock;
std::atomic<bool> installed{false};

/// No handler of this thread's runs meanwhile, which might ask for the lock again. (Nothing faults meanwhile, either.)
class SignalsBlocked {
 public:
  SignalsBlocked() {
    const uint64_t all = ~uint64_t{0};
    (void)base::system_call(SYS_rt_sigprocmask, SIG_BLOCK, &all, &before_, sizeof all);
  }
  ~SignalsBlocked() { (void)base::system_call(SYS_rt_sigprocmask, SIG_SETMASK, &before_, nullptr, sizeof before_); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  uint64_t before_ = 0;
};

/// The action that the program wants now; one that was for one time only is not taken again.
struct sigaction take_program_action() {
  const SignalsBlocked blocked;
  const base::LockHolder lock(program_action_lock);
  const struct sigaction action = program_action;
  if ((action.sa_flags & static_cast<int>(SA_RESETHAND)) != 0 && action.sa_handler != SIG_IGN) {
    program_action = {};
  }
  return action;
}

void fall_back_to_default(int number) {
  signal(number, SIG_DFL);  // NOLINT: the interposed signal() passes SIG_DFL on when told to by us
}

void on_fault(int number, siginfo_t* info, void* context) {
  if (serve_signal_fault(*info, context)) {
    return;
  }
  const struct sigaction action = take_program_action();
  if ((action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction != nullptr) {
    action.sa_sigaction(number, info, context);
    return;
  }
  if (action.sa_handler == SIG_IGN && info->si_code <= 0) {
    return;
  }
  if (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN) {
    action.sa_handler(number);
    return;
  }
  installed.store(false, std::memory_order_release);
  fall_back_to_default(number);  // the access is repeated and ends the process as it would have
  if (info->si_code <= 0) {
    raise(number);  // sent by a process: there is no access to repeat
  }
}

}  // namespace

bool fault_handler_installed() { return installed.load(std::memory_order_acquire); }

void install_fault_handler() {
  base::LockHolder lock(program_action_lock);
  if (installed.load(std::memory_order_relaxed)) {
    return;
  }
  struct sigaction ours = {};
  ours.sa_sigaction = on_fault;
  // On the alternate stack where the program has one: a fault by stack overflow must still reach the program's handler.
  // NODEFER: a fault inside the program's own SIGSEGV handler must still be served.
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigemptyset(&ours.sa_mask);
  sigaction(SIGSEGV, &ours, &program_action);  // not yet installed: the interposed function passes through
  installed.store(true, std::memory_order_release);
  sigset_t fault;
  sigemptyset(&fault);
  sigaddset(&fault, SIGSEGV);
  pthread_sigmask(SIG_UNBLOCK, &fault, nullptr);
}

void exchange_program_action(const struct sigaction* action, struct sigaction* old) {
  // The program's structures may be on storage: they are touched while faults are served.
  struct sigaction wanted = {};
  struct sigaction before = {};
  if (action != nullptr) {
    wanted = *action;
  }
  {
    const SignalsBlocked blocked;
    const base::LockHolder lock(program_action_lock);
    before = program_action;
    if (action != nullptr) {
      program_action = wanted;
    }
  }
  if (old != nullptr) {
    *old = before;
  }
}

void forget_signals_of_parent() { program_action_lock.reset(); }

const sigset_t* without_fault_signal(const sigset_t* set, sigset_t& place) {
  if (set == nullptr || !fault_handler_installed()) {
    return set;
  }
  place = *set;
  sigdelset(&place, SIGSEGV);
  return &place;
}

}  // namespace headroom::pager
