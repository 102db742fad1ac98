// Seeing that others have ended: each member watches the next one that is alive (session.h), and one that leaves looks at all.
#pragma once

#include "node/session.h"

namespace headroom::node {

/// Notes the end of all whose processes are gone, so that the last one to leave is known. Takes 20 ms at most.
void note_ends_of_all(const Session& session);

}  // namespace headroom::node
