// See window.h; fold.cc has what accumulates.
#include "direct/window.h"

#include <algorithm>
#include <cstring>

#include "direct/copy.h"
#include "direct/endpoint.h"
#include "direct/held_pieces.h"
#include "direct/peer_hold.h"
#include "direct/peer_memory.h"
#include "pager/pager.h"
#include "trace/counters.h"

namespace headroom::direct {
namespace {

using trace::Counter;

constexpr uint64_t kShortBytes = 64;  // copied without more ado, if there are no gaps

bool is_own(const WindowPart& part) { return part.member == pager::session().index; }

uint64_t shorter(const Content& one, const Content& other) { return std::min(one.bytes, other.bytes); }

bool is_short(const Content& one, const Content& other, uint64_t bytes) {
  return bytes > 0 && bytes <= kShortBytes && one.layout == nullptr && other.layout == nullptr;
}

/// A few bytes, by way of the stack: this process's side is touched while nothing is held.
void copy_short_held(Endpoint& endpoint, const WindowPart& part, char* there, char* here, uint64_t bytes, bool into_part) {
  alignas(64) char between[kShortBytes];
  const auto at = static_cast<uint64_t>(there - address_in_part(part, 0));
  const PeerRange range = {part.member, part.offset + at, bytes, into_part};
  if (into_part) {
    copy_short(between, here, bytes);
  }
  if (!take_peer_hold(pager::session(), range, 0)) {
    endpoint.report_lost(part.member);
  }
  into_part ? copy_short(there, between, bytes) : copy_short(between, there, bytes);
  drop_peer_hold(pager::session(), range);
  if (!into_part) {
    copy_short(here, between, bytes);
  }
}

class Copying final : public PieceAction {
 public:
  /// Into the part, or out of it.
  Copying(const Content& there, const Content& here, bool into_part) : there_(there), here_(here), into_part_(into_part) {}

  void straight(uint64_t bytes) override { into_part_ ? copy(there_, here_, bytes) : copy(here_, there_, bytes); }
  void before_hold(char* bounce, uint64_t bytes) override {
    if (into_part_) {
      Walk into({bounce, bytes, nullptr});
      copy(into, here_, bytes);
    }
  }
  void held(char* bounce, uint64_t bytes) override {
    Walk middle({bounce, bytes, nullptr});
    into_part_ ? copy(there_, middle, bytes) : copy(middle, there_, bytes);
  }
  void after_hold(char* bounce, uint64_t bytes) override {
    if (!into_part_) {
      Walk from({bounce, bytes, nullptr});
      copy(here_, from, bytes);
    }
  }

