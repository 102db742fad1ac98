// See lost_claims.h.
#include "node/lost_claims.h"

namespace headroom::node {
namespace {

constexpr int kTries = 100;
constexpr int kLooks = 4;

struct Words {
  int64_t free_bytes;
  int64_t reserved_bytes;
  uint32_t held_slots;
  uint32_t slots;
  uint64_t states;  // of all members, in one number
  bool operator==(const Words&) const = default;
};

Words read(const Ledger& ledger) {
  Words words = {ledger.free_bytes.load(std::memory_order_acquire), 0, ledger.held_slots.load(std::memory_order_acquire), 0, 0};
  for (const Member& member : ledger.used_members()) {
    const uint32_t word = member.state.load(std::memory_order_acquire);
    const MemberState state = state_in(word);
    if (state == MemberState::kAlive || state == MemberState::kLeaving) {
      words.reserved_bytes += member.memory.reserved_bytes.load(std::memory_order_acquire);
      words.slots += member.turns.slots.load(std::memory_order_acquire);
    }
    words.states = words.states * 31 + word;
  }
  return words;
}

bool is_first(const Ledger& ledger, const Member& self) {
  for (const Member& member : ledger.used_members()) {
    if (&member == &self || is_alive(member)) {
      return &member == &self;
    }
  }
  return false;
}

}  // namespace

bool LostClaims::find(const Ledger& ledger, Difference& found) {
  Words before = read(ledger);
  for (int left = kTries; left > 0; --left) {
    const Words now = read(ledger);
    if (now == before) {
      found = {ledger.budget - now.free_bytes - now.reserved_bytes, now.held_slots - now.slots, now.states};
      return true;
    }
    before = now;
  }
  return false;
}

bool LostClaims::give_back(Ledger& ledger, const Member& self) {
  if (ledger.ended.load(std::memory_order_relaxed) == 0 || !is_first(ledger, self)) {
    return false;
  }
  Difference now = {};
  if (!find(ledger, now)) {
    return false;
  }
  seen_ = now == last_ ? seen_ + 1 : 1;
  last_ = now;
  if (seen_ < kLooks || (now.bytes == 0 && now.slots == 0)) {
    return false;
  }
  seen_ = 0;
  // A claim that a process has been at work on for so long, since it is stopped just there, makes a difference again when the
  // process goes on, and is found in the same way.
  ledger.free_bytes.fetch_add(now.bytes, std::memory_order_acq_rel);
  ledger.held_slots.fetch_sub(now.slots, std::memory_order_acq_rel);
  return true;
}

}  // namespace headroom::node
