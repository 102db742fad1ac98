// Pipes to ranks on other nodes: each of the two mirrors in a file of its own what it would see of the other's file, by
// messages (messenger.h), so that both ends are those of a node (writer.h, reader.h).
//
//   the writer's node                                        the reader's node
//   Record, ring, heap (own_memory())   ── open, notices ──►  mirrored Record, ring, heap (the mirror's file)
//   taken, marks, peer_closed           ◄──── back ────────   taken, marks, peer_closed
//
// A notice is sent when it is written, whatever becomes of it there: a writer may call nothing of ours again before its
// message is needed. Messages on their way are bounded by the direction's heap and width. For the same reason the reader tells
// at once over MPI what it gives back; libfabric's transport has a thread of its own, so there the reader tells it when it
// waits or has much to tell, or that thread does. Numbers of notices, buffers and places in the heap are the same on both
// sides: a place is used again only once the word has come back that the reader has freed it.
//
// Nobody rings from another node: a rank that waits polls, and moves all pipes of the process as it does.
//
// Thread-safe, except for begin_mirrors() and end_mirrors(). A thread that the transport does not want (MPI_THREAD_FUNNELED)
// leaves what it has to send to one that may.
#pragma once

#include <atomic>
#include <cstdint>

#include "rpipe/peers.h"
#include "rpipe/transport.h"

namespace headroom::rpipe {

/// In every rank as often as in the others, whatever fails then: counts how often pipes have begun.
void count_life();
/// `transport`: nullptr if there is none. 0 or -EMFILE.
int begin_mirrors(const rpipe_transport* transport);
/// Receives and drops from now on what others still send. Ends a transport that ends with the pipes. False: of this process's
/// own file something is still being sent.
bool end_mirrors(int64_t timeout_ns);
/// The way that pipes go to other nodes since they began; backend RPIPE_ANY: none.
struct BetweenNodes {
  uint32_t backend = RPIPE_ANY;
  const char* name = "";
  const char* failure = "";
};
const BetweenNodes& messages_between_nodes();
bool has_transport();

/// The peer as it is seen by messages, whatever node it is on; nullptr if there is no memory for it.
Peer* mirrored_peer(int rank);

/// Tells the peer of this process's record for an end, which has its key.
void announce(const Peer& peer, Record& own);
/// Sends what was written, and that the end is closed; after any such change.
void forward(const Record& own);
/// Nobody looks at this record any more, here or there. False: the peer must be told first that it was closed, or something of
/// it is being sent.
bool try_to_forget(const Record& own);
/// Tells the writer of a mirrored record that the end here has closed.
void tell_back(const Peer& peer, const Record& theirs);
/// That something of it was taken, if nothing is left: the writer may wait for that before it closes.
void tell_taken(const Peer& peer, const Record& theirs);
/// That a buffer was freed, which had so many bytes.
void tell_freed(const Peer& peer, const Record& theirs, uint32_t buffer, uint64_t bytes);

/// Counts what came from other nodes and was handled, by any thread.
uint64_t handled_from_nodes();
/// Tells the peer, if it does not know, that this process waits for it for ever; kNothing: no longer. `handled`: what was
/// counted before the caller last looked for what it waits for. If more has come since, nothing is told.
void tell_waits(const Peer& peer, WaitsFor waits_for, uint64_t handled);
/// Whether the peer waits for this process for ever, and had all that was sent to it when it said so: then it waits still.
bool waits_for_this_rank(const Peer& peer);

extern std::atomic<bool> has_mirrors;
void move_mirrors(bool expects_it, bool tells);
/// Moves what is on its way, if anything may be. `expects_it`: the program has called a function on a pipe to another node.
/// `tells`: tells now what was taken and freed here; a call that may find what it looks for at once has time for that later.
inline void poll_mirrors(bool expects_it, bool tells = true) {
  if (has_mirrors.load(std::memory_order_relaxed)) {
    move_mirrors(expects_it, tells);
  }
}

}  // namespace headroom::rpipe
