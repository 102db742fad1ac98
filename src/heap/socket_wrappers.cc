// Sending and receiving out of and into evictable memory: the buffers are held while the call runs.
#include <sys/socket.h>

#include <new>

#include "heap/held_calls.h"

namespace {

using namespace headroom;
using heap::in_pieces;
using heap::is_ours;
using heap::largest_hold;
using heap::VectorHold;

HEADROOM_REAL(recv);
HEADROOM_REAL(recvfrom);
HEADROOM_REAL(recvmsg);
HEADROOM_REAL(recvmmsg);
HEADROOM_REAL(send);
HEADROOM_REAL(sendto);
HEADROOM_REAL(sendmsg);
HEADROOM_REAL(sendmmsg);

constexpr unsigned kMostMessages = 64;

/// Holds the buffers of several messages at once.
class MessagesHold {
 public:
  MessagesHold(const mmsghdr* messages, unsigned count, bool write) : messages_(messages), count_(count), write_(write) {
    for (unsigned index = 0; index < count_; ++index) {
      const msghdr& message = messages_[index].msg_hdr;
      new (places_[index]) VectorHold(message.msg_iov, message.msg_iovlen, write_);
    }
  }
  ~MessagesHold() {
    for (unsigned index = 0; index < count_; ++index) {
      reinterpret_cast<VectorHold*>(places_[index])->~VectorHold();
    }
  }
  MessagesHold(const MessagesHold&) = delete;
  MessagesHold& operator=(const MessagesHold&) = delete;

 private:
  const mmsghdr* messages_;
  unsigned count_;
  bool write_;
  alignas(VectorHold) char places_[kMostMessages][sizeof(VectorHold)];
};

/// How many of the messages may be held together; all, if none of them lies in evictable memory. The kernel may transfer fewer
/// messages than asked for; so may we.
unsigned holdable_messages(const mmsghdr* messages, unsigned count) {
  size_t bytes = 0;
  for (unsigned index = 0; index < count; ++index) {
    const msghdr& message = messages[index].msg_hdr;
    bytes += heap::held_bytes(message.msg_iov, static_cast<int>(message.msg_iovlen));
    if (bytes > 0 && index > 0 && (bytes > largest_hold() || index >= kMostMessages)) {
      return index < kMostMessages ? index : kMostMessages - 1;
    }
  }
  return count;
}

unsigned to_hold(unsigned count) { return count < kMostMessages ? count : 0; }  // more than that only if none is ours

}  // namespace

HEADROOM_EXPORT ssize_t recv(int socket, void* buffer, size_t bytes, int flags) {
  if (!is_ours(buffer, bytes)) {
    return real_recv.get()(socket, buffer, bytes, flags);
  }
  if ((flags & (MSG_WAITALL | MSG_PEEK)) == MSG_WAITALL) {
    return in_pieces(buffer, bytes, true,
                     [=](char* at, size_t piece, size_t) { return real_recv.get()(socket, at, piece, flags); });
  }
  const iovec vector = {buffer, bytes < largest_hold() ? bytes : largest_hold()};
  const VectorHold held(&vector, 1, true);
  return real_recv.get()(socket, buffer, vector.iov_len, flags);
}
HEADROOM_EXPORT ssize_t recvfrom(int socket, void* buffer, size_t bytes, int flags, sockaddr* from, socklen_t* length) {
  if (!is_ours(buffer, bytes)) {
    return real_recvfrom.get()(socket, buffer, bytes, flags, from, length);
  }
  const iovec vector = {buffer, bytes < largest_hold() ? bytes : largest_hold()};
  const VectorHold held(&vector, 1, true);
  return real_recvfrom.get()(socket, buffer, vector.iov_len, flags, from, length);
}
HEADROOM_EXPORT ssize_t recvmsg(int socket, msghdr* message, int flags) {
  const VectorHold held(message->msg_iov, message->msg_iovlen, true);
  return real_recvmsg.get()(socket, message, flags);
}
HEADROOM_EXPORT ssize_t send(int socket, const void* buffer, size_t bytes, int flags) {
  if (!is_ours(buffer, bytes)) {
    return real_send.get()(socket, buffer, bytes, flags);
  }
  return in_pieces(buffer, bytes, false,
                   [=](char* at, size_t piece, size_t) { return real_send.get()(socket, at, piece, flags); });
}
HEADROOM_EXPORT ssize_t sendto(int socket, const void* buffer, size_t bytes, int flags, const sockaddr* to, socklen_t length) {
  if (!is_ours(buffer, bytes)) {
    return real_sendto.get()(socket, buffer, bytes, flags, to, length);
  }
  const iovec vector = {const_cast<void*>(buffer), bytes};
  const VectorHold held(&vector, 1, false);
  return real_sendto.get()(socket, buffer, bytes, flags, to, length);
}
HEADROOM_EXPORT ssize_t sendmsg(int socket, const msghdr* message, int flags) {
  const VectorHold held(message->msg_iov, message->msg_iovlen, false);
  return real_sendmsg.get()(socket, message, flags);
}
HEADROOM_EXPORT int recvmmsg(int socket, mmsghdr* messages, unsigned count, int flags, timespec* timeout) {
  const unsigned many = holdable_messages(messages, count);
  const MessagesHold held(messages, to_hold(many), true);
  return real_recvmmsg.get()(socket, messages, many, flags, timeout);
}
HEADROOM_EXPORT int sendmmsg(int socket, mmsghdr* messages, unsigned count, int flags) {
  const unsigned many = holdable_messages(messages, count);
  const MessagesHold held(messages, to_hold(many), false);
  return real_sendmmsg.get()(socket, messages, many, flags);
}
