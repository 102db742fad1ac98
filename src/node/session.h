// The node session: how the processes of a job on one node find each other and share the ledger, without a daemon and
// without a name in any file system.
//
// The first process binds an abstract Unix socket named after user and job and makes the ledger; every one that comes later
// connects and is handed descriptors: the ledger, the message memory *and the listening socket itself*. So every member can
// serve newcomers, the name lives exactly as long as any member does, and there is no leader whose death would matter. A peer
// whose user id differs is refused.
//
// A process joins when it first needs the arena or calls MPI_Init; a shell or `sed` that merely carries a rank's environment
// never does. A member is identified by its index in the ledger; the MPI layer enters its rank once MPI has told it
// (mpi/library_life.cc).
//
// Each member has a doorbell (an abstract datagram socket named after its index), and watches the next living member by a
// pidfd, so that a death is noticed at once by one process: it gives the dead member's memory and slot back and says so.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "node/ledger.h"

namespace headroom::node {

struct Session {
  Ledger* ledger = nullptr;
  Member* self = nullptr;
  int index = -1;
  int listen_descriptor = -1;
  int messages_descriptor = -1;  // the node's message memory (direct/message_memory.h), or -1 if it cannot be had
  int doorbell_descriptor = -1;
  int watched_descriptor = -1;  // pidfd of the member we watch, or -1
  int watched_index = -1;
  int watched_pid = 0;
};

/// Joins (or founds) the session of this job. Blocks for at most about 10 s. kUnavailable if no socket can be had.
base::Status join_session(Session& session);

/// Accepts and serves one newcomer on the listening socket, if there is one. Called by the pager thread.
void serve_newcomer(Session& session);

/// Rings member `index`'s doorbell. Safe in signal handlers; never blocks.
void ring(const Session& session, int index);

/// Rings the doorbells of all other members.
void ring_everybody(const Session& session);

/// Empties our own doorbell. Called by the pager thread when the doorbell's descriptor is readable.
void answer_doorbell(Session& session);

/// Picks the member to watch (the next one alive after us) and opens its pidfd. Called at start and after each ring.
void choose_watched(Session& session);

/// Rings the member that is to watch us: the last one alive before us. Called at start, once we are alive.
void ring_watcher(const Session& session);

/// Called when the watched pidfd is readable: tells an orderly end from a death, gives a dead member's claims back.
void watched_ended(Session& session);

/// This process is about to end with an error of Headroom's: the others of the node cannot finish their job without it. Safe
/// anywhere; allocates nothing. The session must have been joined.
void announce_failure(const Session& session);

/// Whether a member announced a failure so long ago that the launcher should have ended us by now.
bool outlived_failure(const Session& session);
/// Whether a member ended without leaving so long ago that a launcher that ends the others then would have done so.
bool outlived_loss(const Session& session);

/// The outcome of leaving. kLast is for the last member, but once only for the same members (one may come back): the report is
/// its.
enum class Leaving { kHadLeft, kLeft, kLast };

/// Leaves in order. The memory still exists until the process ends, so the process that watches us gives it back then.
Leaving leave_session(Session& session);

/// This process has left, since it was about to become another program, and goes on: that failed. For the thread that has left,
/// not for another one of the process.
void return_to_session(Session& session);

/// This process has joined, and cannot take part after all: nobody watches it, or waits for it.
void abandon_session(Session& session);

/// Closes what a forked child must not keep.
void forget_session_in_child(Session& session);

}  // namespace headroom::node
