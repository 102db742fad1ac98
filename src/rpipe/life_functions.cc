// The functions of rpipe.h that begin and end: all pipes of a process, and one pipe.
#include <cerrno>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "headroom/rpipe.h"
#include "rpipe/address.h"
#include "rpipe/choose_transport.h"
#include "rpipe/descriptor.h"
#include "rpipe/export.h"
#include "rpipe/find_mpi.h"
#include "rpipe/handle.h"
#include "rpipe/handles.h"
#include "rpipe/host.h"
#include "rpipe/messages.h"
#include "rpipe/mirror.h"
#include "rpipe/records.h"

namespace headroom::rpipe {

namespace {

constexpr size_t kClosedHandles = 1024;                 // are kept before one is used again
constexpr uint64_t kMostHeapBytes = uint64_t{1} << 36;  // of one direction; units have 31 bits

struct Pipes {
  std::vector<::rpipe*> handles;  // for good: a program may use one after rpipe_finalize(), or in a forked child
  std::deque<::rpipe*> closed;
  std::vector<std::unique_ptr<End>> retired;
};

Pipes* pipes = new Pipes;
base::FutexLock pipes_lock;
uint32_t began_in = 0;  // fork_generation(); 0: it has not

bool is_sound(const rpipe_options& options) {
  return (options.flags & ~uint32_t{RPIPE_THREADS | RPIPE_PULL}) == 0 && options.width <= kMostBuffers &&
         options.policy <= RPIPE_WORST_FIT && options.frees <= RPIPE_IMMEDIATE && options.backend <= RPIPE_OFI &&
         options.padding == 0 && options.heap_bytes <= kMostHeapBytes;
}

void let_retired_go() {
  poll_mirrors(false);
  if (!pipes->retired.empty()) {
    (void)look_whether_dead(pipes->retired.front()->peer());  // one a time: it is a system call
  }
  for (size_t each = 0; each < pipes->retired.size();) {
    if (pipes->retired[each]->try_to_go()) {
      pipes->retired[each] = std::move(pipes->retired.back());
      pipes->retired.pop_back();
    } else {
      ++each;
    }
  }
}

::rpipe* take_handle() {
  if (pipes->closed.size() > kClosedHandles) {
    ::rpipe* const handle = pipes->closed.front();
    pipes->closed.pop_front();
    return handle;
  }
  pipes->handles.push_back(new ::rpipe);
  return pipes->handles.back();
}

/// Chooses the way of a pipe. -ENOTSUP, with a line on stderr: not the way that was asked for.
int choose_peer(int rank, uint32_t backend, Peer*& chosen) {
  Peer& on_node = peer_of(rank);
  const bool by_messages = backend >= RPIPE_MPI || (backend == RPIPE_ANY && !on_node.is_on_node);
  const BetweenNodes& between = messages_between_nodes();
  const bool is_other = backend >= RPIPE_MPI && backend != between.backend;
  if (!by_messages && on_node.is_on_node) {
    chosen = &on_node;
    return 0;
  }
  if (by_messages && rank != own_rank() && has_transport() && !is_other) {
    chosen = mirrored_peer(rank);
    return chosen == nullptr ? -ENOMEM : 0;
  }
  const bool has_none = between.backend == RPIPE_ANY;
  const char* const why = !by_messages         ? "it is on another node"
                          : rank == own_rank() ? "it is this rank"
                          : has_none           ? why_no_transport()
                          : is_other           ? "messages go by the other library; RPIPE_BETWEEN=mpi or ofi says by which"
                                               : "MPI has ended";
  const char* const way = !by_messages ? "memory" : backend == RPIPE_OFI ? "messages of libfabric" : "messages";
  say("rank %d: no pipe to rank %d (on %s) by %s: %s", own_rank(), rank, on_node.host, way, why);
  return -ENOTSUP;
}

int close_end(::rpipe& pipe, End& end, int64_t timeout_ns) {
  const int result = end.close(timeout_ns);
  const base::LockHolder lock(pipes_lock);
  pipe.end.store(nullptr, std::memory_order_release);
  pipes->closed.push_back(&pipe);
  pipes->retired.emplace_back(&end);
  let_retired_go();
  return result;
}

}  // namespace

int begin(const rpipe_bootstrap& bootstrap, const rpipe_transport* transport) {
  static uint32_t made_in = fork_generation();
  if (made_in != fork_generation()) {
    made_in = fork_generation();
    pipes = new Pipes;  // a forked child leaves its parent's alone: the budget, above all
  }
  forget_ends();
  forget_records();
  find_host();
  count_life();
  int error = begin_peers(bootstrap, transport != nullptr, read_wish());
  if (error == 0) {
    error = choose_transport(bootstrap, transport);
    error = error == 0 ? begin_mirrors(transport) : error;
    if (error != 0) {
      leave_transport();
      end_peers(false);
    }
  }
  began_in = error == 0 ? fork_generation() : 0;
  return error;
}

bool has_begun() { return began_in == fork_generation(); }

}  // namespace headroom::rpipe

