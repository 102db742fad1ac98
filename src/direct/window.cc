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
constexpr uint64_t kShortBytes = 64;          // copied or folded at once, if there are no gaps
constexpr uint64_t kLockedBytes = 64 << 10;   // folded under one lock

/// How much of a part may be held while this process's own memory is held, too.
uint64_t largest_hold_with(const node::Session& session, int member) {
  return pager::is_armed() ? pager::largest_hold() : largest_peer_hold(session, member);
}

bool is_own(const WindowPart& part) { return part.member == pager::session().index; }

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
    const auto ahead = static_cast<uint64_t>(begin - address_in_part(part, 0));
    const PeerRange range = {part.member, part.offset + ahead, reach, write};
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
  const uint64_t most = largest_hold_with(session, part.member);
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

/// A few elements without gaps.
void fold_short(Endpoint& endpoint, const WindowPart& part, char* there, const Content* from, const Content* before,
                uint64_t bytes, const Fold& how) {
  alignas(64) char present[kShortBytes];
  alignas(64) char operand[kShortBytes];
  if (how.what != Fold::What::kNothing) {
    copy_short(operand, from->address, bytes);
  }
  {
    const FoldingLock lock(endpoint, part);
    if (before != nullptr) {
      copy_short(present, there, bytes);
    }
    if (how.what == Fold::What::kReplace) {
      copy_short(there, operand, bytes);
    } else if (how.what == Fold::What::kCombine) {
      how.combine(how, operand, there, bytes / how.packed_bytes);
    }
  }
  if (before != nullptr) {
    copy_short(before->address, present, bytes);
  }
}

/// This process's own operands while they are folded by others' side: they may not be on storage then, since a rank may have to
/// wait for its turn before it gets them, and others wait for the lock meanwhile.
class OperandHold {
 public:
  OperandHold(const char* begin, uint64_t bytes) : begin_(begin), bytes_(bytes) {
    uint64_t offset = 0;
    held_ = pager::hold_for_peer(begin, bytes, false, offset);
  }
  ~OperandHold() {
    if (held_) {
      pager::drop_hold(begin_, bytes_, false);
    }
  }
  OperandHold(const OperandHold&) = delete;
  OperandHold& operator=(const OperandHold&) = delete;
  /// Whether they are there, and stay.
  [[nodiscard]] bool is_good() const { return held_ || !pager::overlaps(begin_, bytes_); }

 private:
  const char* begin_;
  uint64_t bytes_;
  bool held_;
};

/// Folds content without gaps straight from where it is into where it is wanted.
void fold_in_place(Endpoint& endpoint, const WindowPart& part, char* there, const char* from, uint64_t bytes, const Fold& how) {
  for (uint64_t at = 0; at < bytes; at += kLockedBytes) {
    const uint64_t step = bytes - at < kLockedBytes ? bytes - at : kLockedBytes;
    const FoldingLock lock(endpoint, part);
    how.combine(how, from + at, there + at, step / how.packed_bytes);
  }
}

/// Folds a chunk at a time by way of the stack. This process's own memory is touched outside the lock only.
void fold_by_chunks(Endpoint& endpoint, const WindowPart& part, Walk& there, Walk* from, Walk* before, uint64_t bytes,
                    const Fold& how) {
  alignas(64) char present[kChunkBytes];
  alignas(64) char operand[kChunkBytes];
  alignas(64) char folded[kChunkBytes];
  const auto extent = static_cast<uint64_t>(how.extent);
  const uint64_t most = kChunkBytes / extent * how.packed_bytes;
  while (bytes > 0) {
    const uint64_t step = bytes < most ? bytes : most;
    const uint64_t elements = step / how.packed_bytes;
    if (how.what != Fold::What::kNothing) {
      Walk read({operand, step, how.layout});
      copy(read, *from, step);
    }
    {
      const FoldingLock lock(endpoint, part);
      Walk back = there;
      Walk gathered({present, step, how.layout});
      copy(gathered, there, step);
      if (how.what == Fold::What::kCombine) {
        memcpy(folded, present, elements * extent);
        how.combine(how, operand, folded, elements);
      }
      if (how.what != Fold::What::kNothing) {
        Walk result({how.what == Fold::What::kCombine ? folded : operand, step, how.layout});
        copy(back, result, step);
      }
    }
    if (before != nullptr) {
      Walk fetched({present, step, how.layout});
      copy(*before, fetched, step);
    }
    bytes -= step;
  }
}

