// The states of members, and taking back what a process had that is gone. A place in the ledger is free again only when that is
// done; should the one that is at it end meanwhile, the next one goes on.
#pragma once

#include "node/session.h"

namespace headroom::node {

/// Moves a member on; false if it is in another state than `from`. For the member itself.
bool move_state(Member& member, MemberState from, MemberState to);

/// No longer one of `alive`; whether it was the last. Once, whichever process does it: a process may be killed while it leaves.
bool take_off(Ledger& ledger, Member& member);
/// One of `alive` again, or now; whether there are more than cores by that, and so all wait in another way.
bool put_on(Ledger& ledger, Member& member);

/// Takes back what a process had that is gone; false if its member is not `from`, another one is at it, or the place is another
/// process's by now.
bool retire(const Session& session, Member& member, int process, MemberState from, MemberState to);

}  // namespace headroom::node
