// Memory of forked children, which they have for themselves: copies of what their parent had, and what they allocated since.
// They are no members of the node, and nothing of theirs can move; so it counts as memory of their parent's that cannot.
// Thread-safe.
#pragma once

#include <cstdint>

namespace headroom::pager {

/// What all children have resident of which note_forked() was told (pager.h), in bytes: as it was when last looked at, which is
/// as often as it takes little time. One that executes another program, or ends, is forgotten by itself.
int64_t measure_forked_children();

/// In a child: it has none of its parent's children.
void forget_forked_in_child();

}  // namespace headroom::pager
