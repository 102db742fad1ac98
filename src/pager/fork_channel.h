// What passes between parent and child of a fork; private to the two sides, fork.cc and fork_child.cc.
#pragma once

#include <cstdint>

namespace headroom::pager {

/// The descriptors of the fork that is going on; -1: none.
struct ForkChannel {
  int parent_end = -1;  // of a pair of stream sockets
  int child_end = -1;
  int lifeline_write = -1;  // the parent's end of a pipe: when it closes, the kernel kills the child, unless
  int lifeline_read = -1;   // it was disarmed here before, which both sides can do
};
extern ForkChannel fork_channel;

/// From now on nobody is killed when the pipe closes. `read_end` stays open.
void disarm_lifeline(int read_end);
void close_fork_channel();

/// False: no descriptors.
bool open_fork_channel();

/// All bytes, or false: the other side is gone.
bool write_all(int socket, const void* bytes, uint64_t count);
bool read_all(int socket, void* bytes, uint64_t count);

/// Follows the last block where the content is streamed.
inline constexpr uint64_t kEndOfStream = UINT64_MAX;

/// Copies of blocks that the kernel or others may write at any time (held for writing, or pinned), taken at the fork: such
/// writes are not seen, so the child cannot be given the content later. The child inherits the copies and puts them in place.
bool copy_held();
void drop_held_copies();
void put_held_copies_in_place();

}  // namespace headroom::pager
