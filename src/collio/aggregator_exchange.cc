// The aggregator's exchange with ranks: it asks each for the bytes that lie in the window, in as many stages as are free, and
// puts what comes into the window, or sends what was read. See aggregator.h.
#include <string.h>

#include <algorithm>

#include "collio/aggregator.h"

namespace headroom::collio {
namespace {

/// Content that lies in one piece of at least so many bytes goes into its place in the window, or out of it, without a copy.
constexpr int64_t kLongPiece = 32 << 10;

int64_t until(const Opening& opening, int64_t position) { return bytes_before(opening, position); }

}  // namespace

bool Aggregator::ask_for_more() {
  bool did = false;
  for (int index = 0; index < kStages && current_ >= 0 && !all_asked_; ++index) {
    if (stages_[index].use != Use::kNone) {
      continue;
    }
    bool asked = false;
    const int first = turn_;
    for (int step = 0; step < call_->size && !asked; ++step) {
      const int rank = (first + step) % call_->size;
      if (has_more(rank)) {
        asked = ask_rank(index, rank);
        did = true;
        turn_ = (rank + 1) % call_->size;
      }
    }
    all_asked_ = !asked;
  }
  return did;
}

/// Asks one rank for what fits a stage; false if that needed none.
bool Aggregator::ask_rank(int index, int rank) {
  if (rank == call_->rank) {  // of itself nothing is left but what is thrown away
    ranks_[rank].from = ranks_[rank].until;
    ranks_[rank].next = INT64_MAX;
    return false;
  }
  stages_[index].rank = rank;
  ++pending_;
  if (ranks_[rank].is_list) {
    ask_list(index, rank);
  } else {
    ask_nest(index, rank);
  }
  return true;
}

void Aggregator::ask_nest(int index, int rank) {
  const Messages& messages = call_->messages;
  const Opening& opening = call_->openings[rank];
  Stage& stage = stages_[index];
  Rank& each = ranks_[rank];
  Window& window = current();
  stage.use = Use::kNest;
  stage.ask = {each.from, each.until - each.from, 0, kOfNest};
  if (!discards_) {
    NestWalk walk(opening.nest, opening.skip + each.from);
    const bool in_place = walk.left() >= std::min(stage.ask.bytes, kLongPiece);
    stage.ask.bytes = std::min({stage.ask.bytes, kChunkBytes, in_place ? walk.left() : kChunkBytes});
    stage.ask.valid = stage.ask.bytes;
    stage.place = in_place ? window.memory + (walk.position() - window.begin) : stage.memory;
    if (!call_->writes) {
      const int64_t readable = until(opening, outcome_.end_of_file) - each.from;
      stage.ask.valid = std::clamp<int64_t>(readable, 0, stage.ask.bytes);
      if (!in_place) {
        gather(walk, window.memory, window.begin, stage.memory, stage.ask.valid);
      }
    }
  }
  messages.send(messages.context, 2 * index, rank, kTagOfAsk, &stage.ask, sizeof stage.ask);
  if (stage.ask.valid > 0 && call_->writes) {
    messages.receive(messages.context, 2 * index + 1, rank, kTagOfData, stage.place, stage.ask.valid);
  } else if (stage.ask.valid > 0) {
    messages.send(messages.context, 2 * index + 1, rank, kTagOfData, stage.place, stage.ask.valid);
  }
  each.from += stage.ask.bytes;
}

void Aggregator::ask_list(int index, int rank) {
  const Messages& messages = call_->messages;
  Stage& stage = stages_[index];
  Rank& each = ranks_[rank];
  if (discards_) {
    stage.use = Use::kNest;  // nothing comes back
    stage.ask = {0, 0, 0, kDiscardList};
    each.next = INT64_MAX;
  } else {
    stage.use = Use::kList;
    stage.ask = {std::max(each.next, current().begin), kChunkBytes, current().end, kOfList};
    each.asked = true;
    messages.receive(messages.context, 2 * index + 1, rank, kTagOfList, stage.memory, kChunkBytes);
  }
  messages.send(messages.context, 2 * index, rank, kTagOfAsk, &stage.ask, sizeof stage.ask);
}

bool Aggregator::finish_stages() {
  bool did = false;
  for (int index = 0; index < kStages; ++index) {
    did = (stages_[index].use != Use::kNone && finish_stage(index)) || did;
  }
  return did;
}

bool Aggregator::finish_stage(int index) {
  const Messages& messages = call_->messages;
  Stage& stage = stages_[index];
  const bool has_content = stage.use != Use::kNest || stage.ask.valid > 0;
  if (!messages.test(messages.context, 2 * index, nullptr) ||
      (has_content && !messages.test(messages.context, 2 * index + 1, nullptr))) {
    return false;
  }
  if (stage.use == Use::kNest && call_->writes && stage.ask.valid > 0 && stage.place == stage.memory) {
    const Opening& opening = call_->openings[stage.rank];
    NestWalk walk(opening.nest, opening.skip + stage.ask.begin);
    scatter(walk, current().memory, current().begin, stage.memory, stage.ask.valid);
  } else if (stage.use == Use::kList) {
    Batch batch;
    memcpy(&batch, stage.memory, sizeof batch);
    Rank& each = ranks_[stage.rank];
    each.next = batch.next;
    each.asked = false;
    all_asked_ = false;
    if (call_->writes) {
      scatter_batch(stage);
    } else if (batch.data_bytes > 0) {
      hand_out_batch(index);
      return true;
    }
  }
  stage.use = Use::kNone;
  --pending_;
  return true;
}

/// Puts the pieces of a list, which come with their content, where they belong.
void Aggregator::scatter_batch(const Stage& stage) {
  Batch batch;
  memcpy(&batch, stage.memory, sizeof batch);
  Window& window = current();
  const auto* code = reinterpret_cast<const unsigned char*>(stage.memory) + sizeof batch;
  const char* content = stage.memory + sizeof batch + batch.code_bytes;
  int64_t position = stage.ask.begin;
  for (int64_t piece = 0; piece < batch.pieces; ++piece) {
    position += static_cast<int64_t>(read_number(code));
    const auto bytes = static_cast<int64_t>(read_number(code));
    memcpy(window.memory + (position - window.begin), content, static_cast<size_t>(bytes));
    window.coverage.mark(position, bytes);
    position += bytes;
    content += bytes;
  }
}

/// Sends the content of the pieces of a list, as far as the file goes.
void Aggregator::hand_out_batch(int index) {
  const Messages& messages = call_->messages;
  Stage& stage = stages_[index];
  Batch batch;
  memcpy(&batch, stage.memory, sizeof batch);
  const Window& window = current();
  const auto* code = reinterpret_cast<const unsigned char*>(stage.memory) + sizeof batch;
  char* const content = stage.memory + kHalfChunk;
  int64_t position = stage.ask.begin;
  int64_t done = 0;
  const int64_t end = discards_ ? 0 : outcome_.end_of_file;
  for (int64_t piece = 0; piece < batch.pieces; ++piece) {
    position += static_cast<int64_t>(read_number(code));
    const auto bytes = static_cast<int64_t>(read_number(code));
    const int64_t part = std::clamp<int64_t>(end - position, 0, bytes);
    memcpy(content + done, window.memory + (position - window.begin), static_cast<size_t>(part));
    position += bytes;
    done += part;
  }
  stage.use = Use::kContentOfList;
  messages.send(messages.context, 2 * index + 1, stage.rank, kTagOfData, content, done);
}

/// Copies the bytes that this rank itself has in the window: they need no message.
void Aggregator::copy_own() {
  Rank& own = ranks_[call_->rank];
  const Opening& opening = call_->openings[call_->rank];
  Window& window = current();
  const int64_t end = call_->writes ? window.end : std::min(window.end, outcome_.end_of_file);
  const auto copy_piece = [&](int64_t offset, int64_t position, int64_t bytes) {
    char* const place = window.memory + (position - window.begin);
    if (call_->writes) {
      own_.copy_out(offset, bytes, place);
    } else {
      own_.copy_in(offset, bytes, place);
    }
  };
  if (own.is_list) {
    int64_t left = opening.bytes - own_next_;
    for (ViewWalk walk(call_->view, opening.skip + own_next_); left > 0 && walk.position() < window.end;) {
      const int64_t part = std::min({walk.left(), window.end - walk.position(), left});
      const int64_t readable = std::clamp<int64_t>(end - walk.position(), 0, part);
      if (readable > 0) {
        copy_piece(own_next_, walk.position(), readable);
      }
      if (call_->writes) {
        window.coverage.mark(walk.position(), part);
      }
      left -= part;
      own_next_ += part;
      walk.pass(part);
    }
    own.next = INT64_MAX;
    if (left > 0) {
      own.next = ViewWalk(call_->view, opening.skip + own_next_).position();
    }
    return;
  }
  const int64_t bytes = std::min(own.until, until(opening, end)) - own.from;
  if (bytes > 0) {
    NestWalk walk(opening.nest, opening.skip + own.from);
    if (char* place = place_in(call_->user, own.from); place != nullptr && call_->writes) {
      scatter(walk, window.memory, window.begin, place, bytes);
    } else if (place != nullptr) {
      gather(walk, window.memory, window.begin, place, bytes);
    } else {
      for (int64_t done = 0; done < bytes;) {
        const int64_t part = std::min(walk.left(), bytes - done);
        copy_piece(own.from + done, walk.position(), part);
        done += part;
        walk.pass(part);
      }
    }
  }
  own.from = own.until;
}

}  // namespace headroom::collio
