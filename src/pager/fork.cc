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
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/kernel_abi.h"
#include "base/own_descriptors.h"
#include "base/passed_descriptors.h"
#include "pager/block_transitions.h"
#include "pager/block_words.h"
#include "pager/ended_transfers.h"
#include "pager/fork_channel.h"
#include "pager/fork_content.h"
#include "pager/fork_copies.h"
#include "pager/forked_children.h"
#include "pager/huge_pages.h"
#include "pager/single_pages.h"
#include "pager/state.h"
#include "trace/counters.h"

namespace headroom::pager {
namespace {

using namespace arena;
using base::system_call;
using trace::Counter;

/// A page that the child had is missing again. Either it was one of zeros, which the kernel takes out of a private mapping when
/// the parent punches its own; or the child has discarded it itself.
void give_zeros_again(Child& child, uint64_t block) { (void)copy_block(child, block, zeros_for_children()); }

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
  long error = map_in_child(child.fault_descriptor, view.address, view.bytes);
  if (error == -EFAULT) {
    // What was mapped is to be taken back all the same, so the block does not count as given.
    error = copy_to_child(child.fault_descriptor, view.address, content_of(block), view.bytes);
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
  forget_child(child);
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
  forget_child(child);
}

/// The child's first word: 'U' with its fault descriptor, or 'S' if it wants the content streamed.
void take_hello(Child& child) {
  int received[1] = {-1};
  const base::ReceivedDescriptors hello = base::receive_descriptors(child.socket, 0, received);
  if (hello.result == -EINTR || hello.result == -EAGAIN) {
    return;
  }
  if (hello.result <= 0) {
    forget_child(child);
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

}  // namespace

void wait_until_may_write(uint64_t block) {
  while (!give_children_copies(block)) {
    for (Child& child : forked_children) {
      if (child.used && child.fault_descriptor < 0) {
        take_hello(child);
      }
    }
    (void)collect_transfers();  // a shared block may be on its way to storage
  }
}

void serve_forked(int descriptor) {
  for (Child& child : forked_children) {
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
  for (Child& child : forked_children) {
    complete_living(child);
  }
}

base::Status prepare_fork() {
  trace::count(Counter::kForks);
  if (!prepare_fork_content() || !open_fork_channel()) {
    return base::Status::kNoMemory;
  }
  if (take_place_of_child() == nullptr) {
    static uint32_t completed = 0;  // too many at once: one of them gets all that is its
    complete_living(forked_children[completed++ % kMaxForkChildren]);
    if (take_place_of_child() == nullptr) {
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

}  // namespace headroom::pager
