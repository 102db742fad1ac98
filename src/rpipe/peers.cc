// See peers.h.
#include "rpipe/peers.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <vector>

#include "base/passed_descriptors.h"
#include "rpipe/card.h"
#include "rpipe/messages.h"

namespace headroom::rpipe {

namespace {

using base::is_error;
using base::system_call;

struct Ranks {
  int self = 0;
  int count = 0;
  uint64_t nonce = 0;
  bool oversubscribed = false;
  MemoryFile memory;
  Root* root = nullptr;
  int listener = -1;
  std::unique_ptr<Peer[]> peers;
  std::vector<Card> cards;
  std::vector<int> accepted;  // connections whose other end has not said which rank it is
  int watch = -1;             // an epoll instance, of descriptor.h
  bool accepts = true;        // the listener is in it: there are descriptors for ranks that connect
};

Ranks* known = nullptr;
base::FutexLock connections_lock;
std::atomic<uint32_t> generation{1};

socklen_t socket_name(sockaddr_un& name, uint64_t nonce, int rank) {
  name = {};
  name.sun_family = AF_UNIX;
  const int length = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "headroom-rpipe-%016llx-%d",
                              static_cast<unsigned long long>(nonce), rank);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(length));
}

int make_socket() {
  const long made = system_call(SYS_socket, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  return is_error(made) ? -1 : static_cast<int>(made);
}

int listen_here() {
  sockaddr_un name;
  const socklen_t length = socket_name(name, known->nonce, known->self);
  known->listener = make_socket();
  if (known->listener < 0) {
    return -EMFILE;
  }
  const long bound = system_call(SYS_bind, known->listener, &name, length);
  const long listens = is_error(bound) ? bound : system_call(SYS_listen, known->listener, 4096);
  return is_error(listens) ? static_cast<int>(listens) : 0;
}

bool watch(int descriptor) {
  epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data = {}};
  return known->watch < 0 || descriptor < 0 ||
         !is_error(system_call(SYS_epoll_ctl, known->watch, EPOLL_CTL_ADD, descriptor, &event));
}

void unwatch(int descriptor) {
  if (known->watch >= 0 && descriptor >= 0) {
    (void)system_call(SYS_epoll_ctl, known->watch, EPOLL_CTL_DEL, descriptor, nullptr);
  }
}

void watch_listener(bool accepts) {
  if (known->accepts != accepts) {
    known->accepts = accepts;
    accepts ? (void)watch(known->listener) : unwatch(known->listener);
  }
}

/// Its connection would be readable for ever.
void take_for_dead(Peer& peer) {
  peer.is_dead.store(true, std::memory_order_release);
  unwatch(peer.connection);
}

/// Only processes of the same user are spoken with: the name could be guessed by nobody, but it can be listed.
bool is_own_user(int connection) {
  ucred who = {};
  socklen_t bytes = sizeof who;
  return !is_error(system_call(SYS_getsockopt, connection, SOL_SOCKET, SO_PEERCRED, &who, &bytes)) && who.uid == geteuid();
}

/// The peer's file came: it is mapped, and tells whose it is. False if it is none of ours.
bool take_file(int connection, int file) {
  auto memory = Root{};
  if (system_call(SYS_pread64, file, &memory, offsetof(Root, bell), 0) != static_cast<long>(offsetof(Root, bell)) ||
      memory.magic != kMagic || memory.layout != kLayout || memory.rank < 0 || memory.rank >= known->count ||
      memory.nonce != known->cards[static_cast<size_t>(memory.rank)].nonce) {
    (void)system_call(SYS_close, file);
    return false;
  }
  Peer& peer = known->peers[memory.rank];
  if (peer.root.load(std::memory_order_relaxed) != nullptr) {
    (void)system_call(SYS_close, file);
    return false;
  }
  peer.memory.open(file);
  char* const root = peer.memory.at(0, sizeof(Root) + sizeof(uint64_t) * static_cast<uint64_t>(known->count));
  if (root == nullptr) {
    return false;
  }
  peer.connection = connection;
  peer.root.store(reinterpret_cast<Root*>(root), std::memory_order_release);
  return true;
}

