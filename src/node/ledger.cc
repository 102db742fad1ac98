// Reservation of memory in the node's shared ledger; see ledger.h for the invariants.
#include "node/ledger.h"

#include "base/system_calls.h"

namespace headroom::node {

namespace {

void raise(std::atomic<int64_t>& peak, int64_t value) {
  int64_t seen = peak.load(std::memory_order_relaxed);
  while (value > seen && !peak.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

void note_peak(Ledger& ledger, int64_t free_now) {
  const int64_t in_use = ledger.budget - free_now;
  raise(ledger.peak_reserved_bytes, in_use);
  raise(ledger.peak_resident_bytes, in_use + ledger.beyond_bytes.load(std::memory_order_relaxed));
}

}  // namespace

bool reserve(Ledger& ledger, Member& member, int64_t bytes) {
  int64_t free_now = ledger.free_bytes.load(std::memory_order_relaxed);
  do {
    if (free_now < bytes) {
      return false;
    }
    // acq_rel: pairs with release() of the member that freed the memory, so that its punching happened before our filling.
  } while (!ledger.free_bytes.compare_exchange_weak(free_now, free_now - bytes, std::memory_order_acq_rel,
                                                    std::memory_order_relaxed));
  member.memory.reserved_bytes.fetch_add(bytes, std::memory_order_relaxed);
  note_peak(ledger, free_now - bytes);
  return true;
}

void take(Ledger& ledger, Member& member, int64_t bytes) {
  // In this order, as in reserve() and release(): a process that is killed in between leaves less free than there is, not more.
  note_peak(ledger, ledger.free_bytes.fetch_sub(bytes, std::memory_order_acq_rel) - bytes);
  member.memory.reserved_bytes.fetch_add(bytes, std::memory_order_relaxed);
}

void release(Ledger& ledger, Member& member, int64_t bytes) {
  if (bytes == 0) {
    return;
  }
  member.memory.reserved_bytes.fetch_sub(bytes, std::memory_order_relaxed);
  // release: pairs with the acquire in reserve().
  ledger.free_bytes.fetch_add(bytes, std::memory_order_acq_rel);
}

bool reserve_for_message(Ledger& ledger, Member& member, int64_t bytes) {
  if (!reserve(ledger, member, bytes)) {
    return false;
  }
  member.memory.message_bytes.fetch_add(bytes, std::memory_order_relaxed);
  return true;
}

void take_for_message(Ledger& ledger, Member& member, int64_t bytes) {
  take(ledger, member, bytes);
  member.memory.message_bytes.fetch_add(bytes, std::memory_order_relaxed);
}

void release_of_message(Ledger& ledger, Member& member, int64_t bytes) {
  member.memory.message_bytes.fetch_sub(bytes, std::memory_order_relaxed);
  release(ledger, member, bytes);
}

void note_beyond(Ledger& ledger, Member& member, int64_t bytes) {
  const int64_t before = member.memory.beyond_bytes.exchange(bytes, std::memory_order_relaxed);
  ledger.beyond_bytes.fetch_add(bytes - before, std::memory_order_relaxed);
  raise(ledger.peak_resident_bytes, resident_bytes(ledger));
}

void note_used_places(Ledger& ledger, uint32_t places) {
  uint32_t used = ledger.used_places.load(std::memory_order_acquire);
  while (used < places && !ledger.used_places.compare_exchange_weak(used, places, std::memory_order_acq_rel)) {
  }
}

void record_mode(Ledger& ledger, uint32_t mode) {
  uint32_t count = ledger.mode_changes.load(std::memory_order_acquire);
  if (count >= kMaxModeChanges || (count > 0 && ledger.modes[count - 1].mode.load(std::memory_order_relaxed) == mode)) {
    return;
  }
  if (ledger.mode_changes.compare_exchange_strong(count, count + 1, std::memory_order_acq_rel)) {
    ledger.modes[count].mode.store(mode, std::memory_order_relaxed);
    ledger.modes[count].at_ns.store(base::monotonic_ns() - ledger.started_ns, std::memory_order_release);
  }
}

bool check_invariants(const Ledger& ledger) {
  int64_t reserved = 0;
  uint32_t slots_held = 0;
  for (const Member& member : ledger.used_members()) {
    if (is_alive(member)) {
      reserved += member.memory.reserved_bytes.load(std::memory_order_relaxed);
      slots_held += member.turns.slots.load(std::memory_order_relaxed);
    }
  }
  const int64_t free_now = ledger.free_bytes.load(std::memory_order_relaxed);
  return ledger.magic == kLedgerMagic && free_now == ledger.budget - reserved &&
         slots_held == ledger.held_slots.load(std::memory_order_relaxed);
}

}  // namespace headroom::node
