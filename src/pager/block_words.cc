// Changes of a block's word, and the reservation of room, that most of the pager needs.
#include "pager/block_words.h"

#include "pager/block_transitions.h"
#include "pager/state.h"
#include "trace/counters.h"

namespace headroom::pager {

using namespace arena;
using node::Member;
using trace::Counter;

bool reserve_blocks(uint64_t count) {
  if (!node::reserve(*state.session->ledger, *state.session->self, static_cast<int64_t>(count * kBlockBytes))) {
    return false;
  }
  state.waits_for_others = false;  // they gave
  return true;
}

void change_word(BlockWord& word, uint64_t clear, uint64_t set) {
  (void)make_transition(word, [=](uint64_t before) { return next::change_bits(before, clear, set); });
}

bool take_access(uint64_t block) {
  return make_transition(word_of(block), [](uint64_t word) { return next::take_access(word); });
}

uint64_t out_marks(uint64_t word) {
  trace::count(Counter::kBlocksTwiceOut, (word & (kOutOnce | kOutTwice)) == kOutOnce ? 1 : 0);
  return (word & kOutOnce) != 0 ? kOutTwice : kOutOnce;
}

bool is_written_remotely(View view) {
  const int32_t self = state.session->self->pid.load(std::memory_order_relaxed);
  for (const Member& member : state.session->ledger->used_members()) {
    // seq_cst: the writer stores its target before it touches memory, we protect before we look; one of us sees the other.
    if (member.remote_write.target.load(std::memory_order_seq_cst) == self && is_alive(member) &&
        view.address < member.remote_write.end.load(std::memory_order_relaxed) &&
        member.remote_write.begin.load(std::memory_order_relaxed) < view.address + view.bytes) {
      return true;
    }
  }
  return false;
}

}  // namespace headroom::pager