enum class Came { kNothing, kFile, kEnd };

Came receive_file(int connection) {
  int file[1];
  const base::ReceivedDescriptors received = base::receive_descriptors(connection, MSG_DONTWAIT, file);
  if (received.result == -EAGAIN || received.result == -EINTR) {
    return Came::kNothing;
  }
  if (received.result != 1 || !received.has_all) {
    return Came::kEnd;
  }
  return take_file(connection, file[0]) ? Came::kFile : Came::kEnd;
}

bool accept_all() {
  bool some = false;
  for (;;) {
    const long connection = system_call(SYS_accept4, known->listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (is_error(connection)) {
      watch_listener(connection != -EMFILE && connection != -ENFILE);
      return some;
    }
    some = true;
    if (is_own_user(static_cast<int>(connection))) {
      known->accepted.push_back(static_cast<int>(connection));
      (void)watch(static_cast<int>(connection));
    } else {
      (void)system_call(SYS_close, connection);
    }
  }
}

/// Sends this process's file to those whose file has come. Where descriptors are short for the moment, some time later.
void answer() {
  const int own[1] = {known->memory.descriptor()};
  for (int rank = 0; rank < known->self; ++rank) {
    Peer& peer = known->peers[rank];
    if (peer.connection >= 0 && !peer.is_answered) {
      peer.is_answered = base::send_descriptors(peer.connection, 'R', own);
    }
  }
}

bool hear_accepted() {
  bool some = false;
  for (size_t each = 0; each < known->accepted.size();) {
    const int connection = known->accepted[each];
    const Came came = receive_file(connection);
    if (came == Came::kNothing) {
      ++each;
      continue;
    }
    if (came == Came::kEnd) {
      (void)system_call(SYS_close, connection);
    }
    some = true;
    known->accepted[each] = known->accepted.back();
    known->accepted.pop_back();
  }
  return some;
}

/// One that ended before an answer came is begun anew (connect_to()): the other end had no descriptor left, or has ended.
bool hear_answers() {
  bool some = false;
  for (int rank = known->self + 1; rank < known->count; ++rank) {
    Peer& peer = known->peers[rank];
    if (peer.connection < 0 || peer.root.load(std::memory_order_relaxed) != nullptr) {
      continue;
    }
    const Came came = receive_file(peer.connection);
    if (came == Came::kEnd) {
      (void)system_call(SYS_close, peer.connection);
      peer.connection = -1;
    }
    some |= came != Came::kNothing;
  }
  return some;
}

void start_connection(Peer& peer) {
  sockaddr_un name;
  const socklen_t length = socket_name(name, known->cards[static_cast<size_t>(peer.rank)].nonce, peer.rank);
  const int connection = make_socket();
  if (connection < 0) {
    return;
  }
  const long result = system_call(SYS_connect, connection, &name, length);
  const int own[1] = {known->memory.descriptor()};
  // Once a process has ended, another user may listen under its name.
  const bool is_others = !is_error(result) && !is_own_user(connection);
  if (!is_error(result) && !is_others && base::send_descriptors(connection, 'R', own)) {
    peer.connection = connection;
    (void)watch(connection);
    return;
  }
  (void)system_call(SYS_close, connection);
  if (result == -ECONNREFUSED || is_others) {  // nobody has that socket any more; -EAGAIN: many connect at a time
    peer.is_dead.store(true, std::memory_order_release);
  }
}

/// Whether nobody has its socket any more. A connection that closes again without a word disturbs nobody.
bool has_left(const Peer& peer) {
  sockaddr_un name;
  const socklen_t length = socket_name(name, known->cards[static_cast<size_t>(peer.rank)].nonce, peer.rank);
  const int connection = make_socket();
  if (connection < 0) {
    return false;
  }
  const long result = system_call(SYS_connect, connection, &name, length);
  (void)system_call(SYS_close, connection);
  return result == -ECONNREFUSED;
}

void close_connections() {
  const auto close_one = [](int& descriptor) {
    if (descriptor >= 0) {
      (void)system_call(SYS_close, descriptor);
      descriptor = -1;
    }
  };
  close_one(known->listener);
  for (int& connection : known->accepted) {
    close_one(connection);
  }
  for (int rank = 0; rank < known->count; ++rank) {
    close_one(known->peers[rank].connection);
  }
}

void before_fork() { connections_lock.lock(); }
void after_fork_in_parent() { connections_lock.unlock(); }
void after_fork_in_child() {
  connections_lock.reset();
  generation.fetch_add(1, std::memory_order_relaxed);
  if (known != nullptr) {
    close_connections();
    known = nullptr;  // left to the end of the process: nobody of it holds anything of the parent's
  }
}

int make_root() {
  if (!known->memory.open()) {
    return -EMFILE;
  }
  const MemoryFile::Piece piece = known->memory.allocate(sizeof(Root) + sizeof(uint64_t) * static_cast<uint64_t>(known->count));
  if (piece.at == nullptr) {
    return -ENOMEM;
  }
  known->root = reinterpret_cast<Root*>(piece.at);
  known->root->rank = known->self;
  known->root->nonce = known->nonce;
  known->root->layout = kLayout;
  known->root->magic = kMagic;
  return 0;
}

void know(const Card& own) {
  known->peers = std::make_unique<Peer[]>(static_cast<size_t>(known->count));
  for (int rank = 0; rank < known->count; ++rank) {
    const Card& card = known->cards[static_cast<size_t>(rank)];
    Peer& peer = known->peers[rank];
    peer.rank = rank;
    peer.is_on_node = strcmp(card.node, own.node) == 0;
    memcpy(peer.host, card.host, sizeof peer.host);
    peer.host[sizeof peer.host - 1] = 0;
  }
  known->peers[known->self].memory.open(
      static_cast<int>(system_call(SYS_fcntl, known->memory.descriptor(), F_DUPFD_CLOEXEC, 0)));
  known->peers[known->self].root.store(known->root, std::memory_order_release);
  known->oversubscribed = has_fewer_processors_than_ranks(known->cards, own);
}

}  // namespace

