// See fork_channel.h.
#include "pager/fork_channel.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>

#include "base/own_descriptors.h"
#include "pager/pager.h"
#include "pager/state.h"

namespace headroom::pager {

using namespace arena;
using base::system_call;

ForkChannel fork_channel;

namespace {

struct HeldCopies {
  char* memory = nullptr;
  uint64_t* blocks = nullptr;
  uint64_t count = 0;
  uint64_t room = 0;
};
HeldCopies held_copies;

/// Whether protect_all() (fork.cc) had to leave it, since somebody holds it for writing, or did then: the hold may have ended
/// since. Nobody but this thread changes that.
bool is_unprotected(uint64_t block) { return (word_of(block).load(std::memory_order_acquire) & kWritable) != 0; }

}  // namespace

bool open_fork_channel() {
  fork_channel = {};
  int ends[2] = {-1, -1};
  int lifeline[2] = {-1, -1};
  if (base::is_error(system_call(SYS_pipe2, lifeline, O_CLOEXEC))) {
    return false;
  }
  if (base::is_error(system_call(SYS_socketpair, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))) {
    (void)system_call(SYS_close, lifeline[0]);
    (void)system_call(SYS_close, lifeline[1]);
    return false;
  }
  fork_channel = {base::own(ends[0]), base::own(ends[1]), base::own(lifeline[1]), base::own(lifeline[0])};
  return true;
}

bool try_descriptors_for_fork() {
  if (is_forked_child()) {  // make_private_in_child() reads /proc/self/maps
    const long file = system_call(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC, 0);
    if (!base::is_error(file)) {
      (void)system_call(SYS_close, file);
    }
    return !base::is_error(file);
  }
  constexpr int kWanted = 5;  // two sockets, a pipe, and what the child sends
  long taken[kWanted];
  int count = 0;
  for (; count < kWanted; ++count) {
    taken[count] = system_call(SYS_fcntl, state.partition->descriptor, F_DUPFD_CLOEXEC, 0);
    if (base::is_error(taken[count])) {
      break;
    }
  }
  const bool all = count == kWanted;
  while (count > 0) {
    (void)system_call(SYS_close, taken[--count]);
  }
  return all;
}

void close_fork_channel() {
  for (const int descriptor :
       {fork_channel.parent_end, fork_channel.child_end, fork_channel.lifeline_write, fork_channel.lifeline_read}) {
    base::close_own(descriptor);
  }
  fork_channel = {};
}

void disarm_lifeline(int read_end) { (void)system_call(SYS_fcntl, read_end, F_SETFL, 0); }

bool write_all(int socket, const void* bytes, uint64_t count) {
  const char* at = static_cast<const char*>(bytes);
  while (count > 0) {
    const long sent = system_call(SYS_sendto, socket, at, count, MSG_NOSIGNAL, nullptr, 0);
    if (sent == -EINTR) {
      continue;
    }
    if (sent <= 0) {
      return false;
    }
    at += sent;
    count -= static_cast<uint64_t>(sent);
  }
  return true;
}

bool read_all(int socket, void* bytes, uint64_t count) {
  char* at = static_cast<char*>(bytes);
  while (count > 0) {
    const long got = system_call(SYS_recvfrom, socket, at, count, 0, nullptr, nullptr);
    if (got == -EINTR) {
      continue;
    }
    if (got <= 0) {
      return false;
    }
    at += got;
    count -= static_cast<uint64_t>(got);
  }
  return true;
}

void drop_held_copies() {
  if (held_copies.memory != nullptr) {
    base::give_back_memory(held_copies.memory, held_copies.room * kBlockBytes);
    base::give_back_memory(held_copies.blocks, held_copies.room * sizeof(uint64_t));
  }
  held_copies = {};
}

bool copy_held() {
  const uint64_t blocks = state.partition->committed.load(std::memory_order_relaxed) / kBlockBytes;
  uint64_t count = 0;
  for (uint64_t block = 0; block < blocks; ++block) {
    count += is_unprotected(block) ? 1 : 0;
  }
  if (count == 0) {
    return true;
  }
  held_copies.room = count;
  held_copies.memory = static_cast<char*>(base::reserve_memory(count * kBlockBytes));
  held_copies.blocks = static_cast<uint64_t*>(base::reserve_memory(count * sizeof(uint64_t)));
  if (held_copies.memory == nullptr || held_copies.blocks == nullptr) {
    held_copies = {};
    return false;
  }
  for (uint64_t block = 0; block < blocks && held_copies.count < count; ++block) {
    if (is_unprotected(block)) {
      memcpy(held_copies.memory + held_copies.count * kBlockBytes,
             reinterpret_cast<const char*>(state.partition->alias + block * kBlockBytes), kBlockBytes);
      held_copies.blocks[held_copies.count++] = block;
    }
  }
  return true;
}

void put_held_copies_in_place() {
  for (uint64_t index = 0; index < held_copies.count; ++index) {
    const View view = view_of_block(*state.partition, held_copies.blocks[index]);
    memcpy(reinterpret_cast<void*>(view.address), held_copies.memory + index * kBlockBytes, view.bytes);
  }
  drop_held_copies();
}

}  // namespace headroom::pager
