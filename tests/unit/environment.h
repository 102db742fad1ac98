// Sets the settings of a test's process, as `headroom run` would.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <string>

#include "base/settings.h"

namespace headroom::test {

inline void set_environment(const char* memory, const char* engine, const char* store = "auto") {
  setenv("HEADROOM_MEMORY", memory, 1);
  setenv("HEADROOM_STORAGE", "/var/tmp", 1);
  setenv("HEADROOM_ENGINE", engine, 1);
  setenv("HEADROOM_STORE", store, 1);
  setenv("HEADROOM_JOB", ("unit-" + std::to_string(getpid())).c_str(), 1);
  base::load_settings();
}

}  // namespace headroom::test
