// fork() while arena memory is in use: the child sees memory as it was at the fork.
//
// A shared mapping is not copied by fork, so the arena is left out of the child (MADV_DONTFORK) and given back there:
//
//   parent, before   every resident block is write-protected; what is fresh is noted: the child will see zeros there
//   child, after     maps the memfd privately, watches it with a userfaultfd of its own for missing *and minor* faults (with
//                    missing alone, a page that the child has only read would show the parent's later writes), and sends
//                    that descriptor to the parent's pager over a socket made before the fork
//   parent's pager   serves the child's faults: of a block that is in memory, and that nobody changes or holds, the child maps
//                    the same pages, read-only (the block is *shared* then); else the block is copied into it, from memory or
//                    from storage. Before the parent's first write to a block, or before its content is given up, the block is
//                    copied into each child that has not got it
//
// To stop sharing a block its content is saved and its memory punched, which takes it out of all mappings, the children's too,
// but for pages that they have written; then each child gets a copy, and the block its memory back. That is as when a block is
// evicted and read again at once, so the same rule holds: not while somebody holds it. A shared block counts as absent for
// whatever wants to hold it (hold.cc, direct/peer_hold.cc), so that the pager stops the sharing first; and it never becomes
// shared while it is held.
//
// The child's writes go to its own pages. When its end of the socket closes it gets everything that is left, at once: a child
// that has ended or called exec() has no memory to copy into and is forgotten, one that has only closed its descriptors goes
// on. The same happens when the parent ends in order first. If the parent is killed, nobody has what the child still needs: it
// is killed too, by the kernel (arm_lifeline in fork_child.cc). Where there is no userfaultfd (engine sigsegv, or the child
// cannot have one) the content is streamed through the socket at once: right, but not free.
//
// posix_spawn, system, popen and vfork do not copy memory, never come here, and cost nothing.
#include "pager/fork.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "arena/whole_blocks.h"
#include "base/kernel_abi.h"
#include "base/log.h"
#include "base/own_descriptors.h"
#include "base/passed_descriptors.h"
#include "pager/block_transitions.h"
#include "pager/checksums.h"
#include "pager/fork_channel.h"
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
  int lifeline;          // writing end of a pipe; if it closes, the child is killed
  int lifeline_read;     // the other end; disarmed here before we let go of the child
  uint64_t blocks;       // of the partition, when it was forked
  uint64_t* given;       // bit a block: the child has it
  uint64_t* zero;        // bit a block: it was fresh at the fork
};

Child children[kMaxForkChildren];
std::atomic<int> living_children{0};
char* bounce = nullptr;  // one block, for content that is on storage
char* moved = nullptr;   // one block, of which sharing ends
char* zeros = nullptr;

bool bit(const uint64_t* bits, uint64_t index) { return (bits[index / 64] >> (index % 64) & 1) != 0; }
void set_bit(uint64_t* bits, uint64_t index) { bits[index / 64] |= uint64_t{1} << (index % 64); }

uint64_t bitmap_bytes(uint64_t blocks) { return (blocks / 64 + 1) * sizeof(uint64_t); }

/// Lets go of the child. It is killed unless its lifeline is disarmed.
void forget(Child& child, bool disarm = true) {
  if (!child.used) {
    return;
  }
  if (disarm) {
    disarm_lifeline(child.lifeline_read);
  }
  base::close_own(child.socket);
  base::close_own(child.lifeline);
  base::close_own(child.lifeline_read);
  base::close_own(child.fault_descriptor);
  base::give_back_memory(child.given, bitmap_bytes(child.blocks));
  base::give_back_memory(child.zero, bitmap_bytes(child.blocks));
  child = Child{};
  living_children.fetch_sub(1, std::memory_order_release);
}

