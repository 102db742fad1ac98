// Readers that go from block to block in order and use a few pages of each only, the same ones again and again: such as a
// thread that walks down the columns of a matrix that lies in rows. Read as a whole, its blocks do not stay until the next
// column; its pages would.
//
// They are found by *probes*: at some markers (streams.cc) the reader gets only the page that it has asked for, and the page
// that it asks for next says how it goes on. Where it goes over the block in order, that costs one fault more. Not with
// sigsegv, which cannot map single pages.
//
// Private to src/pager; for the pager thread alone.
#pragma once

#include <cstdint>

namespace headroom::pager {

/// Reserves addresses for the notes about each block; false if there are none.
bool open_sparse_readers(uint64_t blocks);

/// Notes the page at which a fault came to a block; the faults of a probe are not new entries.
void note_entry(uint64_t block, uint32_t page);
/// Whether the reader has pages of the block alone, mapped although the block's word does not say so.
bool is_probed(uint64_t block);
/// For an access to a marker, which is in memory and not mapped: begins, goes on with or ends a probe. True if the access is to
/// get its page alone.
bool probe_page(uint64_t block, uint32_t page, bool write);
/// A reader that was seen at `block` before goes on: the probe there ends. True if it was found often enough to use few pages,
/// the same as the last time.
bool conclude_probe(uint64_t block);

}  // namespace headroom::pager
