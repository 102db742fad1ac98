// Giving content that was read into a buffer its place; see placing.cc.
//
// Private to src/pager; for the pager thread alone.
#pragma once

#include <cstdint>

namespace headroom::pager {

/// Gives blocks that are READING their memory, with the content that was read, and maps those that can be; read_done() follows.
void place_content(uint64_t first, uint64_t count, const char* content);

}  // namespace headroom::pager