/// Reads a block that is on storage into `bounce`; 0, or -errno.
long read_back(const StorePlace& place) {
  for (uint64_t done = 0; done < kBlockBytes;) {
    const long bytes = system_call(SYS_pread64, place.descriptor, bounce + done, kBlockBytes - done, place.offset + done);
    if (base::is_error(bytes) && bytes != -EINTR) {
      return bytes;
    }
    const uint64_t read = base::is_error(bytes) ? 0 : static_cast<uint64_t>(bytes) / kPageBytes * kPageBytes;
    if (read == 0 && bytes != -EINTR) {
      return -EIO;
    }
    trace::count(trace::Counter::kBytesRead, read);
    done += read;
  }
  return 0;
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
    case kStored:
    case kSinglePages: {
      const StorePlace place = place_of(state.files, block * kBlockBytes);
      const long failed = read_back(place);
      const bool has_pages = state_of(word_of(block).load(std::memory_order_acquire)) == kSinglePages;
      const bool right =
          has_pages ? absent_pages_are_right(block, bounce) : is_what_was_written(block * kBlockBytes, bounce, kBlockBytes);
      if (failed != 0 || !right) {
        base::die("reading memory back from the storage in %s for a forked child failed: %s", base::settings().storage,
                  strerror(failed != 0 ? static_cast<int>(-failed) : EIO));
      }
      if (has_pages) {
        overlay_pages(block, bounce);
      }
      return bounce;
    }
    default:
      return reinterpret_cast<const char*>(state.partition->alias + block * kBlockBytes);
  }
}

/// One step of copy_pages: what was done is added to `done`.
long copy_step(int descriptor, uintptr_t address, const char* source, uint64_t bytes, uint64_t& done) {
  if (source == zeros) {  // the zero page: costs the child nothing
    uffdio_zeropage request = {};
    request.range = {address, bytes};
    const long result = system_call(SYS_ioctl, descriptor, UFFDIO_ZEROPAGE, &request);
    done += request.zeropage > 0 ? static_cast<uint64_t>(request.zeropage) : 0;
    return result;
  }
  uffdio_copy request = {};
  request.dst = address;
  request.src = reinterpret_cast<uint64_t>(source);
  request.len = bytes;
  const long result = system_call(SYS_ioctl, descriptor, UFFDIO_COPY, &request);
  done += request.copy > 0 ? static_cast<uint64_t>(request.copy) : 0;
  return result;
}

/// Copies `bytes` to the child's `address`, leaving pages alone that the child has written itself. 0, or -errno; -ESRCH: the
/// child is gone.
long copy_pages(int descriptor, uintptr_t address, const char* source, uint64_t bytes) {
  uint64_t done = 0;
  uint64_t step = bytes;
  while (done < bytes) {
    const uint64_t left = bytes - done;
    const uint64_t now = std::min(left, step);
    const long result = copy_step(descriptor, address + done, source == zeros ? zeros : source + done, now, done);
    if (!base::is_error(result)) {
      continue;
    }
    if (result == -EEXIST) {
      done += kPageBytes;
    } else if (result == -ENOENT && step > kPageBytes) {
      step = kPageBytes;  // the child has changed rights on a part, or mapped something over it: page by page
    } else if (result == -ENOENT) {
      done += kPageBytes;
    } else if (result != -EAGAIN && result != -EINTR) {
      return result;
    }
  }
  uffdio_range range = {address, bytes};  // a thread may wait on a page that was there already
  (void)system_call(SYS_ioctl, descriptor, UFFDIO_WAKE, &range);
  return 0;
}

/// False if the child is gone, or had to be killed.
/// It has ended, or does without what it needs, and is ended.
void forget_after(Child& child, long error) {
  if (error != -ESRCH && child.fault_descriptor >= 0) {
    base::log_warning("memory could not be given to a forked child (%s), so it is killed", strerror(static_cast<int>(-error)));
    forget(child, false);
  } else {
    forget(child);
  }
}

bool copy_block(Child& child, uint64_t block, const char* source) {
  const View view = view_of_block(*state.partition, block);
  const long error = copy_pages(child.fault_descriptor, view.address, source, view.bytes);
  if (error != 0) {
    forget_after(child, error);
  }
  return error == 0;
}

void give_copy(Child& child, uint64_t block) {
  const char* source = bit(child.zero, block) ? zeros : content_of(block);
  if (!child.used || bit(child.given, block)) {
    return;  // waiting for a transfer has served others, this child perhaps among them
  }
  if (copy_block(child, block, source)) {
    set_bit(child.given, block);
    trace::count(Counter::kForkBlocksCopied);
  }
}

/// A page that the child had is missing again. Either it was one of zeros, which the kernel takes out of a private mapping when
/// the parent punches its own; or the child has discarded it itself.
void give_zeros_again(Child& child, uint64_t block) { (void)copy_block(child, block, zeros); }

