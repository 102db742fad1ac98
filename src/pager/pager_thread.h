// The pager's thread; see pager_thread.cc.
//
// Private to src/pager.
#pragma once

namespace headroom::pager {

/// Starts it. `requests`: the descriptor that says that there are some.
bool start_pager_thread(int requests);

}  // namespace headroom::pager
