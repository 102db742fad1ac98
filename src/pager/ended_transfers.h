// What follows when a transfer between blocks and the store has ended: content gets its place, memory is freed, accesses that
// waited are served.
//
// Private to src/pager; for the pager thread alone.
#pragma once

namespace headroom::pager {

/// Collects one finished transfer and acts on it; false if there is none.
bool collect_transfer();
/// Collects finished transfers and acts on them; true if there were any.
bool collect_transfers();

}  // namespace headroom::pager
