// The end of lasting holds; the functions of other layers are in pager.h, see hold.cc.
//
// Private to src/pager; for the pager thread, or under transition_lock while memory is not watched.
#pragma once

#include <cstdint>

namespace headroom::pager {

/// Ends pin()'s and try_lock()'s holds on a block whose content is given up.
void unpin(uint64_t block);

}  // namespace headroom::pager
