// The services that pipes need of the process that they are in, if it runs under Headroom; without it nobody is asked.
//
// The preloaded library exports one table (preload/pipe_host.cc), which is looked up by name when pipes begin: librpipe is
// linked with nothing of Headroom's, and the two may be of different versions. A table may only grow at its end.
#pragma once

#include <cstdint>

namespace headroom::rpipe {

inline constexpr const char* kHostName = "headroom_pipe_host";
inline constexpr uint32_t kHostVersion = 1;

struct Host {
  uint32_t version;
  uint32_t size;
  /// Around a sleep: others may compute meanwhile, and have this rank's memory. end_wait() may wait for the rank's turn.
  void (*begin_wait)();
  void (*end_wait)();
  /// Takes so much of the budget for heaps, which never leave memory; false if that may not be had. give_back() ends it.
  bool (*take)(uint64_t bytes);
  void (*give_back)(uint64_t bytes);
  /// Messages were written, for the report.
  void (*count)(uint64_t messages, uint64_t bytes);
};

/// Looks for it; once, when pipes begin.
void find_host();
/// nullptr: not under Headroom.
const Host* host();

/// A wait that may sleep; between begin() and its end the rank's turn is others'.
class HostWait {
 public:
  HostWait() = default;
  ~HostWait() {
    if (has_begun_) {
      host()->end_wait();
    }
  }
  HostWait(const HostWait&) = delete;
  HostWait& operator=(const HostWait&) = delete;
  /// Once, however often it is called.
  void begin() {
    if (!has_begun_ && host() != nullptr) {
      has_begun_ = true;
      host()->begin_wait();
    }
  }

 private:
  bool has_begun_ = false;
};

}  // namespace headroom::rpipe
