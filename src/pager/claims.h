// The end of the time when memory is enough; see claims.cc.
//
// Private to src/pager; for the pager thread alone.
#pragma once

namespace headroom::pager {

/// Arms this process, if it has not armed yet.
void become_armed();

}  // namespace headroom::pager
