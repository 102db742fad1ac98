// The pager's part in turns: it counts the blocks that came back within one, and asks whether it is this process's turn. The
// turns themselves are the scheduler's.
#include "pager/turns.h"

#include <algorithm>

#include "base/own_threads.h"
#include "pager/pager.h"
#include "pager/random_access.h"
#include "pager/requests.h"
#include "pager/shares.h"
#include "pager/state.h"

namespace headroom::pager {
namespace {

constexpr uint64_t kMostInField = (1 << 24) - 1;

std::atomic<const TurnRules*> turn_rules{nullptr};

}  // namespace

void follow_turns() {
  RandomAccess& random = state.random_access;
  const uint64_t turn = state.turns.load(std::memory_order_relaxed) & UINT16_MAX;
  if (turn != state.came_back.load(std::memory_order_relaxed) >> 48) {
    state.resident.begin_turn();
    random.begin_turn();
    state.needed_in_turn.store(0, std::memory_order_relaxed);
  }
  // Pages that were read alone count when many of them are wanted again and again, not when there are just very many.
  const bool again = random.pages_came_back() > random.pages_read_in_turn() / 3;
  const uint64_t came_back = state.resident.came_back() + (again ? random.pages_came_back() / kPagesOfBlock : 0);
  const int64_t bytes = bytes_of_blocks(*state.session->self);
  const uint64_t have = bytes > 0 ? static_cast<uint64_t>(bytes) / arena::kBlockBytes : 0;
  const uint64_t read_alone = again ? random.pages_read_in_turn() / kPagesOfBlock : 0;
  const uint64_t missing = read_alone > have ? read_alone - have : 0;
  if (state.armed && came_back > have / kPartThatMayComeBack) {
    start_wanting_all();
  }
  const auto as_field = [](uint64_t blocks) { return std::min(blocks, kMostInField); };
  state.came_back.store(turn << 48 | as_field(state.resident.left_again() + missing) << 24 | as_field(came_back),
                        std::memory_order_relaxed);
}

void begin_turn() { state.turns.store(state.turns.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }

CameBack came_back_in_turn() {
  const uint64_t known = state.came_back.load(std::memory_order_relaxed);
  if (known >> 48 != (state.turns.load(std::memory_order_relaxed) & UINT16_MAX)) {
    return {0, 0};  // nothing has happened in this one
  }
  const auto bytes = [](uint64_t blocks) { return static_cast<int64_t>((blocks & kMostInField) * arena::kBlockBytes); };
  return {bytes(known), bytes(known >> 24)};
}

int64_t needed_in_turn() { return state.needed_in_turn.load(std::memory_order_relaxed); }

void follow_turn_rules(const TurnRules& rules) { turn_rules.store(&rules, std::memory_order_release); }

bool accesses_wait() { return state.waiting.count() > 0; }

void set_turn_cut(bool cut) { state.turn_is_cut.store(cut, std::memory_order_release); }

void set_turn_watched(bool watched) {
  // An exchange in any case: the thread that ends the watching after a wish for it so sees the reason for the wish, and can
  // look once more.
  if (state.turn_is_watched.exchange(watched, std::memory_order_acq_rel) != watched && watched && !base::on_own_thread()) {
    nudge();  // the pager's thread may be asleep
  }
}

bool is_turn_cut() { return state.turn_is_cut.load(std::memory_order_acquire); }

bool must_wait_for_turn(int32_t thread, bool may_begin) {
  const TurnRules* rules = turn_rules.load(std::memory_order_acquire);
  return rules != nullptr && rules->must_wait(thread, may_begin);
}

void look_before_sample() {
  if (const TurnRules* rules = turn_rules.load(std::memory_order_acquire)) {
    rules->before_sample();
  }
}

void look_at_turn() {
  if (is_turn_cut() || state.turn_is_watched.load(std::memory_order_acquire)) {
    turn_rules.load(std::memory_order_acquire)->look();
  }
}

}  // namespace headroom::pager
