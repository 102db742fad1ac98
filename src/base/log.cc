// Line formatting and writing; see log.h.
#include "base/log.h"

#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "base/system_calls.h"

namespace headroom::base {
namespace detail {
std::atomic<Level> levels[kParts] = {Level::kWarn, Level::kWarn, Level::kWarn, Level::kWarn, Level::kWarn,
                                     Level::kWarn, Level::kWarn, Level::kWarn, Level::kWarn};
}

namespace {

constexpr const char* kLevelNames[] = {"error", "warn", "info", "debug", "trace"};
constexpr const char* kPartNames[kParts] = {"base", "node", "arena", "pager", "heap", "sched", "direct", "mpi", "preload"};

std::atomic<int> rank_shown{-1};
std::atomic<void (*)()> death_hook{nullptr};

void write_line(const char* kind, const char* part, const char* format, va_list arguments) {
  char line[1024];
  const int rank = rank_shown.load(std::memory_order_relaxed);
  int length = snprintf(line, sizeof line, "headroom: %s: %s%s%s %d: ", kind, part, *part != 0 ? ": " : "",
                        rank >= 0 ? "rank" : "process", rank >= 0 ? rank : static_cast<int>(getpid()));
  length += vsnprintf(line + length, sizeof line - static_cast<size_t>(length) - 1, format, arguments);
  if (length > static_cast<int>(sizeof line) - 2) {
    length = sizeof line - 2;
  }
  line[length++] = '\n';
  (void)system_call(SYS_write, STDERR_FILENO, line, length);
}

void write_at(Level level, Part part, const char* format, va_list arguments) {
  if (does_log(part, level)) {
    write_line(kLevelNames[static_cast<int>(level)], kPartNames[static_cast<int>(part)], format, arguments);
  }
}

/// The place of a word in a list of names, or -1.
template <int kCount>
int place_of(const char* const (&names)[kCount], const char* word, size_t length) {
  for (int index = 0; index < kCount; ++index) {
    if (strlen(names[index]) == length && strncmp(names[index], word, length) == 0) {
      return index;
    }
  }
  return -1;
}

}  // namespace

bool set_log_levels(const char* text) {
  Level chosen[kParts];
  for (Level& level : chosen) {
    level = Level::kWarn;
  }
  for (const char* at = text; *at != 0; at += *at == ',' ? 1 : 0) {
    const size_t length = strcspn(at, ",");
    const char* colon = static_cast<const char*>(memchr(at, ':', length));
    const char* word = colon != nullptr ? colon + 1 : at;
    const int level = place_of(kLevelNames, word, static_cast<size_t>(at + length - word));
    const int part = colon != nullptr ? place_of(kPartNames, at, static_cast<size_t>(colon - at)) : 0;
    const bool is_too_low = colon != nullptr && level < static_cast<int>(Level::kInfo);  // warnings belong to no part
    if (level < 0 || part < 0 || is_too_low) {
      return false;
    }
    for (int each = part; each < (colon != nullptr ? part + 1 : kParts); ++each) {
      chosen[each] = static_cast<Level>(level);
    }
    at += length;
  }
  for (int each = 0; each < kParts; ++each) {
    detail::levels[each].store(chosen[each], std::memory_order_relaxed);
  }
  return true;
}

void set_log_rank(int rank) { rank_shown.store(rank, std::memory_order_relaxed); }
void set_death_hook(void (*hook)()) { death_hook.store(hook, std::memory_order_release); }

void log_warning(const char* format, ...) {
  if (!does_log(Part::kBase, Level::kWarn)) {
    return;
  }
  va_list arguments;
  va_start(arguments, format);
  write_line("warning", "", format, arguments);
  va_end(arguments);
}

void log_error(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  write_line("error", "", format, arguments);
  va_end(arguments);
}

void log_info(Part part, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  write_at(Level::kInfo, part, format, arguments);
  va_end(arguments);
}

void log_debug(Part part, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  write_at(Level::kDebug, part, format, arguments);
  va_end(arguments);
}

void log_trace(Part part, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  write_at(Level::kTrace, part, format, arguments);
  va_end(arguments);
}

void die(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  write_line("error", "", format, arguments);
  va_end(arguments);
  if (auto* hook = death_hook.load(std::memory_order_acquire)) {
    hook();
  }
  for (;;) {
    (void)system_call(SYS_exit_group, 2);
  }
}

}  // namespace headroom::base
