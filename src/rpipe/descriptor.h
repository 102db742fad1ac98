// A descriptor that becomes readable when something may have come for pipes: for poll() and event loops.
//
// It is an epoll instance. In it are the connections that the process has with its peers: they become readable when a peer
// connects, answers or dies, and by a byte that a peer sends which finds this process armed (ring_after_fence() in waiting.h).
// An eventfd tells what a thread of this process itself does. As no thread sleeps longer than a tenth of a second in a pipe
// (waiting.h) a timer makes it readable then, and sooner where nobody rings: from other nodes, and from a peer that is not
// connected.
//
// Thread-safe, but the thread that arms next takes back what makes it readable.
#pragma once

#include <cstdint>

namespace headroom::rpipe {

/// Made at the first call. -EMFILE.
int descriptor();
/// Takes back what has made it readable; from then on peers send a byte with what they do next. Look after that.
void arm_descriptor();
/// Readable after so long.
void let_descriptor_expire(int64_t after_ns);
/// Makes the descriptor of that rank's process readable; it may be this one.
void ring_descriptor_of(int rank);
/// Closes it.
void close_descriptor();

}  // namespace headroom::rpipe
