// Access to memory for which nobody has noted the rights that the program has set, as in a forked child.
#pragma once

#include <cstdint>

namespace headroom::base {

/// Calls `function` for each part of the range that is mapped, readable and writable meanwhile. Allocates nothing.
void with_all_rights(uintptr_t address, uint64_t bytes, void (*function)(uintptr_t begin, uint64_t bytes));

}  // namespace headroom::base
