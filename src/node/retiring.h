// The states of members, and taking back the claims of a process that is gone. A place in the ledger is free again only when
// that is done; should the process that does it end meanwhile, the next one goes on.
#pragma once

#include "node/session.h"

namespace headroom::node {

/// Moves a member on; false if it is in another state than `from`. For the member itself.
bool move_state(Member& member, MemberState from, MemberState to);

/// Takes the member off `alive`; whether it was the last. Once, by whichever process: a process may be killed while it leaves.
bool take_off(Ledger& ledger, Member& member);
/// Counts the member in `alive`, again or now; whether there are more of them than cores by that, so that all wait in another
/// way.
bool put_on(Ledger& ledger, Member& member);

/// Takes back the claims of a process that is gone; false if its member is not `from`, another process is at it, or the place
/// is another process's by now.
bool retire(const Session& session, Member& member, int process, MemberState from, MemberState to);

}  // namespace headroom::node
