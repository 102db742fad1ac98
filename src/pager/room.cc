// The choice of the rank that gives way when memory is short, and the request to it.
//
// Every rank is entitled to an equal share of the budget, whether it computes or waits, and one that computes to a little more,
// to read ahead. Programs go over their data again and again; the part of it that a rank keeps while others compute is there
// the next time, and one that goes over more than its share would gain nothing from the others' (replacement.h). But a rank to
// which blocks come back that it had in the same turn *wants all*: it shares the budget with the others that compute, and those
// that wait are left a floor.
//
// Of the ranks that have more than that, those that wait give back first, and of these the one that blocked last, since it will
// run last (the scheduler prefers the rank with most memory): in a round of ranks the order turns direction each time, and the
// memory that is here at the turn is used again. Then the rank furthest above its share; it may be ourselves.
//
// A rank that asks goes on when it is rung, or looks again each millisecond. All that have asked a rank are rung when the
// memory that one of them has asked for is gone (it gives no more than that at once, so that it does not end below its share);
// one that still has no room then, since another was faster, asks again. A rank that cannot give what it is asked for, since
// the rest is held (it waits in a collective, say), says so, and is not asked again for a while.
#include "pager/room.h"

#include <string.h>

#include <algorithm>

#include "pager/eviction.h"
#include "pager/shares.h"
#include "pager/state.h"
#include "trace/counters.h"

