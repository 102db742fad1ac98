// What /proc/self/status says.
#pragma once

#include <cstdint>

namespace headroom::base {

/// A size of it ("VmPTE:", say), in bytes; 0 if it is not there. Allocates nothing.
int64_t size_in_status(const char* name);

}  // namespace headroom::base
