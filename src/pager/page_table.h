// The entries of this process's page table (proc(5), pagemap).
#pragma once

#include <cstdint>

namespace headroom::pager {

inline constexpr uint64_t kPagePresent = uint64_t{1} << 63;
inline constexpr uint64_t kPageWriteProtected = uint64_t{1} << 57;

/// Whether it can be asked. The first call opens it, and should come early: later that might be refused.
bool can_read_page_table();

/// The entry of the page at `address`; false if it cannot be known. Thread-safe.
bool read_page_table(uintptr_t address, uint64_t& entry);

}  // namespace headroom::pager
