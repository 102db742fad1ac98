// See messenger.h.
#include "rpipe/messenger.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/system_calls.h"
#include "rpipe/counted_memory.h"
#include "rpipe/host.h"
#include "rpipe/shared.h"

namespace headroom::rpipe {

namespace {

constexpr int kFrameTag = RPIPE_TAG_OF_FRAMES;
constexpr int kContentTag = 2;
constexpr int kTagsOfContent = 4096;  // so that content does not come where that of another frame was to; MPI has tags to 32767
constexpr uint64_t kSlotBytes = kFrameBytes + kContentWithFrame;
constexpr uint64_t kSmallSlotBytes = 128;  // of frames with little content, which are most
constexpr uint64_t kSlotsAtOnce = 64;
constexpr int kMostNotOver = 8;  // sends that are looked at: they are over in their order, more or less
constexpr size_t kPosted = 16;   // receives for frames of each rank
constexpr uint64_t kMostBytes = RPIPE_MOST_BYTES_OF_MESSAGE;
constexpr int kMostFramesAtOnce = 64;  // of one rank, before others are looked after

int content_tag_of(const Frame& frame) { return kContentTag + 4 * static_cast<int>(frame.number % kTagsOfContent); }

}  // namespace

Messenger::~Messenger() {
  give_back_counted(counted_);
  for (const Content& content : contents_) {
    base::give_back_memory(content.dropped, content.frame.content);
  }
}

std::vector<char*>& Messenger::free_slots(uint64_t bytes) { return bytes == kSlotBytes ? free_slots_ : free_small_slots_; }

char* Messenger::take_slot(uint64_t bytes) {
  std::vector<char*>& free = free_slots(bytes);
  if (free.empty()) {
    const uint64_t wanted = whole_pieces(kSlotsAtOnce * bytes);
    const MemoryFile::Piece piece = memory_.allocate_populated(wanted);
    if (piece.at == nullptr) {
      return nullptr;
    }
    if (host() != nullptr && host()->take(wanted)) {  // counted, if there is room: a rank that cannot send can end no wait
      counted_ += wanted;
    }
    for (uint64_t at = 0; at + bytes <= wanted; at += bytes) {
      free.push_back(piece.at + at);
    }
  }
  char* const slot = free.back();
  free.pop_back();
  return slot;
}

void Messenger::fail(int rank) {
  heard_[rank].is_broken = true;
  handler_.handle_failure(rank);
}

// ---- sending -------------------------------------------------------------------------------------------------------------

int Messenger::send(int rank, const Frame& frame, const char* content) {
  const uint64_t with_frame = frame.content <= kContentWithFrame ? frame.content : 0;
  const uint64_t slot_bytes = kFrameBytes + with_frame <= kSmallSlotBytes ? kSmallSlotBytes : kSlotBytes;
  char* const slot = take_slot(slot_bytes);
  if (slot == nullptr) {
    return -ENOMEM;
  }
  Frame numbered = frame;
  numbered.number = sent_[rank] + 1;
  memcpy(slot, &numbered, sizeof numbered);
  if (with_frame > 0) {
    memcpy(slot + kFrameBytes, content, with_frame);
  }
  Send send = {0, slot, slot_bytes, rank, frame.record};
  int error = transport_.send(rank, kFrameTag, slot, kFrameBytes + with_frame, &send.request);
  if (error != 0) {
    free_slots(slot_bytes).push_back(slot);
    fail(rank);
    return error;
  }
  sends_.push_back(send);
  ++sent_[rank];
  for (uint64_t at = 0; with_frame == 0 && at < frame.content && error == 0; at += kMostBytes) {
    Send part = {0, nullptr, 0, rank, frame.record};
    error =
        transport_.send(rank, content_tag_of(numbered), content + at, std::min(kMostBytes, frame.content - at), &part.request);
    if (error == 0) {
      sends_.push_back(part);
    }
  }
  if (error != 0) {
    fail(rank);
  }
  return error;
}

void Messenger::move_sends() {
  int not_over = 0;
  for (size_t each = 0; each < sends_.size() && not_over < kMostNotOver;) {
    const Send send = sends_[each];
    const int result = transport_.test(&sends_[each].request);
    if (result == 0) {
      ++not_over;
      ++each;
      continue;
    }
    if (send.slot != nullptr) {
      free_slots(send.slot_bytes).push_back(send.slot);
    }
    sends_.erase(sends_.begin() + static_cast<ptrdiff_t>(each));
    if (result < 0) {
      fail(send.rank);
    }
  }
}

bool Messenger::is_sending_content_of(uint32_t record) const {
  return std::any_of(sends_.begin(), sends_.end(),
                     [&](const Send& send) { return send.slot == nullptr && send.record == record; });
}

uint64_t Messenger::sent_to(int rank) const {
  const auto found = sent_.find(rank);
  return found == sent_.end() ? 0 : found->second;
}

// ---- receiving -----------------------------------------------------------------------------------------------------------

int Messenger::post(int rank, Heard& heard, size_t each) {
  return transport_.receive(rank, kFrameTag, heard.slots[each], kSlotBytes, &heard.requests[each]);
}

int Messenger::hear(int rank) {
  if (heard_.contains(rank)) {
    return 0;
  }
  Heard heard;
  for (size_t each = 0; each < kPosted; ++each) {
    heard.slots.push_back(take_slot(kSlotBytes));
    heard.requests.push_back(0);
    if (heard.slots.back() == nullptr) {
      heard.slots.pop_back();
      free_slots_.insert(free_slots_.end(), heard.slots.begin(), heard.slots.end());
      return -ENOMEM;
    }
  }
  Heard& kept = heard_[rank] = std::move(heard);
  for (size_t each = 0; each < kPosted; ++each) {
    if (post(rank, kept, each) != 0) {
      fail(rank);
      break;
    }
  }
  return 0;
}

uint64_t Messenger::received_from(int rank) const {
  const auto found = heard_.find(rank);
  return found == heard_.end() ? 0 : found->second.is_broken ? UINT64_MAX : found->second.received;
}

void Messenger::receive_content(int rank, const Frame& frame) {
  char* into = handler_.handle_frame(rank, frame, nullptr);
  Content content = {rank, frame, {}, nullptr, false};
  if (into == nullptr) {
    into = content.dropped = static_cast<char*>(base::reserve_memory(frame.content));
  }
  int error = into == nullptr ? -ENOMEM : 0;
  for (uint64_t at = 0; error == 0 && at < frame.content; at += kMostBytes) {
    uint64_t request = 0;
    error = transport_.receive(rank, content_tag_of(frame), into + at, std::min(kMostBytes, frame.content - at), &request);
    if (error == 0) {
      content.requests.push_back(request);
    }
  }
  if (error != 0) {  // the content that follows cannot be told from what comes after it
    fail(rank);
    return;
  }
  contents_.push_back(std::move(content));
}

bool Messenger::hear_one(int rank, Heard& heard) {
  if (heard.is_broken) {
    return false;
  }
  const int result = transport_.test(&heard.requests[heard.next]);
  if (result < 0) {
    fail(rank);
  }
  if (result <= 0) {
    return false;
  }
  const char* const slot = heard.slots[heard.next];
  ++heard.received;
  Frame frame;
  memcpy(&frame, slot, sizeof frame);
  if (frame.number != heard.received) {
    fail(rank);  // a network has lost some
    return false;
  }
  if (frame.content > kContentWithFrame) {
    receive_content(rank, frame);
  } else {
    (void)handler_.handle_frame(rank, frame, slot + kFrameBytes);
  }
  if (post(rank, heard, heard.next) != 0) {
    fail(rank);
  }
  heard.next = (heard.next + 1) % kPosted;
  return true;
}

void Messenger::move_contents() {
  for (size_t each = 0; each < contents_.size();) {
    Content& content = contents_[each];
    std::erase_if(content.requests, [&](uint64_t& request) {
      const int result = transport_.test(&request);
      content.has_failed |= result < 0;
      return result != 0;
    });
    if (!content.requests.empty()) {
      ++each;
      continue;
    }
    if (content.has_failed) {
      fail(content.rank);
    } else if (content.dropped == nullptr) {
      handler_.handle_content(content.rank, content.frame);
    }
    if (!content.has_failed) {  // else it may come still
      base::give_back_memory(content.dropped, content.frame.content);
    }
    contents_.erase(contents_.begin() + static_cast<ptrdiff_t>(each));
  }
}

void Messenger::move() {
  if (transport_.move != nullptr) {
    transport_.move();
  }
  move_sends();
  for (auto& [rank, heard] : heard_) {
    for (int frames = 0; frames < kMostFramesAtOnce && hear_one(rank, heard); ++frames) {
    }
  }
  move_contents();
}

void Messenger::stop() {
  for (auto& [rank, heard] : heard_) {
    for (uint64_t& request : heard.requests) {
      if (!heard.is_broken) {
        transport_.cancel(&request);
      }
    }
    heard.is_broken = true;
  }
}

}  // namespace headroom::rpipe
