// How much of the memory that can move has been touched; see touched.cc.
//
// Private to src/pager.
#pragma once

namespace headroom::pager {

/// Counts the blocks that have been touched, which are known one by one while memory is watched. On the pager's thread.
void count_touched();

}  // namespace headroom::pager
