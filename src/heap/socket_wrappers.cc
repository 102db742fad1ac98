// Sending and receiving out of and into evictable memory: the buffers are held while the call runs. A stream's message that is
// larger than what may be held goes in several calls; a datagram goes whole, out of a copy.
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <new>

#include "base/system_calls.h"
#include "heap/held_arguments.h"
#include "trace/counters.h"

namespace {

using namespace headroom;
using heap::HeldAddress;
using heap::HeldArgument;
using heap::HeldOut;
using heap::is_ours;

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
constexpr size_t kMostVectors = 1024;

/// The parts of a message beside its content: a datagram would be lost if its sender's address could not be stored.
struct HeldSides {
  HeldSides(const msghdr& message, bool write)
      : name(message.msg_name, message.msg_namelen, write),
        control(message.msg_control, message.msg_controllen, write),
        list(message.msg_iov, message.msg_iovlen <= kMostVectors ? message.msg_iovlen * sizeof(iovec) : 0, false) {}
  HeldArgument name;
  HeldArgument control;
  HeldArgument list;
};

struct MessageHold {
  MessageHold(const msghdr& message, bool write)
      : content(message.msg_iov, message.msg_iovlen <= kMostVectors ? message.msg_iovlen : 0, write), sides(message, write) {}
  VectorHold content;
  HeldSides sides;
};

/// Holds several messages at once.
class MessagesHold {
 public:
  MessagesHold(mmsghdr* messages, unsigned count, bool write) : list_(messages, count * sizeof *messages, true), count_(count) {
    for (unsigned index = 0; index < count_; ++index) {
      new (places_[index]) MessageHold(messages[index].msg_hdr, write);
    }
  }
  ~MessagesHold() {
    for (unsigned index = 0; index < count_; ++index) {
      reinterpret_cast<MessageHold*>(places_[index])->~MessageHold();
    }
  }
  MessagesHold(const MessagesHold&) = delete;
  MessagesHold& operator=(const MessagesHold&) = delete;

 private:
  HeldArgument list_;
  unsigned count_;
  alignas(MessageHold) char places_[kMostMessages][sizeof(MessageHold)];
};

/// How many of the messages may be held together; all, if none of them lies in evictable memory. The kernel may transfer fewer
/// messages than asked for; so may we.
unsigned holdable_messages(const mmsghdr* messages, unsigned count) {
  size_t bytes = 0;
  for (unsigned index = 0; index < count; ++index) {
    const msghdr& message = messages[index].msg_hdr;
    bytes += heap::held_bytes(message.msg_iov, message.msg_iovlen);
    if (bytes > 0 && index > 0 && (!heap::may_hold(bytes) || index >= kMostMessages)) {
      return index;
    }
  }
  return count;
}

/// The result of a call for several messages of which one was transferred.
int first_alone(ssize_t result, mmsghdr* messages) {
  if (result < 0) {
    return -1;
  }
  messages[0].msg_len = static_cast<unsigned>(result);
  return 1;
}

unsigned to_hold(unsigned count) { return count <= kMostMessages ? count : 0; }  // more than that only if none is ours

bool is_stream(int socket) {
  int type = 0;
  socklen_t length = sizeof type;
  return getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_STREAM;
}

/// The part of the message's content that lies in evictable memory, in bytes of whole blocks. The kernel refuses more vectors
/// than kMostVectors.
size_t held_of(const msghdr& message) {
  return message.msg_iovlen <= kMostVectors ? heap::held_bytes(message.msg_iov, message.msg_iovlen) : 0;
}

/// A process without evictable memory may have no pager to ask.
bool may_be_held(size_t bytes) { return bytes == 0 || heap::may_hold(bytes); }

/// A message's buffers, a part at a time: parts are as large as a call that waits may hold.
class Parts {
 public:
  explicit Parts(const msghdr& message) : vectors_(message.msg_iov), count_(message.msg_iovlen) {}

  /// Points `message` at the next part and returns its size; 0 at the end.
  size_t next(msghdr& message) {
    size_t bytes = 0;
    size_t filled = 0;
    const size_t now = heap::holdable_now();
    const size_t most = std::min(now, heap::kMostWhileWaiting);
    heap::HeldTogether held;
    while (index_ < count_ && bytes < most) {
      const size_t left = vectors_[index_].iov_len - used_;
      const size_t piece = std::min<size_t>(left, most - bytes);
      part_[filled] = {static_cast<char*>(vectors_[index_].iov_base) + used_, piece};
      if (!heap::may_hold(held.with(part_[filled])) && filled > 0) {
        break;
      }
      ++filled;
      bytes += piece;
      used_ += piece;
      if (used_ == vectors_[index_].iov_len) {
        ++index_;
        used_ = 0;
      }
    }
    message.msg_iov = part_;
    message.msg_iovlen = filled;
    return bytes;
  }

