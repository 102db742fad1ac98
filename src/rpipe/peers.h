// The processes that may share pipes: which are on this node, how two of them get each other's file, and which have died.
//
// Each process listens on an abstract socket, whose name the others learn when all begin. Of two that open a pipe to each other
// the lower rank connects and sends its file; the other accepts, and answers with its own. Nobody waits for that: it goes on
// whenever a call on a pipe that was not met finds nothing to do (look_for_peers()). The connection stays: the kernel closes it
// when a process ends in whatever way, which is how its peers know, on every kernel and in containers.
//
// A peer that has armed its descriptor (descriptor.h) is rung by a byte on the connection.
//
// A forked child has no pipes: the handler of fork() closes its copies of the connections, else a parent's death would not be
// seen while a child lives.
//
// Thread-safe, except for begin_peers() and end_peers().
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "headroom/rpipe.h"
#include "rpipe/card.h"
#include "rpipe/memory_file.h"
#include "rpipe/shared.h"

namespace headroom::rpipe {

struct Peer {
  int rank = -1;
  bool is_on_node = false;
  bool is_mirrored = false;  // its file is here by messages (mirror.h)
  char host[64] = {};
  std::atomic<Root*> root{nullptr};  // once its file is here (release)
  std::atomic<bool> is_dead{false};
  std::atomic<bool> has_failed{false};  // messages to or from it have; before it is taken for dead
  PeerMemory memory;
  int connection = -1;
  bool is_answered = false;  // of a lower rank, which has connected: this process's file was sent
};

/// Learns of all ranks by `bootstrap`. `has_messages`: MPI's. 0, or a negative error number, which all ranks get where one
/// cannot begin.
int begin_peers(const rpipe_bootstrap& bootstrap, bool has_messages, Wish wish);
/// The cards of all ranks, by rank.
const std::vector<Card>& all_cards();
/// Leaves them. `memory_is_in_use`: this process's file stays to the end of the process.
void end_peers(bool memory_is_in_use);

int own_rank();
int ranks();
/// Whether there are more ranks on this node than processors that they may use.
bool is_oversubscribed();
Root& own_root();
MemoryFile& own_memory();
Peer& peer_of(int rank);

/// Asks for the peer's file, if it is on this node and not this process; it comes some time later.
void connect_to(Peer& peer);
/// Goes on with connections that are being made. True if something came of it.
bool look_for_peers();
/// Looks whether the peer has died; `is_dead` says so from then on.
bool look_whether_dead(Peer& peer);
/// Puts all connections in the epoll instance, now and when they are made, until it is closed. False: they do not fit.
bool watch_connections(int epoll);
/// Sends a byte on the connection with that rank, if there is one: its descriptor (descriptor.h) becomes readable.
void send_ring(int rank);
/// Takes back the rings of peers; of those that have died, for good.
void take_rings();
/// Sleeps until a peer connects or answers, or the time is over.
void wait_for_peers(int64_t timeout_ns);

/// Counts the forks that this process comes from: objects made before them are not its own.
uint32_t fork_generation();

}  // namespace headroom::rpipe