/// Maps the block's own pages at the child's `address`, but for those that the child has written itself. 0, or -errno: -EFAULT
/// if a page is not there.
long map_pages(int descriptor, uintptr_t address, uint64_t bytes) {
  uint64_t done = 0;
  uint64_t step = bytes;
  while (done < bytes) {
    uffdio_continue request = {};
    request.range = {address + done, bytes - done < step ? bytes - done : step};
    const long result = system_call(SYS_ioctl, descriptor, UFFDIO_CONTINUE, &request);
    done += request.mapped > 0 ? static_cast<uint64_t>(request.mapped) : 0;
    if (!base::is_error(result)) {
      continue;
    }
    if (result == -EEXIST || (result == -ENOENT && step == kPageBytes)) {
      done += kPageBytes;
    } else if (result == -ENOENT) {
      step = kPageBytes;  // the child has changed rights on a part, or mapped something over it: page by page
    } else if (result != -EAGAIN && result != -EINTR) {
      return result;
    }
  }
  uffdio_range range = {address, bytes};
  (void)system_call(SYS_ioctl, descriptor, UFFDIO_WAKE, &range);
  return 0;
}

bool is_shared(uint64_t block) { return (word_of(block).load(std::memory_order_acquire) & kShared) != 0; }

/// Whether the block may be mapped in children from now on.
bool start_sharing(uint64_t block) {
  return is_shared(block) || (set_apart(block) && !is_written_remotely(view_of_block(*state.partition, block)) &&
                              make_transition(word_of(block), next::begin_sharing));
}

/// Lets the child map the block; false if it is to get a copy.
bool share(Child& child, uint64_t block) {
  if (bit(child.zero, block) || !start_sharing(block)) {
    return false;
  }
  const View view = view_of_block(*state.partition, block);
  long error = map_pages(child.fault_descriptor, view.address, view.bytes);
  if (error == -EFAULT) {
    // What was mapped is to be taken back all the same, so the block does not count as given.
    error = copy_pages(child.fault_descriptor, view.address, content_of(block), view.bytes);
  }
  if (error == 0) {
    trace::count(Counter::kForkBlocksShared);
  } else {
    forget_after(child, error);
  }
  return true;
}

/// Whether the child has ended, or become another program: it has no memory any more.
bool is_gone(const Child& child) {
  uffdio_writeprotect nothing = {};
  nothing.range = {state.partition->base, kPageBytes};
  return system_call(SYS_ioctl, child.fault_descriptor, UFFDIO_WRITEPROTECT, &nothing) == -ESRCH;
}

void stop_sharing_at_last(uint64_t block) {
  while (!stop_sharing(block)) {
    (void)collect_transfers();
  }
}

/// Gives the child all that it has not got, and lets go of it.
void complete(Child& child) {
  for (uint64_t block = 0; child.used && !is_gone(child) && block < child.blocks; ++block) {
    if (bit(child.given, block)) {
      continue;
    }
    if (is_shared(block)) {
      stop_sharing_at_last(block);
    }
    if (child.used && !bit(child.given, block)) {
      give_copy(child, block);
    }
  }
  forget(child);
}

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
  int received[1] = {-1};
  const base::ReceivedDescriptors hello = base::receive_descriptors(child.socket, 0, received);
  if (hello.result == -EINTR || hello.result == -EAGAIN) {
    return;
  }
  if (hello.result <= 0) {
    forget(child);
    return;
  }
  if (hello.byte == 'S') {
    stream_to(child);
    return;
  }
  if (!hello.has_all) {
    (void)write_all(child.socket, "n", 1);  // no descriptor is left here: it asks for the content then
    return;
  }
  child.fault_descriptor = base::own(received[0]);
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
      const uint64_t block = block_of(offset);
      if (bit(child.given, block)) {
        give_zeros_again(child, block);
      } else if (!share(child, block)) {
        give_copy(child, block);
      }
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

/// Write-protects what can be written, so that the parent's next write to each block is seen. All blocks are looked at: those
/// that are being written out are in no list.
void protect_all() {
  const uint64_t blocks = state.partition->committed.load(std::memory_order_relaxed) / kBlockBytes;
  for (uint64_t block = 0; block < blocks; ++block) {
    const bool has_pages = state_of(word_of(block).load(std::memory_order_relaxed)) == kSinglePages || is_being_filled(block);
    if (take_writable_away(block) || has_pages) {
      state.engine->protect(view_of_block(*state.partition, block));
    }
  }
}

Child* new_child() {
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
    child = {true, fork_channel.parent_end, -1, fork_channel.lifeline_write, fork_channel.lifeline_read, blocks, given, zero};
    living_children.fetch_add(1, std::memory_order_release);
    return &child;
  }
  return nullptr;
}

}  // namespace

