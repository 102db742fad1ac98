// See forked_children.h.
#include "pager/forked_children.h"

#include <atomic>

#include "base/own_descriptors.h"
#include "base/system_calls.h"
#include "pager/fork_channel.h"
#include "pager/state.h"

namespace headroom::pager {
namespace {

using namespace arena;

std::atomic<int> living_children{0};

uint64_t bitmap_bytes(uint64_t blocks) { return (blocks / 64 + 1) * sizeof(uint64_t); }

}  // namespace

Child* take_place_of_child() {
  for (Child& child : forked_children) {
    if (child.used) {
      continue;
    }
    const uint64_t blocks = state.partition->committed.load(std::memory_order_relaxed) / kBlockBytes;
    auto* given = static_cast<uint64_t*>(base::reserve_memory(bitmap_bytes(blocks)));
    auto* zero = static_cast<uint64_t*>(base::reserve_memory(bitmap_bytes(blocks)));
    if (given == nullptr || zero == nullptr) {
      base::give_back_memory(given, bitmap_bytes(blocks));
      base::give_back_memory(zero, bitmap_bytes(blocks));
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

void forget_child(Child& child, bool disarm) {
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

int fork_descriptors(int* out) {
  int count = 0;
  for (const Child& child : forked_children) {
    if (child.used) {
      out[count++] = child.socket;
      if (child.fault_descriptor >= 0) {
        out[count++] = child.fault_descriptor;
      }
    }
  }
  return count;
}

bool is_shared(uint64_t block) { return (word_of(block).load(std::memory_order_acquire) & kShared) != 0; }

bool is_given_to_all(uint64_t block) {
  for (const Child& child : forked_children) {
    if (lacks(child, block)) {
      return false;
    }
  }
  return !is_shared(block);
}

bool has_fork_children() { return living_children.load(std::memory_order_acquire) > 0; }

void drop_children_in_child() {
  for (Child& child : forked_children) {
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
