// The children of fork() that have not got all of their memory, a place each; private to src/pager; fork.cc says what happens.
//
// Called by the pager's thread but where a function says otherwise.
#pragma once

#include <cstdint>

namespace headroom::pager {

inline constexpr int kMaxForkChildren = 64;

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

inline Child forked_children[kMaxForkChildren];

inline bool bit(const uint64_t* bits, uint64_t index) { return (bits[index / 64] >> (index % 64) & 1) != 0; }
inline void set_bit(uint64_t* bits, uint64_t index) { bits[index / 64] |= uint64_t{1} << (index % 64); }

/// Whether the block is one that the child still waits for: it had content at the fork, and has not been given.
inline bool lacks(const Child& child, uint64_t block) {
  return child.used && block < child.blocks && !bit(child.given, block) && !bit(child.zero, block);
}

/// Whether children may have the block's own pages mapped.
bool is_shared(uint64_t block);
/// Whether every living child has the block. Changes nothing.
bool is_given_to_all(uint64_t block);

/// Whether there are children that have not got everything. Any thread.
bool has_fork_children();
/// Descriptors to wait for (at most 2 * kMaxForkChildren); serve_forked() when one is readable.
int fork_descriptors(int* out);
/// In a forked child: closes its copies of what the parent keeps for its children.
void drop_children_in_child();

/// A place for the child that is about to be forked, with what is fresh now; nullptr if there is none, or no memory.
Child* take_place_of_child();

/// Lets go of the child, which is killed unless its lifeline is disarmed.
void forget_child(Child& child, bool disarm = true);

}  // namespace headroom::pager
