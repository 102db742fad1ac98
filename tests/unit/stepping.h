// A process that steps itself through its instructions and is killed at a chosen one.
//
// While the processor's trap flag is set each instruction of the thread raises SIGTRAP, whose handler counts, and kills the
// process at the chosen one. A first run without a death counts the instructions. Only x86-64 has the flag.
#pragma once

#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

namespace headroom::test {

constexpr long kNobody = -1;
constexpr greg_t kTrapFlag = 0x100;

struct Steps {
  std::atomic<long> taken;
  std::atomic<long> killed_at;
  std::atomic<long> last;  // from then on it is not stepped any more; 0: always
  std::atomic<bool> killed;
};
inline Steps* steps = nullptr;  // shared with the victim

inline void open_steps() {
  steps = static_cast<Steps*>(mmap(nullptr, sizeof(Steps), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
}
inline void close_steps() { munmap(steps, sizeof(Steps)); }

/// Bytes that one instruction copies (rep movsb) would each be a step: so many are.
inline void copy_many(ucontext_t& context) {
  constexpr greg_t kMany = 4096;
  greg_t* const registers = context.uc_mcontext.gregs;
  const auto* code = reinterpret_cast<const unsigned char*>(registers[REG_RIP]);
  if (code[0] != 0xf3 || code[1] != 0xa4) {
    return;
  }
  const greg_t bytes = std::min(registers[REG_RCX], kMany);
  memmove(reinterpret_cast<void*>(registers[REG_RDI]), reinterpret_cast<const void*>(registers[REG_RSI]),
          static_cast<size_t>(bytes));
  registers[REG_RDI] += bytes;
  registers[REG_RSI] += bytes;
  registers[REG_RCX] -= bytes;
  registers[REG_RIP] += registers[REG_RCX] == 0 ? 2 : 0;
}

inline void on_step(int, siginfo_t*, void* context) {
  auto& interrupted = *static_cast<ucontext_t*>(context);
  copy_many(interrupted);
  const long taken = steps->taken.fetch_add(1, std::memory_order_relaxed) + 1;
  if (taken == steps->killed_at.load(std::memory_order_relaxed)) {
    steps->killed = true;
    kill(getpid(), SIGKILL);
  } else if (taken == steps->last.load(std::memory_order_relaxed)) {
    interrupted.uc_mcontext.gregs[REG_EFL] &= ~kTrapFlag;
  }
}
/// Of a process that is not the victim, and as slow until that one has died.
inline void on_slow_step(int, siginfo_t*, void* context) {
  auto& interrupted = *static_cast<ucontext_t*>(context);
  copy_many(interrupted);
  if (steps->killed.load(std::memory_order_relaxed)) {
    interrupted.uc_mcontext.gregs[REG_EFL] &= ~kTrapFlag;
  }
}

inline void begin_stepping(void (*handler)(int, siginfo_t*, void*) = on_step) {
  struct sigaction action = {};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGTRAP, &action, nullptr);
  __builtin_ia32_writeeflags_u64(__builtin_ia32_readeflags_u64() | kTrapFlag);
}
inline void end_stepping() { __builtin_ia32_writeeflags_u64(__builtin_ia32_readeflags_u64() & ~kTrapFlag); }

}  // namespace headroom::test