bool give_children_copies(uint64_t block) {
  for (Child& child : children) {
    if (!child.used || block >= child.blocks || bit(child.given, block) || bit(child.zero, block)) {
      continue;
    }
    if (child.fault_descriptor < 0) {
      return false;  // forked a moment ago; goes on when it has said hello or is gone
    }
  }
  if (is_shared(block)) {
    return stop_sharing(block);
  }
  for (Child& child : children) {
    if (child.used && block < child.blocks && !bit(child.given, block) && !bit(child.zero, block)) {
      give_copy(child, block);
    }
  }
  return true;
}

bool is_given_to_all(uint64_t block) {
  for (const Child& child : children) {
    if (child.used && block < child.blocks && !bit(child.given, block) && !bit(child.zero, block)) {
      return false;
    }
  }
  return !is_shared(block);
}

bool stop_sharing(uint64_t block) {
  const uint64_t word = word_of(block).load(std::memory_order_acquire);
  if ((word & kShared) == 0) {
    return true;
  }
  bool may_be_mapped = false;  // one that has not said hello yet has mapped nothing, and is given the block later
  for (const Child& child : children) {
    may_be_mapped = may_be_mapped || (child.used && child.fault_descriptor >= 0 && block < child.blocks &&
                                      !bit(child.given, block) && !bit(child.zero, block));
  }
  if (!may_be_mapped) {  // all who did are gone, or have got it
    change_word(word_of(block), kShared, 0);
    return true;
  }
  if (state_of(word) == kWriting) {
    return false;
  }
  auto* const memory = reinterpret_cast<char*>(state.partition->alias + block * kBlockBytes);
  memcpy(moved, memory, kBlockBytes);
  punch(*state.partition, block, 1);
  for (Child& child : children) {
    if (child.used && child.fault_descriptor >= 0 && block < child.blocks && !bit(child.given, block) &&
        !bit(child.zero, block) && copy_block(child, block, moved)) {
      set_bit(child.given, block);
      trace::count(Counter::kForkBlocksCopied);
    }
  }
  if (make_whole(*state.partition, block, {block, 1}) != base::Status::kOk) {
    die_without_memory();
  }
  memcpy(memory, moved, kBlockBytes);
  if ((word & kMapped) != 0) {
    state.engine->map(view_of_block(*state.partition, block), false);  // what was mapped is said to be
  }
  change_word(word_of(block), kShared, 0);  // last: until then holders ask
  return true;
}

void wait_until_may_write(uint64_t block) {
  while (!give_children_copies(block)) {
    for (Child& child : children) {
      if (child.used && child.fault_descriptor < 0) {
        take_hello(child);
      }
    }
    (void)collect_transfers();  // a shared block may be on its way to storage
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
        complete(child);
      }
    }
  }
}

void complete_living(Child& child) {
  if (child.used && child.fault_descriptor < 0) {
    take_hello(child);
  }
  complete(child);
}

void complete_children() {
  for (Child& child : children) {
    complete_living(child);
  }
}

base::Status prepare_fork() {
  trace::count(Counter::kForks);
  if (bounce == nullptr) {
    bounce = static_cast<char*>(base::reserve_memory(kBlockBytes));
    zeros = static_cast<char*>(base::reserve_memory(kBlockBytes));
    moved = static_cast<char*>(base::reserve_memory(kBlockBytes));
  }
  if (bounce == nullptr || zeros == nullptr || moved == nullptr || !open_fork_channel()) {
    return base::Status::kNoMemory;
  }
  if (new_child() == nullptr) {
    static uint32_t completed = 0;  // too many at once: one of them gets all that is its
    complete_living(children[completed++ % kMaxForkChildren]);
    if (new_child() == nullptr) {
      close_fork_channel();
      return base::Status::kNoMemory;
    }
  }
  protect_all();
  return copy_held() ? base::Status::kOk : base::Status::kNoMemory;
}

void finish_fork_in_parent() {
  drop_held_copies();
  if (fork_channel.child_end >= 0) {
    base::close_own(fork_channel.child_end);
    fork_channel = {};  // the rest is the new child's
  }
}

bool has_fork_children() { return living_children.load(std::memory_order_acquire) > 0; }

void drop_children_in_child() {
  for (Child& child : children) {
    if (child.used) {
      base::close_own(child.fault_descriptor);
      if (child.socket != fork_channel.parent_end) {
        base::close_own(child.socket);
        base::close_own(child.lifeline);
        base::close_own(child.lifeline_read);
      }
      child.used = false;
    }
  }
}

}  // namespace headroom::pager
