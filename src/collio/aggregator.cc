// See aggregator.h. The aggregator's exchange with ranks is in aggregator_exchange.cc.
#include "collio/aggregator.h"

#include <algorithm>
#include <new>

#include "base/system_calls.h"
#include "collio/window_memory.h"

namespace headroom::collio {
namespace {

/// Windows end where pages do.
constexpr int64_t kPageBytes = 4096;
/// Stretches that are at least so long on average are written one by one, and the holes between them are not read.
constexpr int64_t kLongStretch = 64 << 10;

int64_t until(const Opening& opening, int64_t position) { return bytes_before(opening, position); }

}  // namespace

bool Aggregator::begin(const CallDescription& call, const Domain& domain) {
  call_ = &call;
  domain_ = domain;
  position_ = domain.begin;
  window_bytes_ = std::min(domain.window, domain.end - domain.begin);
  ranks_ = static_cast<Rank*>(base::reserve_memory(static_cast<uint64_t>(call.size) * sizeof(Rank)));
  memory_bytes_ = 2 * window_bytes_ + kStages * kChunkBytes + kScratchBytes;
  memory_ = take_window_memory(memory_bytes_);
  if (ranks_ == nullptr || memory_ == nullptr) {
    return false;
  }
  char* at = memory_;
  for (Window& window : windows_) {
    window.memory = at;
    at += window_bytes_;
    if (call.writes && !window.coverage.open(window_bytes_)) {
      return false;
    }
  }
  for (Stage& stage : stages_) {
    stage.memory = at;
    at += kChunkBytes;
  }
  for (Window& window : windows_) {
    window.job.scratch = at;  // jobs are done one after the other
  }
  for (int rank = 0; rank < call.size; ++rank) {
    const Opening& opening = call.openings[rank];
    Rank& each = ranks_[rank];
    each.is_list = (opening.flags & kIsList) != 0;
    has_lists_ = has_lists_ || each.is_list;
    const bool reaches = opening.bytes > 0 && opening.first < domain.end && domain.begin < opening.end;
    each.next = each.is_list && reaches ? std::max(opening.first, domain.begin) : INT64_MAX;
  }
  if (ranks_[call.rank].is_list && call.openings[call.rank].bytes > 0) {
    const Opening& own = call.openings[call.rank];
    own_next_ = std::clamp<int64_t>(bytes_before(call.view, domain.begin) - own.skip, 0, own.bytes);
  }
  turn_ = call.rank;
  own_ = UserStream(call.user);
  return true;
}

void Aggregator::end() {
  for (Window& window : windows_) {
    window.coverage.close();
  }
  base::give_back_memory(ranks_, static_cast<uint64_t>(call_ != nullptr ? call_->size : 0) * sizeof(Rank));
  give_back_window_memory(memory_, memory_bytes_);
  ranks_ = nullptr;
  memory_ = nullptr;
}

bool Aggregator::is_done() const {
  return current_ < 0 && ahead_ < 0 && position_ >= domain_.end && windows_[0].state == State::kFree &&
         windows_[1].state == State::kFree;
}

bool Aggregator::step() {
  bool did = finish_jobs();
  did = finish_stages() || did;
  did = begin_window() || did;
  did = ask_for_more() || did;
  return complete_window() || did;
}

void Aggregator::wait_for_job() {
  for (const Window& window : windows_) {
    if (window.state == State::kReading || window.state == State::kWriting) {
      wait_until_done(window.job);
    }
  }
}

bool Aggregator::finish_jobs() {
  bool did = false;
  for (int index = 0; index < 2; ++index) {
    Window& window = windows_[index];
    if ((window.state != State::kReading && window.state != State::kWriting) ||
        window.job.done.load(std::memory_order_acquire) == 0) {
      continue;
    }
    did = true;
    outcome_.error = outcome_.error != 0 ? outcome_.error : window.job.error;
    if (window.state == State::kReading && window.job.error == 0 && window.job.got < window.end - window.begin) {
      outcome_.end_of_file = std::min(outcome_.end_of_file, window.begin + window.job.got);
    }
    window.state = window.state == State::kReading && !discards_ ? State::kRead : State::kFree;
    ahead_ = ahead_ == index && discards_ ? -1 : ahead_;
  }
  if (outcome_.error != 0 && !discards_) {
    discard_rest();
  }
  return did;
}

/// Whether something of this window, or of what is thrown away, is still to be asked of a rank.
bool Aggregator::has_more(int rank) const {
  const Rank& each = ranks_[rank];
  if (each.is_list) {
    const int64_t end = discards_ ? domain_.end : windows_[current_].end;
    return each.next < end && !each.asked;
  }
  return each.from < each.until;
}

/// Where the first byte at or after `position` lies that somebody accesses; the end of this part if there is none.
int64_t Aggregator::first_touched(int64_t position) const {
  int64_t first = domain_.end;
  for (int rank = 0; rank < call_->size; ++rank) {
    const Opening& opening = call_->openings[rank];
    if (ranks_[rank].is_list) {
      first = ranks_[rank].next < domain_.end ? std::min(first, std::max(ranks_[rank].next, position)) : first;
    } else if (const int64_t before = until(opening, position); before < opening.bytes) {
      first = std::min(first, position_of(opening.nest, opening.skip + before));
    }
  }
  return first;
}

/// Behind the last byte before `end` that somebody accesses, where that is known.
int64_t Aggregator::last_touched(int64_t end) const {
  if (has_lists_) {
    return end;
  }
  int64_t last = 0;
  for (int rank = 0; rank < call_->size; ++rank) {
    const Opening& opening = call_->openings[rank];
    if (const int64_t before = until(opening, end); before > 0) {
      last = std::max(last, position_of(opening.nest, opening.skip + before - 1) + 1);
    }
  }
  return std::min(last, end);
}

/// Chooses the next window's part of the file: as large as there is room for now.
void Aggregator::plan_window(Window& window) {
  int64_t bytes = window_bytes_;
  if (call_->room != nullptr && outcome_.windows > 0) {
    bytes = std::min(bytes, window_for(call_->room() + memory_bytes_, call_->most_window));
  }
  window.begin = position_;
  const int64_t aligned = (position_ + bytes) / kPageBytes * kPageBytes;
  position_ = std::min(aligned > window.begin ? aligned : window.begin + bytes, domain_.end);
  window.end = last_touched(position_);
  ++outcome_.windows;
  outcome_.window_bytes = std::max(outcome_.window_bytes, bytes);
}

bool Aggregator::begin_window() {
  bool did = false;
  if (!call_->writes && !discards_ && ahead_ < 0) {
    position_ = position_ < domain_.end ? first_touched(position_) : position_;
    for (int index = 0; index < 2 && ahead_ < 0 && position_ < domain_.end; ++index) {
      if (windows_[index].state == State::kFree) {
        plan_window(windows_[index]);
        read(windows_[index]);
        ahead_ = index;
        did = true;
      }
    }
  }
  if (current_ >= 0 || discards_) {
    return did;
  }
  if (call_->writes) {
    position_ = position_ < domain_.end ? first_touched(position_) : position_;
    for (int index = 0; index < 2 && current_ < 0 && position_ < domain_.end; ++index) {
      if (windows_[index].state == State::kFree) {
        plan_window(windows_[index]);
        current_ = index;
      }
    }
  } else if (ahead_ >= 0 && windows_[ahead_].state == State::kRead) {
    current_ = ahead_;
    ahead_ = -1;
  }
  if (current_ < 0) {
    return did;
  }
  enter_window(current());
  return true;
}

/// Computes what of each rank's bytes lies in the window.
void Aggregator::enter_window(Window& window) {
  window.state = State::kCurrent;
  all_asked_ = false;
  int64_t bytes = 0;
  bool is_one_piece = false;
  for (int rank = 0; rank < call_->size; ++rank) {
    Rank& each = ranks_[rank];
    if (!each.is_list) {
      each.from = until(call_->openings[rank], window.begin);
      each.until = until(call_->openings[rank], window.end);
      bytes += each.until - each.from;
      is_one_piece = is_one_piece || each.until - each.from == window.end - window.begin;
    }
  }
  if (call_->writes) {
    cover_window(window, bytes, is_one_piece);
  }
  copy_own();
}

/// Finds out what of the window is written.
void Aggregator::cover_window(Window& window, int64_t bytes, bool is_one_piece) {
  window.job.covered = nullptr;
  if (is_one_piece && !has_lists_) {
    return;
  }
  int64_t unit = has_lists_ ? 1 : 0;
  for (int rank = 0; rank < call_->size && unit != 1; ++rank) {
    const Rank& each = ranks_[rank];
    const Opening& opening = call_->openings[rank];
    if (each.from < each.until) {
      unit = common_unit(unit, opening.nest, opening.skip + each.from, opening.skip + each.until, window.begin);
    }
  }
  window.coverage.begin(window.begin, window.end, unit);
  for (int rank = 0; rank < call_->size; ++rank) {
    const Rank& each = ranks_[rank];
    const Opening& opening = call_->openings[rank];
    if (!each.is_list && each.from < each.until) {
      window.coverage.mark(NestWalk(opening.nest, opening.skip + each.from), each.until - each.from);
    }
  }
  const bool may_be_full = bytes >= window.end - window.begin && !has_lists_;
  window.job.covered = may_be_full && window.coverage.is_full() ? nullptr : &window.coverage;
}

/// After an error: nothing is read or written any more, and all that ranks still have is asked for and thrown away.
void Aggregator::discard_rest() {
  discards_ = true;
  all_asked_ = false;
  for (int rank = 0; rank < call_->size; ++rank) {
    Rank& each = ranks_[rank];
    const Opening& opening = call_->openings[rank];
    if (!each.is_list) {
      each.from = current_ >= 0 ? each.from : until(opening, ahead_ >= 0 ? windows_[ahead_].begin : position_);
      each.until = until(opening, domain_.end);
    }
  }
  if (ahead_ >= 0 && windows_[ahead_].state == State::kRead) {
    windows_[ahead_].state = State::kFree;
    ahead_ = -1;
  }
  if (current_ < 0) {
    // Any window will do, since nothing is put into it.
    current_ = windows_[0].state == State::kFree ? 0 : 1;
    if (windows_[current_].state == State::kFree) {
      windows_[current_].state = State::kCurrent;
    }
  }
  position_ = domain_.end;
}

/// When nothing is left to ask for and all has come.
bool Aggregator::complete_window() {
  if (current_ < 0 || pending_ > 0 || !all_asked_) {
    return false;
  }
  Window& window = current();
  current_ = -1;
  if (discards_) {
    window.state = window.state == State::kCurrent ? State::kFree : window.state;
  } else if (call_->writes) {
    write(window);
  } else {
    window.state = State::kFree;
  }
  return true;
}

void Aggregator::push_and_drop(FileJob& job) {
  job.push = call_->drops_pages && call_->writes;
  job.drop_begin = dropped_begin_;
  job.drop_end = dropped_end_;
  outcome_.windows_dropped += dropped_end_ > dropped_begin_ ? 1 : 0;
  dropped_begin_ = call_->drops_pages ? job.begin : 0;
  dropped_end_ = call_->drops_pages ? job.end : 0;
}

void Aggregator::write(Window& window) {
  FileJob& job = window.job;
  job.file = call_->file;
  job.writes = true;
  job.memory = window.memory;
  job.begin = window.begin;
  job.end = window.end;
  job.fills_holes = false;
  job.locks = !call_->fills_holes;
  if (job.covered != nullptr) {
    // Of lists it is known only now.
    int64_t begin = 0;
    int64_t end = 0;
    if (!job.covered->next_stretch(window.begin, begin, end)) {
      window.state = State::kFree;
      return;
    }
    job.begin = begin;
    job.memory += begin - window.begin;
    job.end = job.covered->last();
    const int64_t stretches = job.covered->stretches();
    job.fills_holes = call_->fills_holes && stretches > 1 && (job.end - job.begin) / stretches < kLongStretch;
    job.covered = stretches > 1 ? job.covered : nullptr;
    outcome_.rounds_read_first += job.fills_holes ? 1 : 0;
  }
  push_and_drop(job);
  job.when_done = call_->wake;
  window.state = State::kWriting;
  submit(job);
}

void Aggregator::read(Window& window) {
  FileJob& job = window.job;
  job.file = call_->file;
  job.writes = false;
  job.memory = window.memory;
  job.begin = window.begin;
  job.end = window.end;
  push_and_drop(job);
  job.when_done = call_->wake;
  window.state = State::kReading;
  submit(job);
}

}  // namespace headroom::collio