using namespace headroom::rpipe;  // NOLINT(google-build-using-namespace): this is its C face

extern "C" {

RPIPE_EXPORT int rpipe_init_with(const rpipe_bootstrap* bootstrap) {
  if (bootstrap == nullptr || bootstrap->size < sizeof(rpipe_bootstrap) || bootstrap->allgather == nullptr ||
      bootstrap->ranks < 1 || bootstrap->rank < 0 || bootstrap->rank >= bootstrap->ranks ||
      static_cast<uint32_t>(bootstrap->ranks) > kMostRanks) {
    return -EINVAL;
  }
  return has_begun() ? -EALREADY : begin(*bootstrap, nullptr);
}

RPIPE_EXPORT int rpipe_init(int* rank, int* ranks_out) {
  if (has_begun()) {
    return -EALREADY;
  }
  rpipe_bootstrap bootstrap = {};
  const rpipe_transport* messages = nullptr;
  int error = find_mpi(bootstrap, messages);
  error = error == 0 ? begin(bootstrap, messages) : error;
  if (error == 0 && rank != nullptr) {
    *rank = bootstrap.rank;
  }
  if (error == 0 && ranks_out != nullptr) {
    *ranks_out = bootstrap.ranks;
  }
  return error;
}

RPIPE_EXPORT int rpipe_finalize(int64_t timeout_ns) {
  if (!has_begun()) {
    return -EBADF;
  }
  for (const ::rpipe* const handle : pipes->handles) {
    if (End* const end = end_of(handle)) {
      end->begin_close();  // all: each of two ranks may wait for the other to read from a pipe that comes later
    }
  }
  int result = 0;
  for (::rpipe* const handle : pipes->handles) {
    if (End* const end = end_of(handle)) {
      const bool holds = end->reader.held() > 0;
      const int closed = close_end(*handle, *end, timeout_ns);
      result = result != 0 ? result : holds ? -EBUSY : closed == -EPIPE ? 0 : closed;
    }
  }
  // The parts of this process's file that peers still use exist as long as peers have them mapped.
  pipes->retired.clear();
  forget_ends();
  forget_records();
  close_descriptor();
  end_peers(!end_mirrors(timeout_ns));
  began_in = 0;
  return result;
}

RPIPE_EXPORT int rpipe_open(rpipe_t* pipe, int peer, enum rpipe_role role, const rpipe_options* options) {
  if (!has_begun()) {
    return -EBADF;
  }
  rpipe_options all = {};
  if (options != nullptr && options->size < sizeof all) {
    return -EINVAL;
  }
  if (options != nullptr) {
    memcpy(&all, options, sizeof all);
  }
  if (pipe == nullptr || peer < 0 || peer >= ranks() || role < RPIPE_READER || role > RPIPE_BOTH || !is_sound(all)) {
    return -EINVAL;
  }
  Peer* other = nullptr;
  if (const int error = choose_peer(peer, all.backend, other)) {
    return error;
  }
  const headroom::base::LockHolder lock(pipes_lock);
  let_retired_go();
  ::rpipe* const handle = take_handle();
  auto end = std::make_unique<End>(*handle, *other, role, all);
  if (const int error = end->begin()) {
    pipes->closed.push_back(handle);
    return error;
  }
  handle->generation = fork_generation();
  handle->end.store(end.release(), std::memory_order_release);
  *pipe = handle;
  return 0;
}

RPIPE_EXPORT int rpipe_close(rpipe_t pipe, int64_t timeout_ns) {
  End* const end = end_of(pipe);
  return end == nullptr ? -EBADF : close_end(*pipe, *end, timeout_ns);
}

}  // extern "C"
