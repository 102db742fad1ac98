// Ends of the process that several parts of the pager may come to.
//
// Private to src/pager.
#pragma once

#include <cstdint>

namespace headroom::pager {

/// The kernel has no memory although the budget allows it.
[[noreturn]] void die_without_memory();
/// Ends the process: memory cannot be moved.
[[noreturn]] void die_of_transfer(bool write, uint64_t bytes, int error);

}  // namespace headroom::pager
