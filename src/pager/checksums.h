// Checksums of the content on storage (setting checksums): 4 bytes in memory for each page that was written, compared when it
// comes back. A page that is written to while it goes out has the wrong one until it goes out again, which it does before it is
// read: it is in memory until then. Private to src/pager; for the pager thread alone.
#pragma once

#include <cstdint>

namespace headroom::pager {

/// From now on there are checksums, for a file of that many pages; false if there are no addresses for them.
bool open_checksums(uint64_t pages);

/// `memory`, whole pages, is about to be written to the file at `offset`.
void note_written(uint64_t offset, const void* memory, uint64_t bytes);

/// Whether `memory`, read from there, is what was written; true without checksums.
bool compare_with_written(uint64_t offset, const void* memory, uint64_t bytes);

}  // namespace headroom::pager