int begin_peers(const rpipe_bootstrap& bootstrap, bool has_messages, Wish wish) {
  static bool handles_forks = false;
  if (!handles_forks) {
    handles_forks = true;
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  }
  known = new Ranks;
  known->self = bootstrap.rank;
  known->count = bootstrap.ranks;
  (void)system_call(SYS_getrandom, &known->nonce, sizeof known->nonce, 0);
  Card own = own_card(known->nonce);
  own.has_messages = has_messages ? 1 : 0;
  own.wish = wish;
  own.error = wish == Wish::kWrong ? -EINVAL : make_root();
  own.error = own.error == 0 ? listen_here() : own.error;
  known->cards.resize(static_cast<size_t>(known->count));
  // All take part, whatever happened here: the others wait.
  int error = bootstrap.allgather(bootstrap.context, &own, known->cards.data(), sizeof own) != 0 ? -EPROTO : 0;
  const auto failed = std::find_if(known->cards.begin(), known->cards.end(), [](const Card& card) { return card.error != 0; });
  if (error == 0 && failed != known->cards.end()) {
    error = failed->error;
    say("rank %d (on %s) cannot begin: %s", static_cast<int>(failed - known->cards.begin()), failed->host, strerror(-error));
  }
  if (error != 0) {
    if (known->listener >= 0) {
      (void)system_call(SYS_close, known->listener);
    }
    delete known;
    known = nullptr;
    return error;
  }
  know(own);
  return 0;
}

void end_peers(bool memory_is_in_use) {
  if (known != nullptr) {
    close_connections();
    if (!memory_is_in_use) {
      delete known;
    }
    known = nullptr;
  }
}

const std::vector<Card>& all_cards() { return known->cards; }
int own_rank() { return known->self; }
int ranks() { return known->count; }
bool is_oversubscribed() { return known->oversubscribed; }
Root& own_root() { return *known->root; }
MemoryFile& own_memory() { return known->memory; }
Peer& peer_of(int rank) { return known->peers[rank]; }

