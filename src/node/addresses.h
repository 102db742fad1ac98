// The names by which the processes of a job find each other: abstract sockets, which are in no file system.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

namespace headroom::node {

struct Address {
  sockaddr_un socket = {};
  socklen_t length = 0;
};

/// The abstract name of the session (index -1) or of a member's doorbell.
Address session_address(int index);

inline const sockaddr* as_sockaddr(const Address& address) { return reinterpret_cast<const sockaddr*>(&address.socket); }

}  // namespace headroom::node
