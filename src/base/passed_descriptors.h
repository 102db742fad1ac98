// Descriptors that are passed to another process through a UNIX socket, with one byte that says what for. Past the C library:
// its functions are interposed, and looking up the real ones could wait for a program's thread that waits for us.
#pragma once

#include <sys/socket.h>
#include <sys/syscall.h>

#include <cstring>

#include "base/system_calls.h"

namespace headroom::base {

template <int kCount>
bool send_descriptors(int socket, char byte, const int (&descriptors)[kCount]) {
  iovec vector = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof descriptors)] = {};
  msghdr message = {};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof descriptors);
  memcpy(CMSG_DATA(header), descriptors, sizeof descriptors);
  return system_call(SYS_sendmsg, socket, &message, MSG_NOSIGNAL) == 1;
}

struct ReceivedDescriptors {
  long result;  // of recvmsg(): 1, 0 at the end, or a negative error number
  char byte;
  bool has_all;  // else none: fewer came than were expected, or there was no descriptor left for them here
};

/// Takes the next byte and the descriptors that came with it; they are closed in programs that this one becomes. `flags`: more
/// of recvmsg().
template <int kCount>
ReceivedDescriptors receive_descriptors(int socket, int flags, int (&descriptors)[kCount]) {
  ReceivedDescriptors received = {};
  iovec vector = {&received.byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof descriptors)] = {};
  msghdr message = {};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  received.result = system_call(SYS_recvmsg, socket, &message, flags | MSG_CMSG_CLOEXEC);
  const cmsghdr* header = received.result > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) {
    return received;
  }
  received.has_all = header->cmsg_len == CMSG_LEN(sizeof descriptors);
  if (received.has_all) {
    memcpy(descriptors, CMSG_DATA(header), sizeof descriptors);
    return received;
  }
  for (size_t at = CMSG_LEN(0); at + sizeof(int) <= header->cmsg_len; at += sizeof(int)) {
    int one = -1;
    memcpy(&one, reinterpret_cast<const char*>(header) + at, sizeof one);
    (void)system_call(SYS_close, one);
  }
  return received;
}

}  // namespace headroom::base
