// Content that is given up; see discard.cc.
//
// Private to src/pager; for the pager thread alone.
#pragma once

#include <cstdint>

namespace headroom::pager {

/// These blocks will be overwritten: their content need not be read again and, for those in memory if `resident_too`, need not
/// be written out.
void forget_content(uint64_t first, uint64_t count, bool resident_too);
/// The content of these blocks is given up: they are FRESH then.
void discard(uint64_t block, uint64_t count);

}  // namespace headroom::pager
