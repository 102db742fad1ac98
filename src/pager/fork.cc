// fork() while arena memory is in use: the child sees memory as it was at the fork.
//
// A shared mapping is not copied by fork, so the arena is left out of the child (MADV_DONTFORK) and given back there:
//
//   parent, before   every resident block is write-protected; what is fresh is noted: the child will see zeros there
//   child, after     maps the memfd privately, watches it with a userfaultfd of its own for missing *and minor* faults (with
//                    missing alone, a page that the child has only read would show the parent's later writes), and sends
//                    that descriptor to the parent's pager over a socket made before the fork
//   parent's pager   serves the child's faults by copying the block into it, from memory or from storage; and before the
//                    parent's first write to a block, or before its content is given up, copies the block into each child
//                    that has not got it
//
// The child's writes go to its own pages. A child that ends or calls exec() closes its end of the socket and is forgotten. If
// the parent ends in order first, everything that is left is copied into the child. Where there is no userfaultfd (engine
// sigsegv, or the child cannot have one) the content is streamed through the socket at once: right, but not free.
//
// posix_spawn, system, popen and vfork do not copy memory, never come here, and cost nothing.
#include "pager/fork.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/kernel_abi.h"
#include "base/log.h"
#include "pager/state.h"
#include "trace/counters.h"

