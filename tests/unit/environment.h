// Sets the settings of a test's process, as `headroom run` would, and looks at the pager from within.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <string>

#include "base/settings.h"
#include "pager/requests.h"

namespace headroom::test {

inline void set_environment(const char* memory, const char* engine, const char* store = "auto") {
  setenv("HEADROOM_MEMORY", memory, 1);
  setenv("HEADROOM_STORAGE", "/var/tmp", 1);
  setenv("HEADROOM_ENGINE", engine, 1);
  setenv("HEADROOM_STORE", store, 1);
  setenv("HEADROOM_JOB", ("unit-" + std::to_string(getpid())).c_str(), 1);
  base::load_settings();
}

/// What is claimed of the budget for memory of the arena.
inline int64_t claimed_bytes() { return node::bytes_of_blocks(*pager::session().self); }

/// Whether the pager's invariants hold now.
inline bool invariants_hold() {
  pager::Request request = {};
  request.kind = pager::RequestKind::kCheck;
  pager::perform(request);
  return request.status == base::Status::kOk;
}

}  // namespace headroom::test
