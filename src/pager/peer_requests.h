// Requests of other members for blocks of this one; see peer_requests.cc.
//
// Private to src/pager; for the pager thread alone.
#pragma once

namespace headroom::pager {

/// Takes other members' requests for this one's blocks, when the doorbell rings.
void take_requests_of_peers();
/// Tells the members for which it is done.
void answer_peers();

}  // namespace headroom::pager