/// Folds a part's content that is held.
void fold_held(Endpoint& endpoint, const WindowPart& part, Walk& there, Walk* from, Walk* before, uint64_t bytes,
               const Fold& how) {
  const bool in_place = before == nullptr && how.layout == nullptr && how.what == Fold::What::kCombine &&
                        there.piece_bytes() >= bytes && from->piece_bytes() >= bytes;
  if (in_place) {
    const OperandHold operand(from->piece(), bytes);
    if (operand.is_good()) {
      fold_in_place(endpoint, part, there.piece(), from->piece(), bytes, how);
      there.pass(bytes);
      from->pass(bytes);
      return;
    }
  }
  fold_by_chunks(endpoint, part, there, from, before, bytes, how);
}

/// The next of what is copied, which is short and without gaps more often than not.
void copy_part(Walk& writer, Walk& reader, uint64_t bytes) {
  if (bytes <= kShortBytes && writer.piece_bytes() >= bytes && reader.piece_bytes() >= bytes) {
    copy_short(writer.piece(), reader.piece(), bytes);
    writer.pass(bytes);
    reader.pass(bytes);
  } else {
    copy(writer, reader, bytes);
  }
}

void count(Endpoint& endpoint, Counter calls, uint64_t bytes) {
  if (endpoint.has_threads()) {
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
  if (is_own(part)) {
    copy_content(there, from);
    count(endpoint, Counter::kPutsDirect, shorter(there, from));
    std::atomic_thread_fence(std::memory_order_seq_cst);  // as the end of a hold is
    return;
  }
  Walk reader(from);
  Walk writer(there);
  for_each_held(endpoint, part, {there.address, shorter(there, from), there.layout}, 1, true,
                [&](uint64_t bytes) { copy_part(writer, reader, bytes); });
  count(endpoint, Counter::kPutsDirect, shorter(there, from));
}

void get(Endpoint& endpoint, const WindowPart& part, const Content& there, const Content& into) {
  if (is_own(part)) {
    copy_content(into, there);
    count(endpoint, Counter::kGetsDirect, shorter(there, into));
    return;
  }
  Walk reader(there);
  Walk writer(into);
  for_each_held(endpoint, part, {there.address, shorter(there, into), there.layout}, 1, false,
                [&](uint64_t bytes) { copy_part(writer, reader, bytes); });
  count(endpoint, Counter::kGetsDirect, shorter(there, into));
}

void fold(Endpoint& endpoint, const WindowPart& part, const Content& there, const Content* from, const Content* before,
          const Fold& how) {
  const bool is_short = there.bytes <= kShortBytes && there.layout == nullptr && how.layout == nullptr &&
                        (from == nullptr || from->layout == nullptr) && (before == nullptr || before->layout == nullptr);
  Walk target(there);
  Walk operand(from != nullptr ? *from : Content{nullptr, 0, nullptr});
  Walk fetched(before != nullptr ? *before : Content{nullptr, 0, nullptr});
  for_each_held(endpoint, part, there, how.packed_bytes, how.what != Fold::What::kNothing, [&](uint64_t bytes) {
    if (is_short) {
      fold_short(endpoint, part, there.address, from, before, bytes, how);
    } else {
      fold_held(endpoint, part, target, &operand, before != nullptr ? &fetched : nullptr, bytes, how);
    }
  });
  count(endpoint, Counter::kFoldsDirect, there.bytes);
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
