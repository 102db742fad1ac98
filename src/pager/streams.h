// Sequential readers and reading ahead of them; see streams.cc.
//
// Private to src/pager; for the pager thread alone.
#pragma once

#include <cstdint>

namespace headroom::pager {

/// Whether a reader that comes from the blocks beside goes on here; it then meets one of the nearest pages first.
bool continues_stream(uint64_t block, uint32_t page);
/// Notes that a reader is at `block`; widens or starts its window.
void extend_stream(uint64_t block);
/// Notes that blocks from `first` on have been read; as many more are to be read, so that the disk goes on meanwhile.
void note_arrival(uint64_t first, uint64_t count);
/// Whether the program writes to what it reads there, as far as its last markers tell.
bool is_likely_written(uint64_t block);
/// Begins to read blocks ahead that the program has announced.
void read_announced(uint64_t first, uint64_t count);
/// Reads ahead as far as the streams' windows and the room allow.
void read_streams_ahead();

}  // namespace headroom::pager
