// See window.h.
#include "direct/window.h"

#include <cstring>

#include "direct/copy.h"
#include "direct/endpoint.h"
#include "direct/peer_hold.h"
#include "direct/peer_memory.h"
#include "pager/pager.h"
#include "trace/counters.h"

namespace headroom::direct {
namespace {

using trace::Counter;

constexpr uint64_t kExpectedFrom = 16 << 10;  // shorter content is not worth a look at whether its pages are mapped
constexpr uint64_t kChunkBytes = 2048;        // of elements that are folded at a time, on the stack

bool is_own(const WindowPart& part) { return part.member == pager::session().index; }

PeerRange range_of(const WindowPart& part, const char* begin, uint64_t bytes, bool write) {
  return {part.member, reinterpret_cast<uintptr_t>(begin) - arena::partition_base(part.member), bytes, write};
}

/// Does `action(bytes)` for the content, in order, in as many parts as may be held at a time; each of a multiple of `grain`
/// bytes.
template <typename Action>
void for_each_held(Endpoint& endpoint, const WindowPart& part, const Content& there, uint64_t grain, bool write,
                   Action action) {
  if (there.bytes == 0) {
    return;
  }
  if (is_own(part)) {
    action(there.bytes);
    return;
  }
  const node::Session& session = pager::session();
  const auto held = [&](const char* begin, uint64_t reach, uint64_t bytes) {
    const PeerRange range = range_of(part, begin, reach, write);
    if (!take_peer_hold(session, range)) {
      endpoint.report_lost(part.member);
    }
    if (reach >= kExpectedFrom) {
      expect_use(begin, reach);
    }
    action(bytes);
    drop_peer_hold(session, range);
  };
  const Span span = span_of(there);
  const uint64_t most = largest_peer_hold(session, part.member);
  if (span.bytes <= most) {
    held(span.begin, span.bytes, there.bytes);
    return;
  }
  Walk ahead(there);
  while (ahead.left() > 0) {
    const char* low = ahead.piece();
    const char* high = low;
    uint64_t bytes = 0;
    do {
      const uint64_t step = ahead.piece_bytes() < most ? ahead.piece_bytes() : most;
      const char* const lowest = ahead.piece() < low ? ahead.piece() : low;
      const char* const highest = ahead.piece() + step > high ? ahead.piece() + step : high;
      if (bytes > 0 && bytes % grain == 0 && static_cast<uint64_t>(highest - lowest) > most) {
        break;
      }
      low = lowest;
      high = highest;
      bytes += step;
      ahead.pass(step);
    } while (ahead.left() > 0);
    held(low, static_cast<uint64_t>(high - low), bytes);
  }
}

uint64_t shorter(const Content& one, const Content& other) { return one.bytes < other.bytes ? one.bytes : other.bytes; }

/// Holds `folding` of a part.
class FoldingLock {
 public:
  FoldingLock(Endpoint& endpoint, const WindowPart& part) : word_(endpoint.memory().at<WindowControl>(part.control)->folding) {
    constexpr uint32_t kSpins = 1000;
    const auto mine = static_cast<uint32_t>(pager::session().index) + 1;
    uint32_t holder = 0;
    for (uint32_t round = 0; !word_.compare_exchange_weak(holder, mine, std::memory_order_acquire); ++round) {
      if (round < kSpins) {
        relax();
      } else {
        (void)base::system_call(SYS_sched_yield);
        look_after(endpoint, holder);
      }
      holder = 0;
    }
  }
  ~FoldingLock() { word_.store(0, std::memory_order_release); }
  FoldingLock(const FoldingLock&) = delete;
  FoldingLock& operator=(const FoldingLock&) = delete;

 private:
  void look_after(Endpoint& endpoint, uint32_t holder) {
    const bool died = holder != 0 && pager::session().ledger->members[holder - 1].state.load(std::memory_order_acquire) ==
                                         static_cast<uint32_t>(node::MemberState::kDied);
    if (died && word_.load(std::memory_order_acquire) == holder) {
      endpoint.report_lost(static_cast<int>(holder) - 1);
    }
  }