namespace headroom::pager {
namespace {

using namespace arena;
using base::system_call;
using trace::Counter;

struct Child {
  bool used;
  int socket;            // readable at its end when the child ends
  int fault_descriptor;  // -1 until the child has sent it
  uint64_t blocks;       // of the partition, when it was forked
  uint64_t* given;       // bit a block: the child has it
  uint64_t* zero;        // bit a block: it was fresh at the fork
};

Child children[kMaxForkChildren];
int sockets[2] = {-1, -1};  // of the fork that is going on: ours, the child's
char* bounce = nullptr;     // one block, for content that is on storage
char* zeros = nullptr;

bool bit(const uint64_t* bits, uint64_t index) { return (bits[index / 64] >> (index % 64) & 1) != 0; }
void set_bit(uint64_t* bits, uint64_t index) { bits[index / 64] |= uint64_t{1} << (index % 64); }

uint64_t bitmap_bytes(uint64_t blocks) { return (blocks / 64 + 1) * sizeof(uint64_t); }

void forget(Child& child) {
  if (!child.used) {
    return;
  }
  (void)system_call(SYS_close, child.socket);
  if (child.fault_descriptor >= 0) {
    (void)system_call(SYS_close, child.fault_descriptor);
  }
  (void)system_call(SYS_munmap, child.given, bitmap_bytes(child.blocks));
  (void)system_call(SYS_munmap, child.zero, bitmap_bytes(child.blocks));
  child = Child{};
}

/// The block's content, wherever it is.
const char* content_of(uint64_t block) {
  while (state_of(word_of(block).load(std::memory_order_acquire)) == kReading) {
    if (!collect_transfers()) {
      pollfd waiting = {state.store->descriptor(), POLLIN, 0};
      (void)system_call(SYS_ppoll, &waiting, 1, nullptr, nullptr, 8);
    }
  }
  switch (state_of(word_of(block).load(std::memory_order_acquire))) {
    case kFresh:
      return zeros;
    case kStored: {
      const long bytes = system_call(SYS_pread64, state.file.descriptor, bounce, kBlockBytes, block * kBlockBytes);
      if (bytes != static_cast<long>(kBlockBytes)) {
        base::die("reading memory back from the storage in %s for a forked child failed: %s", base::settings().storage,
                  strerror(bytes < 0 ? static_cast<int>(-bytes) : EIO));
      }
      return bounce;
    }
    default:
      return reinterpret_cast<const char*>(state.partition->alias + block * kBlockBytes);
  }
}

/// Copies `bytes` to the child's `address`, leaving pages alone that the child has written itself. False: the child is gone.
bool copy_pages(int descriptor, uintptr_t address, const char* source, uint64_t bytes) {
  uint64_t done = 0;
  uint64_t step = bytes;
  while (done < bytes) {
    uffdio_copy request = {};
    request.dst = address + done;
    request.src = reinterpret_cast<uint64_t>(source + done);
    request.len = bytes - done < step ? bytes - done : step;
    const long result = system_call(SYS_ioctl, descriptor, UFFDIO_COPY, &request);
    if (!base::is_error(result)) {
      done += request.len;
      continue;
    }
    done += request.copy > 0 ? static_cast<uint64_t>(request.copy) : 0;
    if (result == -EEXIST) {
      done += kPageBytes;
    } else if (result == -ENOENT && step > kPageBytes) {
      step = kPageBytes;  // the child has changed rights on a part, or mapped something over it: page by page
    } else if (result == -ENOENT) {
      done += kPageBytes;
    } else if (result != -EAGAIN && result != -EINTR) {
      return false;
    }
  }
  uffdio_range range = {address, bytes};  // a thread may wait on a page that was there already
  (void)system_call(SYS_ioctl, descriptor, UFFDIO_WAKE, &range);
  return true;
}

void give(Child& child, uint64_t block) {
  const View view = view_of_block(*state.partition, block);
  const char* source = bit(child.zero, block) ? zeros : content_of(block);
  if (!child.used || bit(child.given, block)) {
    return;  // waiting for a transfer has served others, this child perhaps among them
  }
  if (!copy_pages(child.fault_descriptor, view.address, source, view.bytes)) {
    forget(child);
    return;
  }
  set_bit(child.given, block);
  trace::count(Counter::kForkBlocksCopied);
}

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

constexpr uint64_t kEndOfStream = UINT64_MAX;

/// Sends everything that is not zero through the socket; the child then has all and needs us no more.
void stream_to(Child& child) {
  for (uint64_t block = 0; block < child.blocks; ++block) {
    if (bit(child.zero, block)) {
      continue;
    }
    trace::count(Counter::kForkBlocksCopied);
    if (!write_all(child.socket, &block, sizeof block) || !write_all(child.socket, content_of(block), kBlockBytes)) {
      break;
    }
  }
  (void)write_all(child.socket, &kEndOfStream, sizeof kEndOfStream);
  forget(child);
}

/// The child's first word: 'U' with its fault descriptor, or 'S' if it wants the content streamed.
void take_hello(Child& child) {
  char byte = 0;
  iovec vector = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const long got = system_call(SYS_recvmsg, child.socket, &message, MSG_CMSG_CLOEXEC);
  if (got == -EINTR || got == -EAGAIN) {
    return;
  }
  if (got <= 0) {
    forget(child);
    return;
  }
  if (byte == 'S') {
    stream_to(child);
    return;
  }
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) {
    forget(child);
    return;
  }
  memcpy(&child.fault_descriptor, CMSG_DATA(header), sizeof(int));
  (void)write_all(child.socket, "k", 1);
}

void serve_child_faults(Child& child) {
  uffd_msg messages[16];
  const long bytes = system_call(SYS_read, child.fault_descriptor, messages, sizeof messages);
  for (long at = 0; at < bytes && child.used; at += static_cast<long>(sizeof(uffd_msg))) {
    const uffd_msg& message = messages[static_cast<size_t>(at) / sizeof(uffd_msg)];
    uint64_t offset = 0;
    if (message.event == UFFD_EVENT_PAGEFAULT &&
        find_offset(*state.partition, static_cast<uintptr_t>(message.arg.pagefault.address), offset)) {
      give(child, block_of(offset));
    }
  }
}

/// Takes the right to write back unless somebody holds the block for writing; true if it was there.
bool take_writable_away(uint64_t block) {
  BlockWord& word = word_of(block);
  uint64_t before = word.load(std::memory_order_acquire);
  do {
    if ((before & kWritable) == 0 || (before & kWriteHoldMask) != 0) {
      return false;
    }
  } while (!word.compare_exchange_weak(before, before & ~kWritable, std::memory_order_acq_rel));
  return true;
}

/// Copies of blocks that the kernel or others may write at any time (held for writing, or pinned), taken at the fork: such
/// writes are not seen, so the child cannot be given the content later. The child inherits the copies and puts them in place.
struct HeldCopies {
  char* memory = nullptr;
  uint64_t* blocks = nullptr;
  uint64_t count = 0;
  uint64_t room = 0;
};
HeldCopies held_copies;

void drop_held_copies() {
  if (held_copies.memory != nullptr) {
    (void)system_call(SYS_munmap, held_copies.memory, held_copies.room * kBlockBytes);
    (void)system_call(SYS_munmap, held_copies.blocks, held_copies.room * sizeof(uint64_t));
  }
  held_copies = {};
}

bool is_held_for_writing(uint64_t block) {
  const uint64_t word = word_of(block).load(std::memory_order_acquire);
  return (word & kWriteHoldMask) != 0 && state_of(word) == kResident;
}

bool copy_held() {
  const uint64_t blocks = state.partition->committed.load(std::memory_order_relaxed) / kBlockBytes;
  uint64_t count = 0;
  for (uint64_t block = 0; block < blocks; ++block) {
    count += is_held_for_writing(block) ? 1 : 0;
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
    if (is_held_for_writing(block)) {
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

/// Write-protects what can be written, so that the parent's next write to each block is seen. All blocks are looked at: those
/// that are being written out are in no list.
void protect_all() {
  const uint64_t blocks = state.partition->committed.load(std::memory_order_relaxed) / kBlockBytes;
  for (uint64_t block = 0; block < blocks; ++block) {
    if (take_writable_away(block)) {
      state.engine->protect(view_of_block(*state.partition, block));
    }
  }
}

Child* new_child(int socket) {
  for (Child& child : children) {
    if (child.used) {
      continue;
    }
    const uint64_t blocks = state.partition->committed.load(std::memory_order_relaxed) / kBlockBytes;
    auto* given = static_cast<uint64_t*>(base::reserve_memory(bitmap_bytes(blocks)));
    auto* zero = static_cast<uint64_t*>(base::reserve_memory(bitmap_bytes(blocks)));
    if (given == nullptr || zero == nullptr) {
      return nullptr;
    }
    for (uint64_t block = 0; block < blocks; ++block) {
      if (state_of(word_of(block).load(std::memory_order_relaxed)) == kFresh) {
        set_bit(zero, block);
      }
    }
    child = {true, socket, -1, blocks, given, zero};
    return &child;
  }
  return nullptr;
}

// --- the child's side --------------------------------------------------------------------------------------------------

bool watch_in_child(int descriptor, uintptr_t address, uint64_t bytes) {
  uffdio_register request = {};
  request.range = {address, bytes};
  request.mode = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_MINOR;
  return bytes == 0 || !base::is_error(system_call(SYS_ioctl, descriptor, UFFDIO_REGISTER, &request));
}

void map_in_child(uintptr_t address, uint64_t bytes, int descriptor, uint64_t offset) {
  const int flags = MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE | (descriptor < 0 ? MAP_ANONYMOUS : 0);
  if (bytes > 0) {
    (void)system_call(SYS_mmap, address, bytes, PROT_READ | PROT_WRITE, flags, descriptor, offset);
  }
}

template <typename Each>
void for_each_view(Each each) {
  const Partition& partition = *state.partition;
  each(partition.base, partition.committed.load(std::memory_order_relaxed), 0);
  const int regions = partition.static_region_count.load(std::memory_order_relaxed);
  for (int index = 0; index < regions; ++index) {
    const StaticRegion& region = partition.static_regions[index];
    each(region.address, region.bytes, region.offset);
  }
}

bool send_descriptor(int socket, int descriptor) {
  char byte = 'U';
  iovec vector = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
  return system_call(SYS_sendmsg, socket, &message, MSG_NOSIGNAL) == 1;
}

bool receive_by_faults(int socket) {
  if (state.engine->kind() == base::EngineChoice::kSigsegv) {
    return false;
  }
  const int descriptor = open_child_userfaultfd(!state.engine->serves_kernel());
  if (descriptor < 0) {
    return false;
  }
  bool watched = true;
  for_each_view([&](uintptr_t address, uint64_t bytes, uint64_t offset) {
    map_in_child(address, bytes, state.partition->descriptor, offset);
    watched = watched && watch_in_child(descriptor, address, bytes);
  });
  char answer = 0;
  // The descriptor stays open here too: were the parent to die, an access would wait rather than read zeros.
  return watched && send_descriptor(socket, descriptor) && read_all(socket, &answer, 1);
}

void receive_by_stream(int socket) {
  for_each_view([](uintptr_t address, uint64_t bytes, uint64_t) { map_in_child(address, bytes, -1, 0); });
  (void)write_all(socket, "S", 1);
  uint64_t block = 0;
  while (read_all(socket, &block, sizeof block) && block != kEndOfStream) {
    const View view = view_of_block(*state.partition, block);
    static char rest[kPageBytes];
    if (!read_all(socket, reinterpret_cast<void*>(view.address), view.bytes)) {
      break;
    }
    for (uint64_t left = kBlockBytes - view.bytes; left > 0;) {  // the end of a static region's last block
      const uint64_t piece = left < sizeof rest ? left : sizeof rest;
      if (!read_all(socket, rest, piece)) {
        break;
      }
      left -= piece;
    }
  }
  if (block != kEndOfStream) {
    base::die("a forked child could not receive its parent's memory");
  }
}

}  // namespace

bool may_write(uint64_t block) {
  for (Child& child : children) {
    if (!child.used || block >= child.blocks || bit(child.given, block) || bit(child.zero, block)) {
      continue;
    }
    if (child.fault_descriptor < 0) {
      return false;  // forked a moment ago; goes on when it has said hello or is gone
    }
    give(child, block);
  }
  return true;
}

void wait_until_may_write(uint64_t block) {
  while (!may_write(block)) {
    for (Child& child : children) {
      if (child.used && child.fault_descriptor < 0) {
        take_hello(child);
      }
    }
  }
}

int fork_descriptors(int* out) {
  int count = 0;
  for (const Child& child : children) {
    if (child.used) {
      out[count++] = child.socket;
      if (child.fault_descriptor >= 0) {
        out[count++] = child.fault_descriptor;
      }
    }
  }
  return count;
}

void serve_forked(int descriptor) {
  for (Child& child : children) {
    if (!child.used) {
      continue;
    }
    if (descriptor == child.fault_descriptor) {
      serve_child_faults(child);
    } else if (descriptor == child.socket) {
      if (child.fault_descriptor < 0) {
        take_hello(child);
      } else {
        forget(child);  // it speaks no more: it has ended or called exec()
      }
    }
  }
}

void complete_children() {
  for (Child& child : children) {
    if (child.used && child.fault_descriptor < 0) {
      take_hello(child);
    }
    for (uint64_t block = 0; child.used && block < child.blocks; ++block) {
      if (!bit(child.given, block)) {
        give(child, block);
      }
    }
  }
}

base::Status prepare_fork() {
  trace::count(Counter::kForks);
  if (bounce == nullptr) {
    bounce = static_cast<char*>(base::reserve_memory(kBlockBytes));
    zeros = static_cast<char*>(base::reserve_memory(kBlockBytes));
  }
  if (bounce == nullptr || zeros == nullptr ||
      base::is_error(system_call(SYS_socketpair, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets))) {
    sockets[0] = sockets[1] = -1;
    return base::Status::kNoMemory;
  }
  if (new_child(sockets[0]) == nullptr) {
    complete_children();  // too many at once: the living ones get all that is theirs
    for (Child& child : children) {
      if (child.used) {
        forget(child);
      }
    }
    if (new_child(sockets[0]) == nullptr) {
      return base::Status::kNoMemory;
    }
  }
  protect_all();
  return copy_held() ? base::Status::kOk : base::Status::kNoMemory;
}

void finish_fork_in_parent() {
  drop_held_copies();
  if (sockets[1] >= 0) {
    (void)system_call(SYS_close, sockets[1]);
    sockets[1] = -1;
  }
}

void finish_fork_in_child() {
  const int socket = sockets[1];
  if (socket >= 0) {
    (void)system_call(SYS_close, sockets[0]);
    if (!receive_by_faults(socket)) {
      receive_by_stream(socket);
    }
    put_held_copies_in_place();
  }
  for (Child& child : children) {
    if (child.used) {
      (void)system_call(SYS_close, child.fault_descriptor);
      if (child.socket != sockets[0]) {
        (void)system_call(SYS_close, child.socket);
      }
      child.used = false;
    }
  }
  (void)system_call(SYS_close, state.file.descriptor);
  (void)system_call(SYS_close, state.partition->descriptor);
  if (state.engine->descriptor() >= 0) {
    (void)system_call(SYS_close, state.engine->descriptor());
  }
}

void make_private_in_child() {
  // Block by block: the arena's addresses of blocks that are static data are nobody's, and nobody would serve them.
  const uint64_t blocks = state.partition->committed.load(std::memory_order_relaxed) / kBlockBytes;
  for (uint64_t block = 0; block < blocks; ++block) {
    const View view = view_of_block(*state.partition, block);
    for (uint64_t at = 0; at < view.bytes; at += kPageBytes) {
      (void)*reinterpret_cast<volatile char*>(view.address + at);
    }
  }
}

}  // namespace headroom::pager