 private:
  const iovec* vectors_;
  size_t count_;
  size_t index_ = 0;
  size_t used_ = 0;
  iovec part_[kMostVectors];
};

size_t size_of(const msghdr& message) {
  size_t bytes = 0;
  for (size_t index = 0; index < message.msg_iovlen; ++index) {
    bytes += message.msg_iov[index].iov_len;
  }
  return bytes;
}

/// A message comes whole: into a copy, and from there into the program's buffers.
ssize_t receive_copy(int socket, msghdr* message, int flags) {
  const size_t bytes = size_of(*message);
  const heap::PlainMemory copy(bytes);
  if (copy.address == nullptr) {
    errno = ENOBUFS;
    return -1;
  }
  iovec whole = {copy.address, bytes};
  msghdr copied = *message;
  copied.msg_iov = &whole;
  copied.msg_iovlen = 1;
  const ssize_t result = real_recvmsg.get()(socket, &copied, flags);
  if (result < 0) {
    return result;
  }
  const char* at = static_cast<const char*>(copy.address);
  size_t left = static_cast<size_t>(result) < bytes ? static_cast<size_t>(result) : bytes;
  trace::count(trace::Counter::kBouncedBytes, left);
  for (size_t index = 0; left > 0; ++index) {
    const size_t piece = std::min<size_t>(left, message->msg_iov[index].iov_len);
    memcpy(message->msg_iov[index].iov_base, at, piece);
    at += piece;
    left -= piece;
  }
  message->msg_namelen = copied.msg_namelen;
  message->msg_controllen = copied.msg_controllen;
  message->msg_flags = copied.msg_flags;
  return result;
}

/// Transfers a stream's message part by part, up to the first that comes back short; `call(part)` is one call, and
/// `after_first(part)` sees what the first has left. Control data goes with the first alone. Not `on`: one part and no more.
template <typename Call, typename AfterFirst>
ssize_t transfer_parts(const msghdr& message, bool kernel_writes, bool on, Call call, AfterFirst after_first) {
  Parts parts(message);
  msghdr part = message;
  ssize_t done = 0;
  while (const size_t bytes = parts.next(part)) {
    const VectorHold held(part.msg_iov, part.msg_iovlen, kernel_writes);
    const ssize_t result = call(part);
    if (result < 0) {
      return done > 0 ? done : result;
    }
    if (done == 0) {
      after_first(part);
      part.msg_control = nullptr;
      part.msg_controllen = 0;
    }
    done += result;
    if (!on || static_cast<size_t>(result) < bytes) {
      break;
    }
  }
  return done;
}

ssize_t receive_parts(int socket, msghdr* message, int flags) {
  const bool all = (flags & (MSG_WAITALL | MSG_PEEK)) == MSG_WAITALL;
  return transfer_parts(
      *message, true, all, [=](msghdr& part) { return real_recvmsg.get()(socket, &part, flags); },
      [=](const msghdr& part) {
        message->msg_namelen = part.msg_namelen;
        message->msg_controllen = part.msg_controllen;
        message->msg_flags = part.msg_flags;
      });
}

ssize_t send_parts(int socket, const msghdr* message, int flags) {
  return transfer_parts(
      *message, false, true, [=](msghdr& part) { return real_sendmsg.get()(socket, &part, flags); }, [](const msghdr&) {});
}

/// Without a copy (MSG_ZEROCOPY) the kernel keeps the pages until it has sent them, and tells the program alone. It may not
/// keep pages of memory that may move; it may keep those of a copy, when that is gone from here.
bool is_to_be_kept(const msghdr& message, int flags) { return (flags & MSG_ZEROCOPY) != 0 && held_of(message) > 0; }

ssize_t send_copy(int socket, const msghdr* message, int flags) {
  const size_t bytes = size_of(*message);
  const heap::PlainMemory copy(bytes);
  if (copy.address == nullptr) {
    errno = ENOBUFS;
    return -1;
  }
  char* at = static_cast<char*>(copy.address);
  for (size_t index = 0; index < message->msg_iovlen; ++index) {
    memcpy(at, message->msg_iov[index].iov_base, message->msg_iov[index].iov_len);
    at += message->msg_iov[index].iov_len;
  }
  trace::count(trace::Counter::kBouncedBytes, bytes);
  iovec whole = {copy.address, bytes};
  msghdr copied = *message;
  copied.msg_iov = &whole;
  copied.msg_iovlen = 1;
  return real_sendmsg.get()(socket, &copied, flags);
}

/// Transfers a message in the way that it can be: as it is; in parts, if it is a stream's and much of it would be held while
/// the call waits; out of or into a copy, if it is a datagram of which too much would be.
template <typename Whole, typename InParts, typename ByCopy>
ssize_t transfer_message(int socket, const msghdr& message, bool kernel_writes, Whole whole, InParts in_parts, ByCopy by_copy) {
  const size_t bytes = held_of(message);
  const bool fits = may_be_held(bytes);
  if (!fits || bytes > heap::kMostWhileWaiting + arena::kBlockBytes) {
    const HeldSides sides(message, kernel_writes);
    if (is_stream(socket)) {
      return in_parts();
    }
    if (!fits) {
      return by_copy();
    }
  }
  const MessageHold held(message, kernel_writes);
  return whole();
}

}  // namespace

