// Keeps the effect of signals in this process as it is while a library is loaded that would change it: libraries of libfabric's
// networks (PSM) install handlers for crashes and ends, which are the program's to have.
//
// For a moment a signal may meet such a handler. Not thread-safe.
#pragma once

#include <signal.h>

namespace headroom::rpipe {

class KeepSignals {
 public:
  KeepSignals() {
    for (int signal = 1; signal < kSignals; ++signal) {
      is_known_[signal] = sigaction(signal, nullptr, &before_[signal]) == 0;
    }
  }
  ~KeepSignals() {
    for (int signal = 1; signal < kSignals; ++signal) {
      struct sigaction now = {};
      if (is_known_[signal] && sigaction(signal, nullptr, &now) == 0 && now.sa_sigaction != before_[signal].sa_sigaction) {
        (void)sigaction(signal, &before_[signal], nullptr);
      }
    }
  }
  KeepSignals(const KeepSignals&) = delete;
  KeepSignals& operator=(const KeepSignals&) = delete;

 private:
  static constexpr int kSignals = 65;
  struct sigaction before_[kSignals] = {};
  bool is_known_[kSignals] = {};
};

}  // namespace headroom::rpipe