 private:
  Walk there_;
  Walk here_;
  bool into_part_;
};

void count(Endpoint& endpoint, Counter calls, uint64_t bytes) {
  if (endpoint.threads().may_be_several()) {
    trace::count(calls);
    trace::count(Counter::kOneSidedBytes, bytes);
  } else {
    trace::count_alone(calls);
    trace::count_alone(Counter::kOneSidedBytes, bytes);
  }
}

}  // namespace

WindowPart make_window_part(Endpoint& endpoint, void* address, uint64_t bytes, int64_t unit, int ranks) {
  WindowPart part = {};
  part.member = pager::session().index;
  part.bytes = bytes;
  part.unit = unit;
  part.address = static_cast<char*>(address);
  if (bytes != 0) {
    uint64_t run = 0;
    const arena::Partition& partition = pager::partition();
    if (!arena::find_offset(partition, reinterpret_cast<uintptr_t>(address), part.offset)) {
      return part;
    }
    run = arena::block_of(part.offset + bytes - 1) - arena::block_of(part.offset) + 1;
    const arena::View view = arena::view_of_run(partition, arena::block_of(part.offset), run);
    if (view.address + view.bytes - reinterpret_cast<uintptr_t>(address) < bytes) {
      return part;
    }
  }
  void* control = endpoint.memory().allocate(control_bytes(ranks));
  if (control != nullptr) {
    memset(control, 0, control_bytes(ranks));
    part.control = endpoint.memory().offset_of(control);
  }
  return part;
}

void drop_window_part(Endpoint& endpoint, const WindowPart& part, int ranks) {
  if (part.control != 0) {
    endpoint.memory().release(endpoint.memory().at<char>(part.control), control_bytes(ranks));
  }
}

bool open_window_part(const WindowPart& part) {
  return part.control != 0 && open_peer_blocks(pager::session(), part.member) != nullptr;
}

char* address_in_part(const WindowPart& part, int64_t displacement) {
  char* const begin = is_own(part) ? part.address : reinterpret_cast<char*>(arena::partition_base(part.member) + part.offset);
  return begin + displacement;
}

void put(Endpoint& endpoint, const WindowPart& part, const Content& there, const Content& from) {
  Content into = there;
  into.bytes = shorter(there, from);
  if (is_short(into, from, into.bytes)) {
    copy_short_held(endpoint, part, into.address, from.address, into.bytes, true);
  } else {
    Copying copying(into, from, true);
    for_each_held_piece(endpoint, part, into, 1, true, {{&from, false}, {nullptr, false}}, copying);
  }
  count(endpoint, Counter::kPutsDirect, into.bytes);
}

void get(Endpoint& endpoint, const WindowPart& part, const Content& there, const Content& into) {
  Content from = there;
  from.bytes = shorter(there, into);
  if (is_short(from, into, from.bytes)) {
    copy_short_held(endpoint, part, from.address, into.address, from.bytes, false);
  } else {
    expect_overwriting(into, from);
    Copying copying(from, into, false);
    for_each_held_piece(endpoint, part, from, 1, false, {{&into, true}, {nullptr, false}}, copying);
  }
  count(endpoint, Counter::kGetsDirect, from.bytes);
}

bool try_lock(WindowControl& control, bool exclusive) {
  uint32_t holders = control.lock.load(std::memory_order_relaxed);
  do {
    if (exclusive ? holders != 0 : (holders & kExclusiveLock) != 0) {
      return false;
    }
  } while (!control.lock.compare_exchange_weak(holders, exclusive ? kExclusiveLock : holders + 1, std::memory_order_acquire,
                                               std::memory_order_relaxed));
  return true;
}

bool lock_or_mark(WindowControl& control, bool exclusive, int member) {
  if (try_lock(control, exclusive)) {
    return true;
  }
  // seq_cst: pairs with unlock(), which frees the lock first and looks at the marks then.
  control.waiting[member / 64].fetch_or(uint64_t{1} << member % 64, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return try_lock(control, exclusive);
}

void unlock(Endpoint& endpoint, WindowControl& control, bool exclusive) {
  control.lock.fetch_sub(exclusive ? kExclusiveLock : 1, std::memory_order_seq_cst);
  for (int word = 0; word < node::kMaxMembers / 64; ++word) {
    if (control.waiting[word].load(std::memory_order_seq_cst) == 0) {
      continue;
    }
    for (uint64_t marks = control.waiting[word].exchange(0, std::memory_order_acq_rel); marks != 0; marks &= marks - 1) {
      endpoint.wake(word * 64 + __builtin_ctzll(marks));
    }
  }
}

WindowFunctions window_functions() {
  WindowFunctions functions = {};
  functions.make_part = [](void* address, uint64_t bytes, int64_t unit, int ranks) {
    return make_window_part(endpoint(), address, bytes, unit, ranks);
  };
  functions.drop_part = [](const WindowPart& part, int ranks) { drop_window_part(endpoint(), part, ranks); };
  functions.open_part = open_window_part;
  functions.control = [](const WindowPart& part) { return endpoint().memory().at<WindowControl>(part.control); };
  functions.address = address_in_part;
  functions.put = [](const WindowPart& part, const Content& there, const Content& from) { put(endpoint(), part, there, from); };
  functions.get = [](const WindowPart& part, const Content& there, const Content& into) { get(endpoint(), part, there, into); };
  functions.fold = [](const WindowPart& part, const Content& there, const Content* from, const Content* before,
                      const Fold& how) {
    fold(endpoint(), part, there, from, before, how);
    count(endpoint(), Counter::kFoldsDirect, there.bytes);
  };
  functions.try_lock = try_lock;
  functions.lock_or_mark = [](WindowControl& control, bool exclusive) {
    return lock_or_mark(control, exclusive, pager::session().index);
  };
  functions.unlock = [](WindowControl& control, bool exclusive) { unlock(endpoint(), control, exclusive); };
  functions.wake = [](int member) { endpoint().wake(member); };
  functions.span = span_of;
  functions.count = [](bool direct) { trace::count(direct ? Counter::kWindowsDirect : Counter::kWindowsPassed); };
  return functions;
}

}  // namespace headroom::direct