HEADROOM_EXPORT ssize_t recvmsg(int socket, msghdr* message, int flags) {
  const HeldOut itself(message);
  return transfer_message(
      socket, *message, true, [=] { return real_recvmsg.get()(socket, message, flags); },
      [=] { return receive_parts(socket, message, flags); }, [=] { return receive_copy(socket, message, flags); });
}
HEADROOM_EXPORT ssize_t recvfrom(int socket, void* buffer, size_t bytes, int flags, sockaddr* from, socklen_t* length) {
  if (!is_ours(buffer, bytes)) {
    const HeldAddress held(from, length);
    return real_recvfrom.get()(socket, buffer, bytes, flags, from, length);
  }
  iovec vector = {buffer, bytes};
  msghdr message = {};
  const bool wants_sender = from != nullptr && length != nullptr;
  message.msg_name = wants_sender ? from : nullptr;
  message.msg_namelen = wants_sender ? *length : 0;
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  const ssize_t result = recvmsg(socket, &message, flags);
  if (result >= 0 && wants_sender) {
    *length = message.msg_namelen;
  }
  return result;
}
HEADROOM_EXPORT ssize_t recv(int socket, void* buffer, size_t bytes, int flags) {
  return is_ours(buffer, bytes) ? recvfrom(socket, buffer, bytes, flags, nullptr, nullptr)
                                : real_recv.get()(socket, buffer, bytes, flags);
}
HEADROOM_EXPORT ssize_t sendmsg(int socket, const msghdr* message, int flags) {
  const HeldArgument itself(message, sizeof *message, false);
  if (is_to_be_kept(*message, flags)) {
    return send_copy(socket, message, flags);
  }
  return transfer_message(
      socket, *message, false, [=] { return real_sendmsg.get()(socket, message, flags); },
      [=] { return send_parts(socket, message, flags); }, [=] { return send_copy(socket, message, flags); });
}
HEADROOM_EXPORT ssize_t sendto(int socket, const void* buffer, size_t bytes, int flags, const sockaddr* to, socklen_t length) {
  if (!is_ours(buffer, bytes)) {
    const HeldArgument held(to, length, false);
    return real_sendto.get()(socket, buffer, bytes, flags, to, length);
  }
  iovec vector = {const_cast<void*>(buffer), bytes};
  msghdr message = {};
  message.msg_name = const_cast<sockaddr*>(to);
  message.msg_namelen = to != nullptr ? length : 0;
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  return sendmsg(socket, &message, flags);
}
HEADROOM_EXPORT ssize_t send(int socket, const void* buffer, size_t bytes, int flags) {
  return is_ours(buffer, bytes) ? sendto(socket, buffer, bytes, flags, nullptr, 0)
                                : real_send.get()(socket, buffer, bytes, flags);
}
HEADROOM_EXPORT int recvmmsg(int socket, mmsghdr* messages, unsigned count, int flags, timespec* timeout) {
  if (count > 0 && !may_be_held(held_of(messages[0].msg_hdr))) {
    return first_alone(recvmsg(socket, &messages[0].msg_hdr, flags), messages);
  }
  const unsigned many = holdable_messages(messages, count);
  const MessagesHold held(messages, to_hold(many), true);
  const HeldOut held_timeout(timeout);
  return real_recvmmsg.get()(socket, messages, many, flags, timeout);
}
HEADROOM_EXPORT int sendmmsg(int socket, mmsghdr* messages, unsigned count, int flags) {
  for (unsigned index = 0; (flags & MSG_ZEROCOPY) != 0 && index < count; ++index) {
    if (is_to_be_kept(messages[index].msg_hdr, flags)) {
      return first_alone(sendmsg(socket, &messages[0].msg_hdr, flags), messages);
    }
  }
  if (count > 0 && !may_be_held(held_of(messages[0].msg_hdr))) {
    return first_alone(sendmsg(socket, &messages[0].msg_hdr, flags), messages);
  }
  const unsigned many = holdable_messages(messages, count);
  const MessagesHold held(messages, to_hold(many), false);
  return real_sendmmsg.get()(socket, messages, many, flags);
}
