// Headroom's messages on standard error, one write(2) a line so that lines of different ranks do not mix.
//
// Every line begins with "headroom: error:" or "headroom: warning:" and the rank or, before it is known, the process. A line
// for a person who looks for a fault begins with its level and the part of Headroom, which is a folder of src/: "headroom:
// debug: pager: rank 3:". HEADROOM_LOG chooses: a level for all, or for parts ("debug", "pager:trace,direct:debug").
//
// die() is for errors after which the program's memory could not be trusted or a forced choice cannot be had: it prints and
// ends the process at once, without running exit handlers (they would touch memory). All functions are safe in signal handlers
// and in the pager thread: they format into a buffer on the stack and allocate nothing.
#pragma once

#include <atomic>
#include <cstdint>

namespace headroom::base {

enum class Level : uint8_t {
  kError,  // of all parts: and nothing else
  kWarn,
  kInfo,   // events that come once or twice in a run: memory becomes short, a job agrees on something
  kDebug,  // decisions, fallbacks, and the reasons for them
  kTrace,  // each fault and each message that takes a way of its own
};
enum class Part : uint8_t { kBase, kNode, kArena, kPager, kHeap, kSched, kDirect, kMpi, kPreload };
inline constexpr int kParts = 9;

namespace detail {
extern std::atomic<Level> levels[kParts];
}

/// Whether lines of this level and part are said: for lines that cost something to make.
inline bool does_log(Part part, Level level) {
  return level <= detail::levels[static_cast<int>(part)].load(std::memory_order_relaxed);
}

/// Sets the levels from HEADROOM_LOG's text; false, and nothing is changed, if it is no such text.
bool set_log_levels(const char* text);

/// Sets the rank that lines begin with; -1 until MPI_Init.
void set_log_rank(int rank);

/// Said unless the level of all is "error": warnings are the user's, and belong to no part. Longer lines than 1 KiB are cut.
void log_warning(const char* format, ...) __attribute__((format(printf, 1, 2)));
/// Always said: for an error by which the caller then ends.
void log_error(const char* format, ...) __attribute__((format(printf, 1, 2)));
void log_info(Part part, const char* format, ...) __attribute__((format(printf, 2, 3)));
void log_debug(Part part, const char* format, ...) __attribute__((format(printf, 2, 3)));
void log_trace(Part part, const char* format, ...) __attribute__((format(printf, 2, 3)));

/// Called by die() before the process ends, so that others can be told. nullptr: nothing is called.
void set_death_hook(void (*hook)());

/// Prints and ends the process with exit status 2.
[[noreturn]] void die(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace headroom::base
