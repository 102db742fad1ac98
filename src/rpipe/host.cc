// See host.h.
#include "rpipe/host.h"

#include <dlfcn.h>

namespace headroom::rpipe {

namespace {
const Host* found = nullptr;
}

void find_host() {
  const auto* const table = static_cast<const Host*>(dlsym(RTLD_DEFAULT, kHostName));
  found = table != nullptr && table->version == kHostVersion && table->size >= sizeof(Host) ? table : nullptr;
}

const Host* host() { return found; }

}  // namespace headroom::rpipe
