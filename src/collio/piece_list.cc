// See piece_list.h.
#include "collio/piece_list.h"

#include <stdlib.h>
#include <string.h>

#include <algorithm>

namespace headroom::collio {
namespace {

constexpr int64_t kPiecesPerCheckpoint = 256;
/// A list that is longer is not worth its memory, and no library could keep it either.
constexpr int64_t kMostPieces = int64_t{1} << 28;
constexpr uint64_t kMostOfNumber = 10;  // bytes

/// Makes room for one more; false if there is no memory.
template <typename T, typename Count>
bool grow(T*& memory, Count& room, Count needed) {
  if (needed <= room) {
    return true;
  }
  const Count wanted = std::max<Count>(needed, room * 3 / 2 + 64);
  void* larger = realloc(memory, static_cast<size_t>(wanted) * sizeof(T));
  if (larger == nullptr) {
    return false;
  }
  memory = static_cast<T*>(larger);
  room = wanted;
  return true;
}

}  // namespace

int write_number(uint64_t number, unsigned char* to) {
  int bytes = 0;
  for (; number > 0x7f; number >>= 7) {
    to[bytes++] = static_cast<unsigned char>(number | 0x80);
  }
  to[bytes++] = static_cast<unsigned char>(number);
  return bytes;
}

PieceList::~PieceList() {
  free(code_);
  free(checkpoints_);
}

bool PieceList::write_number(uint64_t number) {
  if (!grow(code_, code_room_, code_bytes_ + kMostOfNumber)) {
    return false;
  }
  code_bytes_ += static_cast<uint64_t>(collio::write_number(number, code_ + code_bytes_));
  return true;
}

bool PieceList::write_pending() {
  if (pending_bytes_ == 0) {
    return true;
  }
  if (pieces_ % kPiecesPerCheckpoint == 0) {
    if (!grow(checkpoints_, checkpoint_room_, checkpoint_count_ + 1)) {
      return false;
    }
    checkpoints_[checkpoint_count_++] = {written_end_, written_bytes_, code_bytes_};
  }
  const bool written =
      write_number(static_cast<uint64_t>(pending_ - written_end_)) && write_number(static_cast<uint64_t>(pending_bytes_));
  ++pieces_;
  written_end_ = pending_ + pending_bytes_;
  written_bytes_ += pending_bytes_;
  pending_bytes_ = 0;
  return written;
}

bool PieceList::add(int64_t position, int64_t bytes) {
  if (bytes == 0) {
    return true;
  }
  if (bytes_ == 0) {
    first_ = position;
    written_end_ = position;
  } else if (position == end_) {
    pending_bytes_ += bytes;
    bytes_ += bytes;
    end_ += bytes;
    return true;
  } else if (position < end_ || pieces_ >= kMostPieces || !write_pending()) {
    return false;
  }
  pending_ = position;
  pending_bytes_ = bytes;
  bytes_ += bytes;
  end_ = position + bytes;
  return true;
}

bool PieceList::add(const Nest& nest) {
  int64_t left = bytes_of(nest);
  bool added = true;
  if (left == 0) {
    return true;
  }
  for (NestWalk walk(nest, 0); added && left > 0;) {
    const int64_t bytes = walk.left();
    added = add(walk.position(), bytes);
    left -= bytes;
    walk.pass(bytes);
  }
  return added;
}

bool PieceList::add(const PieceList& other, int64_t offset) {
  bool added = true;
  for (PieceWalk walk(other, 0); added && walk.left() > 0; walk.pass(walk.left())) {
    added = add(offset + walk.position(), walk.left());
  }
  return added;
}

bool PieceList::end_list() {
  if (!write_pending()) {
    return false;
  }
  // Memory that is not needed is given back; where that fails the list is merely larger.
  if (void* smaller = code_bytes_ > 0 ? realloc(code_, code_bytes_) : nullptr) {
    code_ = static_cast<unsigned char*>(smaller);
    code_room_ = code_bytes_;
  }
  return true;
}

int64_t PieceList::size() const {
  return static_cast<int64_t>(code_room_) + checkpoint_room_ * static_cast<int64_t>(sizeof(Checkpoint));
}

int64_t PieceList::bytes_before(int64_t position) const {
  if (bytes_ == 0 || position <= first_) {
    return 0;
  }
  if (position >= end_) {
    return bytes_;
  }
  const Checkpoint* after = std::upper_bound(checkpoints_, checkpoints_ + checkpoint_count_, position,
                                             [](int64_t at, const Checkpoint& each) { return at < each.position; });
  const Checkpoint& from = after == checkpoints_ ? *after : after[-1];
  int64_t before = from.offset;
  for (PieceWalk walk(*this, from); walk.left() > 0 && walk.position() < position; walk.pass(walk.left())) {
    before += std::min(walk.left(), position - walk.position());
  }
  return before;
}

PieceWalk::PieceWalk(const PieceList& list, const PieceList::Checkpoint& from)
    : list_(&list), at_(from.at), position_(from.position) {
  read_piece();
}

PieceWalk::PieceWalk(const PieceList& list, int64_t offset) : list_(&list) {
  if (list.checkpoint_count_ == 0) {
    return;
  }
  const PieceList::Checkpoint* after =
      std::upper_bound(list.checkpoints_, list.checkpoints_ + list.checkpoint_count_, offset,
                       [](int64_t at, const PieceList::Checkpoint& each) { return at < each.offset; });
  const PieceList::Checkpoint& from = after[-1];  // the first one's offset is 0
  at_ = from.at;
  position_ = from.position;
  read_piece();
  for (int64_t skip = offset - from.offset; skip > 0 && left_ > 0;) {
    const int64_t part = std::min(skip, left_);
    pass(part);
    skip -= part;
  }
}

uint64_t PieceWalk::read_number() {
  const unsigned char* at = list_->code_ + at_;
  const uint64_t number = collio::read_number(at);
  at_ = static_cast<uint64_t>(at - list_->code_);
  return number;
}

void PieceWalk::read_piece() {
  if (at_ == list_->code_bytes_) {
    left_ = 0;
    return;
  }
  position_ += static_cast<int64_t>(read_number());
  left_ = static_cast<int64_t>(read_number());
}

int64_t bytes_before(const ViewOfPieces& view, int64_t position) {
  const int64_t reach = position - view.origin - view.list->first();
  if (reach <= 0) {
    return 0;
  }
  const int64_t whole = reach / view.extent;
  return whole * view.list->bytes() + view.list->bytes_before(position - view.origin - whole * view.extent);
}

ViewWalk::ViewWalk(const ViewOfPieces& view, int64_t offset)
    : view_(view),
      base_(view.origin + offset / view.list->bytes() * view.extent),
      walk_(*view.list, offset % view.list->bytes()) {}

void ViewWalk::pass(int64_t bytes) {
  walk_.pass(bytes);
  if (walk_.left() == 0) {
    base_ += view_.extent;
    walk_ = PieceWalk(*view_.list, 0);
  }
}

}  // namespace headroom::collio