namespace headroom::pager {
namespace {

using namespace arena;
using node::Member;
using trace::Counter;

constexpr int64_t kAskAtLeast = 4 << 20;          // a message to a peer costs as much as moving some blocks
constexpr int64_t kNotWorthAsking = 1 << 20;      // the same, of a peer's excess over its share
constexpr uint64_t kRefusalNs = 50'000'000;       // so long a rank that had nothing to give is not asked again
constexpr uint64_t kLackLastsNs = 2'000'000'000;  // turns go on so long: ending and beginning them costs
constexpr uint64_t kFarthest = uint64_t{1} << 62;
constexpr uint64_t kFewThatCanLeave = 6;         // blocks: an instruction may need four
constexpr uint64_t kAskPatienceNs = 10'000'000;  // then we evict our own, whatever the shares say (a peer may be stopped)

/// How much `member` may refuse us. All that may be refused is no more than the budget for a rank that has less than its
/// share, so it always finds one that has more.
int64_t share_of(const Member& member, const Shares& shares) {
  const Member& self = *state.session->self;
  if (!is_computing(member) && wants_all(self)) {
    return kWaitingFloorBytes;
  }
  const int64_t fair = shares.fair();
  if (&member != &self && bytes_of_blocks(self) < fair) {
    return fair;
  }
  const int64_t computing = fair + shares.to_read_ahead();
  const int64_t most = shares.of_those_who_want_all();
  const int64_t worth_asking = &member != &self ? kNotWorthAsking : 0;
  return worth_asking + (!is_computing(member) ? fair : wants_all(member) && most > computing ? most : computing);
}

int64_t excess_of(const Member& member, const Shares& shares) { return bytes_of_blocks(member) - share_of(member, shares); }

/// How long it will probably take until the member computes: the more, the longer. (A rank that waits for a slot has it soon,
/// and the sooner the more of its memory is here.)
uint64_t distance_of(const Member& member) {
  if (member.turns.run_state.load(std::memory_order_relaxed) == static_cast<uint32_t>(node::RunState::kBlocked)) {
    return kFarthest + member.turns.blocked_since_ns.load(std::memory_order_relaxed);
  }
  return kFarthest - 1 - static_cast<uint64_t>(member.memory.reserved_bytes.load(std::memory_order_relaxed));
}

bool has_refused(const Member& member, uint64_t since_ns) {
  return member.memory.refused_ns.load(std::memory_order_relaxed) > since_ns;
}

/// Whether the member has not even taken a request of long ago: it is stopped, say. It is asked again once it has.
bool is_silent(int index) {
  const bool is_asked_now = index == state.asked_member && base::monotonic_ns() - state.asked_at_ns < kAskPatienceNs;
  return !is_asked_now && state.session->ledger->members[index].memory.asked_by.has(state.session->index);
}

/// The rank that should give way; -1 if none but us. `excess` is how much it may be asked for.
int choose_another(int64_t& excess) {
  const node::Ledger& ledger = *state.session->ledger;
  const Shares shares = count_shares(ledger);
  int farthest = -1;
  uint64_t distance = 0;
  int greatest = -1;
  int64_t most = excess_of(*state.session->self, shares);
  most = std::max<int64_t>(most, 0);
  const uint64_t now = base::monotonic_ns();
  for (int next = 0; const Member& member : ledger.used_members()) {
    const int index = next++;
    if (index == state.session->index || !is_alive(member) || has_refused(member, now - kRefusalNs) || is_silent(index)) {
      continue;
    }
    const int64_t above = excess_of(member, shares);
    if (!is_computing(member) && above > 0 && distance_of(member) > distance) {
      distance = distance_of(member);
      farthest = index;
      excess = above;
    }
    if (above > most) {
      most = above;
      greatest = index;
    }
  }
  if (farthest < 0) {
    excess = most;
  }
  return farthest >= 0 ? farthest : greatest;
}

/// The bytes that all members have, in memory or on storage.
int64_t footprint(const node::Ledger& ledger) {
  int64_t bytes = 0;
  for (const Member& member : ledger.used_members()) {
    if (is_alive(member)) {
      const auto counted = [&member](Counter counter) {
        return static_cast<int64_t>(member.counters[static_cast<int>(counter)].load(std::memory_order_relaxed));
      };
      bytes += counted(Counter::kTouchedBytes) + bytes_besides_blocks(member);
    }
  }
  return bytes;
}

void ask(int chosen, int64_t asked) {
  Member& member = state.session->ledger->members[chosen];
  state.waits_for_others = true;
  state.asked_member = chosen;
  state.asked_at_ns = base::monotonic_ns();  // before it is rung: it may refuse at once
  state.session->self->memory.answered_by.remove(chosen);
  if (member.memory.asked_by.has(state.session->index)) {
    return;  // it has not taken the last question yet: that one stands
  }
  trace::count(Counter::kRoomRequests);
  int64_t most = member.memory.asked_bytes.load(std::memory_order_relaxed);
  while (most < asked && !member.memory.asked_bytes.compare_exchange_weak(most, asked, std::memory_order_release)) {
  }
  member.memory.asked_by.add(state.session->index);
  node::ring(*state.session, chosen);
}

/// Another rank may be using the memory that was given by now: a rank that needs more asks again.
void note_answer() {
  if (state.waits_for_others && state.session->self->memory.answered_by.has(state.asked_member)) {
    state.waits_for_others = false;
  }
}

/// Asks another member for room. False if nobody else should give way.
bool ask_another(int64_t bytes) {
  int64_t excess = 0;
  const int chosen = choose_another(excess);
  if (chosen < 0) {
    return false;
  }
  const int64_t wanted = std::max(bytes, kAskAtLeast);
  ask(chosen, std::min(wanted, excess));
  return true;
}

/// Asks the rank with most memory, whatever the shares are: nearly all that this rank has is held (by peers, say, that wait for
/// room themselves), so that it has hardly anything to give for what it needs, while others may have less than their share that
/// they could do without. A rank that has just said that all of its memory is in use, or (`silent`) has not answered, is not
/// asked.
void ask_who_has_most(int64_t bytes, int silent) {
  const node::Ledger& ledger = *state.session->ledger;
  const uint64_t now = base::monotonic_ns();
  int chosen = -1;
  int64_t most = 0;
  for (int next = 0; const Member& member : ledger.used_members()) {
    const int index = next++;
    if (index == state.session->index || index == silent || !is_alive(member) || has_refused(member, now - kRefusalNs) ||
        is_silent(index)) {
      continue;
    }
    const int64_t blocks = bytes_of_blocks(member);
    chosen = blocks > most ? index : chosen;
    most = std::max(blocks, most);
  }
  if (chosen >= 0) {
    trace::count(Counter::kRoomRequestsInNeed);
    ask(chosen, bytes);
  }
}

/// Sets the flag; true for the one caller that did.
bool set_first(std::atomic<uint32_t>& flag) {
  return flag.load(std::memory_order_relaxed) == 0 && flag.exchange(1, std::memory_order_acq_rel) == 0;
}

/// Whether a process has not armed yet since memory became short: it has reserved what it has allocated, and will in a moment
/// give back the part of it that was never touched. (Not for ever: it may be stopped.) An access that waits for room is looked
/// after again at once.
bool somebody_is_about_to_arm(const node::Ledger& ledger) {
  constexpr uint64_t kArmingLastsNs = 100'000'000;
  if (base::monotonic_ns() - ledger.short_at_ns.load(std::memory_order_relaxed) > kArmingLastsNs) {
    return false;
  }
  for (const Member& member : ledger.used_members()) {
    if (is_alive(member) && member.pager.armed.load(std::memory_order_acquire) == 0) {
      return true;
    }
  }
  return false;
}

bool lack_begins() {
  node::Ledger& ledger = *state.session->ledger;
  ledger.lacked_room_ns.store(base::monotonic_ns(), std::memory_order_relaxed);
  return set_first(ledger.lacks_room);
}

/// The way in which every rank waits changes, this one's included.
void tell_all() {
  node::ring_everybody(*state.session);
  node::ring(*state.session, state.session->index);
}

}  // namespace

void note_short() {
  node::Ledger& ledger = *state.session->ledger;
  if (set_first(ledger.short_memory)) {
    ledger.short_at_ns.store(base::monotonic_ns(), std::memory_order_relaxed);
    tell_all();
  }
}

void note_lack_of_room() {
  if (lack_begins()) {
    tell_all();
  }
}

void end_lack_of_room() {
  node::Ledger& ledger = *state.session->ledger;
  const uint64_t lacked = ledger.lacked_room_ns.load(std::memory_order_relaxed);
  const uint64_t now = base::monotonic_ns();
  if (ledger.lacks_room.load(std::memory_order_relaxed) == 0 || now < lacked || now - lacked <= kLackLastsNs ||
      footprint(ledger) > ledger.budget) {
    return;
  }
  ledger.lacks_room.store(0, std::memory_order_seq_cst);
  if (ledger.lacked_room_ns.load(std::memory_order_seq_cst) != lacked) {
    note_lack_of_room();  // just now
  }
}

void make_room(int64_t bytes, Urgency urgency) {
  const node::Ledger& ledger = *state.session->ledger;
  const int64_t coming = ledger.free_bytes.load(std::memory_order_relaxed) + state.leaving_bytes;
  if (coming >= bytes || somebody_is_about_to_arm(ledger)) {
    return;
  }
  note_lack_of_room();
  note_answer();
  const uint64_t now = base::monotonic_ns();
  const bool refused = state.waits_for_others && has_refused(ledger.members[state.asked_member], state.asked_at_ns);
  if (state.waits_for_others && !refused && now - state.asked_at_ns < kAskPatienceNs) {
    return;
  }
  if ((!state.waits_for_others || refused) && ask_another(bytes - coming)) {
    return;
  }
  const int silent = state.waits_for_others && !refused ? state.asked_member : -1;
  trace::count(Counter::kRoomRequestsUnanswered, silent >= 0 ? 1 : 0);
  state.waits_for_others = false;
  const int64_t leaving = evict(bytes - coming, urgency);
  if (leaving == 0 && state.store->in_flight() == 0 && !state.collects) {
    start_wanting_all();  // all that this rank has is held
  }
  // The blocks that can leave may be just those that the thread needs next: each block that comes may drive out the next one.
  if (urgency == Urgency::kSomebodyWaits && bytes > 0 && state.resident.can_leave() < kFewThatCanLeave) {
    ask_who_has_most(bytes - coming, silent);
  }
}

void forget_old_question() {
  note_answer();
  if (state.waits_for_others && state.waiting.count() == 0 && base::monotonic_ns() - state.asked_at_ns > kAskPatienceNs) {
    state.waits_for_others = false;
  }
}

void answer_requests_for_room() {
  Member& self = *state.session->self;
  for (int word = 0; word < node::kMaxMembers / 64; ++word) {
    state.answered[word] |= self.memory.asked_by.words[word].exchange(0, std::memory_order_acq_rel);
  }
  const int64_t asked =
      self.memory.asked_bytes.exchange(0, std::memory_order_acq_rel);  // after the bits, which are set after it
  if (!state.armed) {
    memset(state.answered, 0,
           sizeof state.answered);  // there will be, soon: a rank that is told that there is none asks again at once
    return;
  }
  if (asked <= 0) {
    return;
  }
  const int64_t wanted = asked - state.leaving_bytes;
  const bool takes_more = state.store->in_flight() < Store::kDepth / 2;  // else there is more to come
  const int64_t gone = wanted > 0 ? evict(wanted, Urgency::kSomebodyWaits) : 0;
  state.gave_nothing_yet = gone == 0 && wanted > 0 && !takes_more;
  // Part of it is no refusal if it has to be written: pages that were read alone are a transfer each, so more can follow.
  const bool more_can_follow = gone > 0 && state.leaving_bytes > 0;
  if (gone < wanted && takes_more && !more_can_follow) {
    self.memory.refused_ns.store(base::monotonic_ns(), std::memory_order_relaxed);
    trace::count(Counter::kRoomRequestsRefused);
  }
}

void tell_of_room() {
  const bool can_give_more = state.gave_nothing_yet && state.store->in_flight() >= Store::kDepth / 2;
  if (state.leaving_bytes > 0 || can_give_more) {
    return;
  }
  state.gave_nothing_yet = false;
  for (int word = 0; word < node::kMaxMembers / 64; ++word) {
    for (; state.answered[word] != 0; state.answered[word] &= state.answered[word] - 1) {
      const int index = word * 64 + __builtin_ctzll(state.answered[word]);
      state.session->ledger->members[index].memory.answered_by.add(state.session->index);
      node::ring(*state.session, index);
    }
  }
}

}  // namespace headroom::pager