void connect_to(Peer& peer) {
  const base::LockHolder lock(connections_lock);
  if (peer.is_on_node && peer.rank > known->self && peer.connection < 0 && !peer.is_dead.load(std::memory_order_relaxed)) {
    start_connection(peer);
  }
}

bool look_for_peers() {
  const base::LockHolder lock(connections_lock);
  const bool came = accept_all();
  const bool heard = hear_accepted();
  answer();
  return hear_answers() || came || heard;
}

bool look_whether_dead(Peer& peer) {
  if (peer.is_dead.load(std::memory_order_acquire) || peer.rank == known->self || peer.is_mirrored) {
    return peer.is_dead.load(std::memory_order_relaxed);
  }
  const base::LockHolder lock(connections_lock);
  bool dead = false;
  if (peer.connection >= 0 && peer.root.load(std::memory_order_relaxed) == nullptr) {
    return false;  // hear_answers() looks after it
  }
  if (peer.connection >= 0) {
    pollfd end = {peer.connection, POLLRDHUP, 0};  // even if bytes have come that were not read
    const timespec at_once = {};
    dead = system_call(SYS_ppoll, &end, 1, &at_once, nullptr, 0) == 1;
  } else {
    dead = has_left(peer);
  }
  if (dead) {
    take_for_dead(peer);
  }
  return dead;
}

bool watch_connections(int epoll) {
  const base::LockHolder lock(connections_lock);
  known->watch = epoll;
  bool fits = watch(known->listener);
  known->accepts = true;
  for (const int connection : known->accepted) {
    fits = fits && watch(connection);
  }
  for (int rank = 0; rank < known->count; ++rank) {
    const Peer& peer = known->peers[rank];
    fits = fits && (peer.is_dead.load(std::memory_order_relaxed) || watch(peer.connection));
  }
  if (!fits) {
    known->watch = -1;
  }
  return fits;
}

void send_ring(int rank) {
  const base::LockHolder lock(connections_lock);
  if (rank < 0 || rank >= known->count) {
    return;
  }
  // Where this process's file goes first its coming is what rings.
  const Peer& peer = known->peers[rank];
  if (peer.connection >= 0 && (peer.is_answered || rank > known->self)) {
    (void)system_call(SYS_sendto, peer.connection, "B", 1, MSG_DONTWAIT | MSG_NOSIGNAL, nullptr, 0);
  }
}

void take_rings() {
  const base::LockHolder lock(connections_lock);
  for (int rank = 0; rank < known->count; ++rank) {
    Peer& peer = known->peers[rank];
    const bool is_connected = peer.connection >= 0 && peer.root.load(std::memory_order_relaxed) != nullptr;
    if (!is_connected || peer.is_dead.load(std::memory_order_relaxed)) {
      continue;
    }
    char rings[64];
    long came = 0;
    while ((came = system_call(SYS_recvfrom, peer.connection, rings, sizeof rings, MSG_DONTWAIT, nullptr, nullptr)) > 0) {
    }
    if (came != -EAGAIN && came != -EINTR) {
      take_for_dead(peer);
    }
  }
}

void wait_for_peers(int64_t timeout_ns) {
  std::vector<pollfd> all;
  {
    const base::LockHolder lock(connections_lock);
    all.push_back({known->listener, POLLIN, 0});
    for (const int connection : known->accepted) {
      all.push_back({connection, POLLIN, 0});
    }
    for (int rank = known->self + 1; rank < known->count; ++rank) {
      const Peer& peer = known->peers[rank];
      if (peer.connection >= 0 && peer.root.load(std::memory_order_relaxed) == nullptr) {
        all.push_back({peer.connection, POLLIN, 0});
      }
    }
  }
  const timespec time = {timeout_ns / 1000000000, timeout_ns % 1000000000};
  (void)system_call(SYS_ppoll, all.data(), all.size(), &time, nullptr, 0);
}

uint32_t fork_generation() { return generation.load(std::memory_order_relaxed); }

}  // namespace headroom::rpipe