  std::atomic<uint32_t>& word_;
};

/// Folds a part's content that is held, a chunk at a time. This process's own memory is touched outside the lock only: it may
/// be on storage, and a rank may have to wait for its turn before it gets it.
void fold_held(Endpoint& endpoint, const WindowPart& part, Walk& there, Walk* from, Walk* before, uint64_t bytes,
               const Fold& how) {
  alignas(64) char present[kChunkBytes];
  alignas(64) char operand[kChunkBytes];
  const uint64_t most = kChunkBytes / static_cast<uint64_t>(how.extent) * how.packed_bytes;
  while (bytes > 0) {
    const uint64_t step = bytes < most ? bytes : most;
    const bool in_place = before == nullptr && how.layout == nullptr && there.piece_bytes() >= step;
    if (how.what != Fold::What::kNothing) {
      Walk read({operand, step, how.layout});
      copy(read, *from, step);
    }
    {
      const FoldingLock lock(endpoint, part);
      if (in_place && how.what == Fold::What::kCombine) {
        how.combine(how, operand, there.piece(), step / how.packed_bytes);
        there.pass(step);
      } else {
        Walk back = there;
        Walk gathered({present, step, how.layout});
        copy(gathered, there, step);
        if (how.what == Fold::What::kReplace) {
          Walk result({operand, step, how.layout});
          copy(back, result, step);
        } else if (how.what == Fold::What::kCombine) {
          // `present` stays what it was, for `before`.
          alignas(64) char folded[kChunkBytes];
          memcpy(folded, present, step / how.packed_bytes * static_cast<uint64_t>(how.extent));
          how.combine(how, operand, folded, step / how.packed_bytes);
          Walk result({folded, step, how.layout});
          copy(back, result, step);
        }
      }
    }
    if (before != nullptr) {
      Walk fetched({present, step, how.layout});
      copy(*before, fetched, step);
    }
    bytes -= step;
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
  return part.control != 0 && (is_own(part) || open_peer_blocks(pager::session(), part.member) != nullptr);
}

char* address_in_part(const WindowPart& part, int64_t displacement) {
  char* const begin = is_own(part) ? part.address : reinterpret_cast<char*>(arena::partition_base(part.member) + part.offset);
  return begin + displacement;
}

void put(Endpoint& endpoint, const WindowPart& part, const Content& there, const Content& from) {
  Walk reader(from);
  Walk writer(there);
  for_each_held(endpoint, part, {there.address, shorter(there, from), there.layout}, 1, true,
                [&](uint64_t bytes) { copy(writer, reader, bytes); });
  trace::count(Counter::kPutsDirect);
  trace::count(Counter::kOneSidedBytes, shorter(there, from));
}

void get(Endpoint& endpoint, const WindowPart& part, const Content& there, const Content& into) {
  Walk reader(there);
  Walk writer(into);
  for_each_held(endpoint, part, {there.address, shorter(there, into), there.layout}, 1, false,
                [&](uint64_t bytes) { copy(writer, reader, bytes); });
  trace::count(Counter::kGetsDirect);
  trace::count(Counter::kOneSidedBytes, shorter(there, into));
}

void fold(Endpoint& endpoint, const WindowPart& part, const Content& there, const Content* from, const Content* before,
          const Fold& how) {
  Walk target(there);
  Walk operand(from != nullptr ? *from : Content{nullptr, 0, nullptr});
  Walk fetched(before != nullptr ? *before : Content{nullptr, 0, nullptr});
  for_each_held(endpoint, part, there, how.packed_bytes, how.what != Fold::What::kNothing, [&](uint64_t bytes) {
    fold_held(endpoint, part, target, &operand, before != nullptr ? &fetched : nullptr, bytes, how);
  });
  trace::count(Counter::kFoldsDirect);
  trace::count(Counter::kOneSidedBytes, there.bytes);
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

void mark_waiting(WindowControl& control, int member) {
  // seq_cst: pairs with unlock(), which frees the lock first and looks at the marks then.
  control.waiting[member / 64].fetch_or(uint64_t{1} << member % 64, std::memory_order_seq_cst);
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
                      const Fold& how) { fold(endpoint(), part, there, from, before, how); };
  functions.try_lock = try_lock;
  functions.mark_waiting = [](WindowControl& control) { mark_waiting(control, pager::session().index); };
  functions.unlock = [](WindowControl& control, bool exclusive) { unlock(endpoint(), control, exclusive); };
  functions.wake = [](int member) { endpoint().wake(member); };
  functions.span = span_of;
  functions.count = [](bool direct) { trace::count(direct ? Counter::kWindowsDirect : Counter::kWindowsPassed); };
  return functions;
}

}  // namespace headroom::direct
