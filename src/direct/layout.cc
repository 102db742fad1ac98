// See layout.h.
#include "direct/layout.h"

#include <algorithm>
#include <cstring>

#include "base/system_calls.h"
#include "direct/copy.h"
#include "direct/message_memory.h"
#include "direct/strided_copy.h"

namespace headroom::direct {
namespace {

constexpr uint64_t kMostRuns = 64 << 20;

uint64_t layout_bytes(uint64_t runs) { return sizeof(Layout) + runs * sizeof(Run); }

}  // namespace

void LayoutBuilder::drop() {
  if (runs_ != nullptr) {
    base::give_back_memory(runs_, room_ * sizeof(Run));
    runs_ = nullptr;
  }
}

bool LayoutBuilder::join(int64_t offset, uint64_t bytes, uint64_t count, int64_t stride) {
  if (count_ == 0) {
    return false;
  }
  Run& last = runs_[count_ - 1];
  if (last.count == 1 && count == 1 && last.offset + static_cast<int64_t>(last.bytes) == offset) {
    last.bytes += bytes;
    return true;
  }
  if (last.bytes != bytes) {
    return false;
  }
  // Another piece of the same size, as far off as the ones before: a vector written out.
  const int64_t distance = offset - last.offset;
  if (last.count == 1 && (count == 1 || stride == distance)) {
    last.stride = distance;
    last.count += count;
    return true;
  }
  if (last.count > 1 && distance == static_cast<int64_t>(last.count) * last.stride && (count == 1 || stride == last.stride)) {
    last.count += count;
    return true;
  }
  return false;
}

void LayoutBuilder::add(int64_t offset, uint64_t bytes, uint64_t count, int64_t stride) {
  if (bytes == 0 || count == 0 || failed_) {
    return;
  }
  if (count > 1 && stride == static_cast<int64_t>(bytes)) {
    bytes *= count;
    count = 1;
  }
  bytes_ += bytes * count;
  if (join(offset, bytes, count, stride)) {
    return;
  }
  if (count_ == room_) {
    const uint64_t room = room_ == 0 ? 128 : 2 * room_;
    auto* bigger = room <= kMostRuns ? static_cast<Run*>(base::reserve_memory(room * sizeof(Run))) : nullptr;
    if (bigger == nullptr) {
      failed_ = true;
      return;
    }
    if (runs_ != nullptr) {
      memcpy(bigger, runs_, count_ * sizeof(Run));
      base::give_back_memory(runs_, room_ * sizeof(Run));
    }
    runs_ = bigger;
    room_ = room;
  }
  runs_[count_++] = {offset, bytes, count, stride};
}

void LayoutBuilder::add_all(const LayoutBuilder& other, int64_t offset, uint64_t count, int64_t stride) {
  failed_ = failed_ || other.failed_;
  if (other.count_ == 1 && other.runs_[0].count == 1) {
    add(offset + other.runs_[0].offset, other.runs_[0].bytes, count, stride);
    return;
  }
  for (uint64_t repeat = 0; repeat < count && !failed_; ++repeat) {
    const int64_t origin = offset + static_cast<int64_t>(repeat) * stride;
    for (uint64_t index = 0; index < other.count_; ++index) {
      const Run& run = other.runs_[index];
      add(origin + run.offset, run.bytes, run.count, run.stride);
    }
  }
}

bool LayoutBuilder::is_contiguous(int64_t extent) const {
  if (count_ == 0) {
    return true;
  }
  return count_ == 1 && runs_[0].count == 1 && runs_[0].offset == 0 && static_cast<int64_t>(runs_[0].bytes) == extent;
}

Layout* LayoutBuilder::finish(MessageMemory& memory, int64_t extent) const {
  auto* layout = failed_ ? nullptr : static_cast<Layout*>(memory.allocate(layout_bytes(count_)));
  if (layout == nullptr) {
    return nullptr;
  }
  layout->element_bytes = bytes_;
  layout->extent = extent;
  layout->runs = count_;
  layout->first = INT64_MAX;
  layout->end = INT64_MIN;
  layout->references.store(1, std::memory_order_relaxed);
  for (uint64_t index = 0; index < count_; ++index) {
    const Run& run = runs_[index];
    layout->run[index] = run;
    const int64_t last = run.offset + static_cast<int64_t>(run.count - 1) * run.stride;
    const int64_t low = std::min(run.offset, last);
    const int64_t high = std::max(run.offset, last) + static_cast<int64_t>(run.bytes);
    layout->first = std::min(low, layout->first);
    layout->end = std::max(high, layout->end);
  }
  return layout;
}

void let_go(Layout* layout, MessageMemory& memory) {
  // acq_rel: a process that used it before has finished.
  if (layout != nullptr && layout->references.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    memory.release(layout, layout_bytes(layout->runs));
  }
}

Span span_of(const Content& content) {
  if (content.layout == nullptr || content.bytes == 0) {
    return {content.address, content.bytes};
  }
  const Layout& layout = *content.layout;
  const auto elements = static_cast<int64_t>((content.bytes + layout.element_bytes - 1) / layout.element_bytes);
  const int64_t reach = (elements - 1) * layout.extent;
  const int64_t low = layout.first + std::min<int64_t>(reach, 0);
  const int64_t high = layout.end + std::max<int64_t>(reach, 0);
  return {content.address + low, static_cast<uint64_t>(high - low)};
}

void Walk::load() {
  const Run& run = layout_->run[run_];
  piece_ = at_ + run.offset + static_cast<int64_t>(in_run_) * run.stride;
  piece_bytes_ = std::min(run.bytes, left_);
}

void Walk::next() {
  if (layout_ == nullptr) {
    return;
  }
  if (++in_run_ == layout_->run[run_].count) {
    in_run_ = 0;
    if (++run_ == layout_->runs) {
      run_ = 0;
      at_ += layout_->extent;
    }
  }
  load();
}

void Walk::skip(uint64_t bytes) {
  if (layout_ == nullptr) {
    pass(bytes);
    return;
  }
  while (bytes > 0) {
    const Run& run = layout_->run[run_];
    if (piece_bytes_ < run.bytes || bytes < run.bytes) {  // a part of a piece
      const uint64_t part = std::min(bytes, piece_bytes_);
      pass(part);
      bytes -= part;
      continue;
    }
    if (run_ == 0 && in_run_ == 0 && bytes >= layout_->element_bytes) {
      const uint64_t elements = bytes / layout_->element_bytes;
      at_ += static_cast<int64_t>(elements) * layout_->extent;
      left_ -= elements * layout_->element_bytes;
      bytes -= elements * layout_->element_bytes;
    } else {
      uint64_t pieces = bytes / run.bytes;
      pieces = std::min(pieces, run.count - in_run_);
      in_run_ += pieces;
      left_ -= pieces * run.bytes;
      bytes -= pieces * run.bytes;
      if (in_run_ == run.count) {
        in_run_ = 0;
        if (++run_ == layout_->runs) {
          run_ = 0;
          at_ += layout_->extent;
        }
      }
    }
    if (left_ > 0) {
      load();
    }
  }
}

Walk::Row Walk::row_ahead(uint64_t bytes) const {
  if (piece_bytes_ >= 2 * bytes) {
    return {static_cast<int64_t>(bytes), piece_bytes_ / bytes};
  }
  if (layout_ == nullptr || layout_->run[run_].bytes != bytes || piece_bytes_ != bytes) {
    return {0, 1};
  }
  const Run& run = layout_->run[run_];
  const uint64_t there = run.count - in_run_;
  return {run.stride, std::min(there, left_ / bytes)};
}

Walk::Row Walk::rows_ahead(const Row& row, uint64_t bytes) const {
  const uint64_t row_bytes = row.count * bytes;
  const uint64_t most = left_ / row_bytes;
  if (piece_bytes_ >= row_bytes) {  // in one piece each
    return row_ahead(row_bytes);
  }
  if (in_run_ != 0 || layout_->run[run_].count != row.count || most < 2) {
    return {0, 1};
  }
  if (layout_->runs == 1) {  // each element is a row
    return {layout_->extent, most};
  }
  // Runs of one shape, one after the other.
  uint64_t count = 1;
  const Run* const first = &layout_->run[run_];
  const int64_t step = run_ + 1 < layout_->runs ? first[1].offset - first->offset : 0;
  while (run_ + count < layout_->runs && count < most && first[count].bytes == bytes && first[count].count == row.count &&
         first[count].stride == first->stride && first[count].offset - first[count - 1].offset == step) {
    ++count;
  }
  return {step, count};
}

/// Copies the pieces of `piece` bytes that both sides have ahead at equal steps, or, where one side has rows of what the other
/// has columns of, all such rows; returns how many bytes that was, 0 if it is a single piece.
static uint64_t copy_pieces_ahead(Walk& to, Walk& from, uint64_t piece, uint64_t bytes) {
  Walk::Row into = to.row_ahead(piece);
  Walk::Row out = from.row_ahead(piece);
  const uint64_t most = bytes / piece;
  uint64_t count = std::min(into.count, out.count);
  count = std::min(count, most);
  if (count < 2) {
    return 0;
  }
  Grid grid = {to.piece(), from.piece(), piece, {into.step, out.step, count}, {0, 0, 1}};
  if (piece <= kTurnedPiece && into.step != out.step && most / count > 1) {
    into.count = count;
    out.count = count;
    const Walk::Row rows_in = to.rows_ahead(into, piece);
    const Walk::Row rows_out = from.rows_ahead(out, piece);
    uint64_t rows = std::min(rows_in.count, rows_out.count);
    rows = std::min(rows, most / count);
    grid.outer = {rows_in.step, rows_out.step, rows};
  }
  copy_grid(grid);
  const uint64_t copied = piece * count * grid.outer.count;
  to.skip(copied);
  from.skip(copied);
  return copied;
}

void copy(Walk& to, Walk& from, uint64_t bytes) {
  while (bytes > 0) {
    uint64_t part = std::min(to.piece_bytes(), from.piece_bytes());
    part = std::min(part, bytes);
    const uint64_t copied = part > 0 && part <= kLongestPiece ? copy_pieces_ahead(to, from, part, bytes) : 0;
    if (copied == 0) {
      copy_bytes(to.piece(), from.piece(), part);
      to.pass(part);
      from.pass(part);
    }
    bytes -= copied != 0 ? copied : part;
  }
}

void copy_content(const Content& to, const Content& from) {
  Walk writer(to);
  Walk reader(from);
  copy(writer, reader, std::min(to.bytes, from.bytes));
}

}  // namespace headroom::direct
