// See retiring.h.
#include "node/retiring.h"

#include "base/system_calls.h"

namespace headroom::node {
namespace {

/// Tells all other members that there is room, and that something has changed.
void tell_everybody(const Session& session, const Member& of) {
  for (int index = 0; Member & other : session.ledger->used_members()) {
    const int place = index++;
    if (&other != &of && is_alive(other)) {
      other.turns.slot_bell.fetch_add(1, std::memory_order_release);
      base::futex_wake(&other.turns.slot_bell, 1, true);
      ring(session, place);
    }
  }
}

}  // namespace

bool move_state(Member& member, MemberState from, MemberState to) {
  uint32_t word = member.state.load(std::memory_order_acquire);
  return state_in(word) == from && member.state.compare_exchange_strong(word, in_state(word, to), std::memory_order_acq_rel);
}

bool take_off(Ledger& ledger, Member& member) {
  return member.counted.exchange(0, std::memory_order_acq_rel) == 1 &&
         ledger.alive.fetch_sub(1, std::memory_order_acq_rel) == 1;
}

bool put_on(Ledger& ledger, Member& member) {
  const uint32_t before = ledger.alive.fetch_add(1, std::memory_order_acq_rel);
  member.counted.store(1, std::memory_order_release);  // pairs with take_off()
  return before == ledger.cores();
}

namespace {

/// Takes back the claims of a process whose member is kRetired, made so by this process or by one that has ended since. The
/// place is free only when that is done: a process that took it before would lose its own claims. A member that is told of it
/// finds it so.
void finish_retiring(const Session& session, Member& member) {
  Ledger& ledger = *session.ledger;
  const uint32_t word = member.state.load(std::memory_order_acquire);
  release(ledger, member, member.memory.reserved_bytes.load(std::memory_order_relaxed));
  note_beyond(ledger, member, 0);
  member.remote_write.target.store(0, std::memory_order_release);
  ledger.held_slots.fetch_sub(member.turns.slots.exchange(0, std::memory_order_acq_rel), std::memory_order_acq_rel);
  (void)take_off(ledger, member);
  ledger.ended.store(1, std::memory_order_relaxed);
  const auto index = static_cast<int>(&member - ledger.members);
  for (Member& other : ledger.used_members()) {  // it may have ended in the middle of this
    if (&other != &member && is_retired_by(other.state.load(std::memory_order_acquire), index)) {
      finish_retiring(session, other);
    }
  }
  if (next_in(word) == MemberState::kDied) {
    ledger.lost_at_ns.store(base::monotonic_ns(), std::memory_order_release);
  }
  member.state.store(in_state(word, next_in(word)), std::memory_order_release);
  tell_everybody(session, member);
}

}  // namespace

bool retire(const Session& session, Member& member, int process, MemberState from, MemberState to) {
  // acquire: pairs with the release in join_session(), so the pid is no older.
  uint32_t word = member.state.load(std::memory_order_acquire);
  if (state_in(word) != from || member.pid.load(std::memory_order_relaxed) != process ||
      !member.state.compare_exchange_strong(word, in_retirement(word, to, session.index), std::memory_order_acq_rel)) {
    return false;
  }
  finish_retiring(session, member);
  return true;
}

}  // namespace headroom::node
