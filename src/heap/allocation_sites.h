// The places in the program that allocated large memory, while a trace is taken: `headroom report` shows faults by them.
#pragma once

#include <cstdint>

namespace headroom::heap {

/// Labels [offset, offset + bytes) of the partition with the calling code's site (its innermost frames). Allocates nothing.
void label_with_site(uint64_t offset, uint64_t bytes);

/// Records all sites with what was counted for them, and the names of the objects they lie in. At the end of the process.
void record_sites();

}  // namespace headroom::heap
