// Finds ranks on other nodes that have died, where the network itself does not say so: libfabric over TCP has no event for it.
//
// A rank that exchanges messages with another connects to it by TCP; nothing is sent there but, at first, which rank connects.
// The kernel closes the connection when a process ends in whatever way, and its probes find a node that is gone. A process that
// comes to an end in good order closes it, too. This does not tell whether all that the process has sent has come.
//
// System calls go past the C library: descriptors are none of the program's. Not thread-safe.
#pragma once

#include <netinet/in.h>
#include <poll.h>

#include <cstdint>
#include <map>
#include <vector>

namespace headroom::rpipe {

class DeathWatch {
 public:
  DeathWatch() = default;
  ~DeathWatch();
  DeathWatch(const DeathWatch&) = delete;
  DeathWatch& operator=(const DeathWatch&) = delete;

  /// Listens at any port of this address (a sockaddr_in6, or a sockaddr_in in its place); `nonce`: a rank that connects must
  /// know it. 0 or a negative error number.
  int begin(const sockaddr_in6& own, uint64_t nonce);
  /// In network byte order; 0: it does not listen.
  [[nodiscard]] uint16_t port() const { return port_; }

  /// Connects to a rank that listens at this address; once for each rank. If the network has no such connection (a firewall
  /// lets nothing through), the rank's death is not seen. False: there is no descriptor for it now.
  bool watch(int self, int rank, const sockaddr_in6& address, uint64_t nonce);
  /// Goes on with connections that are being made; adds the ranks of which a connection has ended to `ended`, and those that
  /// have refused one.
  void move(std::vector<int>& ended, std::vector<int>& refused);
  /// Closes this process's copies, in a forked child.
  void close_copies();

 private:
  struct Greeting {
    uint64_t nonce;
    int32_t rank;
    int32_t padding;
  };
  struct Connection {
    int socket;
    int rank;  // of the other end; -1: it has not said
    bool connects;
    Greeting greeting;  // to the other end; of one that was accepted, what has come
    uint32_t moved;     // bytes of it
    [[nodiscard]] bool is_greeted() const { return moved == sizeof greeting; }
  };

  enum class Heard { kNothing, kEnd, kRefusal, kNobody };

  static Heard look_why_it_failed(const Connection& connection);
  [[nodiscard]] Heard greet(Connection& connection) const;
  [[nodiscard]] Heard hear(Connection& connection, int events) const;
  void accept_all();

  int listener_ = -1;
  uint16_t port_ = 0;
  uint64_t nonce_ = 0;
  std::vector<Connection> connections_;
  std::vector<int> refused_;  // ranks that have, at once
  std::vector<pollfd> polled_;
};

}  // namespace headroom::rpipe
