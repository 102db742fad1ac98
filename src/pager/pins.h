// The memory that the kernel keeps for network cards; see pins.cc.
//
// Private to src/pager; for the pager thread alone.
#pragma once

namespace headroom::pager {

/// Counts the memory that the kernel keeps for network cards, and warns if it grows while memory is short.
void look_at_pins();

}  // namespace headroom::pager
