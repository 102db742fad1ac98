// Tells whether a ring of io_uring that the program makes is refused (io_uring_wrappers.cc).
#pragma once

namespace headroom::heap {

/// `caller`: where it is asked for. Says so once.
bool refuses_ring(const void* caller);

}  // namespace headroom::heap
