// See death_watch.h.
#include "rpipe/death_watch.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "base/system_calls.h"

namespace headroom::rpipe {

namespace {

using base::is_error;
using base::system_call;

constexpr int kBacklog = 4096;

socklen_t length_of(const sockaddr_in6& address) {
  return address.sin6_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

int make_socket(const sockaddr_in6& address) {
  const long made = system_call(SYS_socket, address.sin6_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  return static_cast<int>(made);
}

/// A node that is gone is found after 10 s.
void set_probes(int socket) {
  const struct {
    int level, name, value;
  } kOptions[] = {{SOL_SOCKET, SO_KEEPALIVE, 1},
                  {IPPROTO_TCP, TCP_KEEPIDLE, 5},
                  {IPPROTO_TCP, TCP_KEEPINTVL, 1},
                  {IPPROTO_TCP, TCP_KEEPCNT, 5}};
  for (const auto& option : kOptions) {
    (void)system_call(SYS_setsockopt, socket, option.level, option.name, &option.value, sizeof option.value);
  }
}

int number_in(const char* variable) {
  const char* const text = getenv(variable);
  return text == nullptr ? 0 : atoi(text);
}

/// To one of those that a firewall lets through, if libfabric is told of them.
long bind_to_some_port(int listener, sockaddr_in6& address) {
  const int last = number_in("FI_TCP_PORT_HIGH_RANGE");
  for (int port = std::max(number_in("FI_TCP_PORT_LOW_RANGE"), 0); port > 0 && port <= last && port < 1 << 16; ++port) {
    address.sin6_port = htons(static_cast<uint16_t>(port));
    if (!is_error(system_call(SYS_bind, listener, &address, length_of(address)))) {
      return 0;
    }
  }
  address.sin6_port = 0;
  return system_call(SYS_bind, listener, &address, length_of(address));
}

}  // namespace

DeathWatch::~DeathWatch() { close_copies(); }

void DeathWatch::close_copies() {
  for (const Connection& connection : connections_) {
    (void)system_call(SYS_close, connection.socket);
  }
  connections_.clear();
  if (listener_ >= 0) {
    (void)system_call(SYS_close, listener_);
    listener_ = -1;
  }
}

int DeathWatch::begin(const sockaddr_in6& own, uint64_t nonce) {
  sockaddr_in6 address = own;
  address.sin6_port = 0;  // where sockaddr_in has its own
  nonce_ = nonce;
  const int made = make_socket(address);
  if (is_error(made)) {
    return made;
  }
  listener_ = made;
  socklen_t bytes = length_of(address);
  long result = bind_to_some_port(listener_, address);
  result = is_error(result) ? result : system_call(SYS_listen, listener_, kBacklog);
  result = is_error(result) ? result : system_call(SYS_getsockname, listener_, &address, &bytes);
  if (is_error(result)) {
    close_copies();
    return static_cast<int>(result);
  }
  port_ = address.sin6_port;
  return 0;
}

bool DeathWatch::watch(int self, int rank, const sockaddr_in6& address, uint64_t nonce) {
  const bool has_connected = std::any_of(connections_.begin(), connections_.end(),
                                         [&](const Connection& each) { return each.rank == rank && each.is_greeted(); });
  if (has_connected) {
    return true;
  }
  const int made = make_socket(address);
  if (is_error(made)) {
    return false;
  }
  set_probes(made);
  const long connects = system_call(SYS_connect, made, &address, length_of(address));
  if (is_error(connects) && connects != -EINPROGRESS) {
    (void)system_call(SYS_close, made);
    if (connects == -ECONNREFUSED) {
      refused_.push_back(rank);
    }
    return true;
  }
  connections_.push_back({made, rank, true, {nonce, self, 0}, 0});
  return true;
}

void DeathWatch::accept_all() {
  for (;;) {
    const long made = system_call(SYS_accept4, listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (is_error(made)) {
      return;
    }
    set_probes(static_cast<int>(made));
    connections_.push_back({static_cast<int>(made), -1, false, {}, 0});
  }
}

/// A rank that does not listen any more has ended, or a firewall refuses; one that cannot be reached may live.
DeathWatch::Heard DeathWatch::look_why_it_failed(const Connection& connection) {
  int error = 0;
  socklen_t bytes = sizeof error;
  (void)system_call(SYS_getsockopt, connection.socket, SOL_SOCKET, SO_ERROR, &error, &bytes);
  if (connection.is_greeted() || !connection.connects) {
    return Heard::kEnd;
  }
  return error == ECONNREFUSED || error == ECONNRESET ? Heard::kRefusal : Heard::kNobody;
}

/// Sends, or receives, what is left of the greeting.
DeathWatch::Heard DeathWatch::greet(Connection& connection) const {
  char* const at = reinterpret_cast<char*>(&connection.greeting) + connection.moved;
  const uint64_t left = sizeof connection.greeting - connection.moved;
  const long moved = connection.connects
                         ? system_call(SYS_sendto, connection.socket, at, left, MSG_DONTWAIT | MSG_NOSIGNAL, nullptr, 0)
                         : system_call(SYS_recvfrom, connection.socket, at, left, MSG_DONTWAIT, nullptr, nullptr);
  if (moved == -EAGAIN || moved == -EINTR) {
    return Heard::kNothing;
  }
  if (moved <= 0) {
    return Heard::kEnd;
  }
  connection.moved += static_cast<uint32_t>(moved);
  if (connection.is_greeted() && !connection.connects) {
    connection.rank = connection.greeting.nonce == nonce_ ? connection.greeting.rank : -1;
    return connection.rank >= 0 ? Heard::kNothing : Heard::kNobody;
  }
  return Heard::kNothing;
}

DeathWatch::Heard DeathWatch::hear(Connection& connection, int events) const {
  if ((events & (POLLERR | POLLHUP)) != 0) {
    return look_why_it_failed(connection);
  }
  if (!connection.is_greeted()) {
    return greet(connection);
  }
  return (events & POLLRDHUP) != 0 ? Heard::kEnd : Heard::kNothing;
}

void DeathWatch::move(std::vector<int>& ended, std::vector<int>& refused) {
  if (listener_ < 0) {
    return;
  }
  accept_all();
  refused.insert(refused.end(), refused_.begin(), refused_.end());
  refused_.clear();
  polled_.clear();
  for (const Connection& connection : connections_) {
    const int events = connection.is_greeted() ? POLLRDHUP : connection.connects ? POLLOUT : POLLIN;
    polled_.push_back({connection.socket, static_cast<short>(events), 0});
  }
  const timespec at_once = {};
  if (polled_.empty() || system_call(SYS_ppoll, polled_.data(), polled_.size(), &at_once, nullptr, 0) <= 0) {
    return;
  }
  size_t kept = 0;
  for (size_t each = 0; each < connections_.size(); ++each) {
    Connection& connection = connections_[each];
    const Heard heard = polled_[each].revents == 0 ? Heard::kNothing : hear(connection, polled_[each].revents);
    if (heard == Heard::kNothing) {
      connections_[kept++] = connection;
      continue;
    }
    (void)system_call(SYS_close, connection.socket);
    if (heard != Heard::kNobody && connection.rank >= 0) {
      (heard == Heard::kEnd ? ended : refused).push_back(connection.rank);
    }
  }
  connections_.resize(kept);
}

}  // namespace headroom::rpipe
