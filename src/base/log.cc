// Line formatting and writing; see log.h.
#include "base/log.h"

#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "base/settings.h"
#include "base/system_calls.h"

namespace headroom::base {
namespace {

std::atomic<int> rank_shown{-1};
std::atomic<void (*)()> death_hook{nullptr};

void write_line(const char* kind, const char* format, va_list arguments) {
  char line[1024];
  int length = 0;
  const int rank = rank_shown.load(std::memory_order_relaxed);
  if (rank >= 0) {
    length = snprintf(line, sizeof line, "headroom: %s: rank %d: ", kind, rank);
  } else {
    length = snprintf(line, sizeof line, "headroom: %s: process %d: ", kind, static_cast<int>(getpid()));
  }
  length += vsnprintf(line + length, sizeof line - static_cast<size_t>(length) - 1, format, arguments);
  if (length > static_cast<int>(sizeof line) - 2) {
    length = sizeof line - 2;
  }
  line[length++] = '\n';
  (void)system_call(SYS_write, STDERR_FILENO, line, length);
}

}  // namespace

void set_log_rank(int rank) { rank_shown.store(rank, std::memory_order_relaxed); }
void set_death_hook(void (*hook)()) { death_hook.store(hook, std::memory_order_release); }

void log_warning(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  write_line("warning", format, arguments);
  va_end(arguments);
}

void log_error(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  write_line("error", format, arguments);
  va_end(arguments);
}

void log_debug(const char* format, ...) {
  if (settings().log < LogChoice::kDebug) {
    return;
  }
  va_list arguments;
  va_start(arguments, format);
  write_line("debug", format, arguments);
  va_end(arguments);
}

void die(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  write_line("error", format, arguments);
  va_end(arguments);
  if (auto* hook = death_hook.load(std::memory_order_acquire)) {
    hook();
  }
  for (;;) {
    (void)system_call(SYS_exit_group, 2);
  }
}

}  // namespace headroom::base
