// See source.h.
#include "collio/source.h"

#include <string.h>

#include <algorithm>
#include <new>

#include "base/system_calls.h"
#include "collio/window_memory.h"

namespace headroom::collio {
namespace {

/// Bytes of this rank's access that lie before `position`.
int64_t own_bytes_before(const CallDescription& call, int64_t position) {
  const Opening& own = call.openings[call.rank];
  if ((own.flags & kIsList) == 0) {
    return bytes_before(own, position);
  }
  return std::clamp<int64_t>(bytes_before(call.view, position) - own.skip, 0, own.bytes);
}

/// Whether an aggregator asks this rank: it does if its part of the file has some of the rank's bytes, as far as it can tell.
bool is_asked_by(const CallDescription& call, const Domain& domain) {
  const Opening& own = call.openings[call.rank];
  if (domain.rank == call.rank || own.bytes == 0) {
    return false;
  }
  return (own.flags & kIsList) != 0 ? own.first < domain.end && domain.begin < own.end
                                    : bytes_before(own, domain.begin) < bytes_before(own, domain.end);
}

}  // namespace

int Source::slots_needed(const CallDescription& call) {
  int links = 0;
  for (int each = 0; each < call.domain_count; ++each) {
    links += is_asked_by(call, call.domains[each]) ? 1 : 0;
  }
  return links * kSlotsOfLink;
}

bool Source::is_list() const { return (call_->openings[call_->rank].flags & kIsList) != 0; }

bool Source::begin(const CallDescription& call, int first_slot) {
  call_ = &call;
  first_slot_ = first_slot;
  link_count_ = slots_needed(call) / kSlotsOfLink;
  if (link_count_ == 0) {
    return true;
  }
  links_ = static_cast<Link*>(base::reserve_memory(static_cast<uint64_t>(link_count_) * sizeof(Link)));
  const bool needs_buffers = is_list() || call.user.layout != nullptr;
  buffer_bytes_ = needs_buffers ? kBuffers * kChunkBytes : 0;
  buffers_ = needs_buffers ? take_window_memory(buffer_bytes_) : nullptr;
  if (links_ == nullptr || (needs_buffers && buffers_ == nullptr)) {
    return false;
  }
  int link = 0;
  for (int each = 0; each < call.domain_count; ++each) {
    const Domain& domain = call.domains[each];
    if (is_asked_by(call, domain)) {
      const int64_t next = own_bytes_before(call, domain.begin);
      new (&links_[link]) Link{.rank = domain.rank,
                               .asked = false,
                               .held = false,
                               .tells_list = false,
                               .list_buffer = -1,
                               .next = next,
                               .left = own_bytes_before(call, domain.end) - next,
                               .ask = {},
                               .lanes = {},
                               .user = UserStream(call.user)};
      ++open_links_;
      expect(link++);
    }
  }
  return true;
}

void Source::end() {
  base::give_back_memory(links_, static_cast<uint64_t>(link_count_) * sizeof(Link));
  give_back_window_memory(buffers_, buffer_bytes_);
  links_ = nullptr;
  buffers_ = nullptr;
}

void Source::expect(int link) {
  links_[link].asked = true;
  call_->messages.receive(call_->messages.context, slot_of(link), links_[link].rank, kTagOfAsk, &links_[link].ask, sizeof(Ask));
}

bool Source::step() {
  bool did = false;
  for (int link = 0; link < link_count_; ++link) {
    did = finish_transfers(link) || did;
    Link& each = links_[link];
    if (each.asked && call_->messages.test(call_->messages.context, slot_of(link), nullptr)) {
      each.asked = false;
      each.held = true;
    }
    did = (each.held && answer(link)) || did;
  }
  return did;
}

bool Source::finish_transfers(int link) {
  Link& each = links_[link];
  const Messages& messages = call_->messages;
  bool did = false;
  if (each.tells_list && messages.test(messages.context, slot_of_list(link), nullptr)) {
    each.tells_list = false;
    buffer_used_[each.list_buffer] = false;
    --active_;
    did = true;
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    Lane& there = each.lanes[lane];
    int64_t bytes = 0;
    if (!there.active || !messages.test(messages.context, slot_of(link, lane), &bytes)) {
      continue;
    }
    if (there.buffer >= 0) {
      if (!call_->writes) {
        each.user.copy_in(there.begin, bytes, buffer(there.buffer));
      }
      buffer_used_[there.buffer] = false;
    }
    there.active = false;
    --active_;
    did = true;
  }
  return did;
}

int Source::take_buffer() {
  for (int index = 0; index < kBuffers; ++index) {
    if (!buffer_used_[index]) {
      buffer_used_[index] = true;
      return index;
    }
  }
  return -1;
}

/// Answers the question that has come, and expects the next; false if there is no lane or buffer for that yet.
bool Source::answer(int link) {
  Link& each = links_[link];
  if (each.ask.kind == kDiscardList) {
    asked_for(each, each.left);
    return true;
  }
  int lane = 0;
  while (lane < kLanes && each.lanes[lane].active) {
    ++lane;
  }
  if (lane == kLanes || !(each.ask.kind == kOfList ? answer_of_list(link, lane) : answer_of_nest(link, lane))) {
    return false;
  }
  if (each.left > 0) {
    expect(link);
  }
  return true;
}

/// A question has been answered about so many bytes.
void Source::asked_for(Link& link, int64_t bytes) {
  link.held = false;
  link.left -= bytes;
  link.next += bytes;
  open_links_ -= link.left == 0 ? 1 : 0;
}

bool Source::answer_of_nest(int link, int lane) {
  Link& each = links_[link];
  const Messages& messages = call_->messages;
  const Ask& ask = each.ask;
  if (ask.valid > 0) {
    char* place = place_in(call_->user, ask.begin);
    const int taken = place == nullptr ? take_buffer() : -1;
    if (place == nullptr && taken < 0) {
      return false;
    }
    each.lanes[lane] = {true, taken, ask.begin};
    ++active_;
    place = place != nullptr ? place : buffer(taken);
    if (!call_->writes) {
      messages.receive(messages.context, slot_of(link, lane), each.rank, kTagOfData, place, ask.valid);
    } else {
      if (taken >= 0) {
        each.user.copy_out(ask.begin, ask.valid, place);
      }
      messages.send(messages.context, slot_of(link, lane), each.rank, kTagOfData, place, ask.valid);
    }
  }
  asked_for(each, ask.bytes);
  return true;
}

/// Writes the pieces that were asked for into `code`, behind the head, and where the call writes their content into `data`.
Batch Source::write_batch(Link& link, char* code, char* data) {
  constexpr int64_t kMostOfPiece = 20;  // bytes of code
  const Opening& own = call_->openings[call_->rank];
  auto* at = reinterpret_cast<unsigned char*>(code + sizeof(Batch));
  const unsigned char* const last = reinterpret_cast<unsigned char*>(code) + kHalfChunk - kMostOfPiece;
  Batch batch = {0, 0, 0, INT64_MAX};
  int64_t position = link.ask.begin;
  ViewWalk walk(call_->view, own.skip + link.next);
  while (batch.data_bytes < std::min(link.left, kHalfChunk) && walk.position() < link.ask.valid && at < last) {
    const int64_t part =
        std::min({walk.left(), link.ask.valid - walk.position(), link.left - batch.data_bytes, kHalfChunk - batch.data_bytes});
    at += write_number(static_cast<uint64_t>(walk.position() - position), at);
    at += write_number(static_cast<uint64_t>(part), at);
    position = walk.position() + part;
    batch.data_bytes += part;
    ++batch.pieces;
    walk.pass(part);
  }
  if (call_->writes && batch.data_bytes > 0) {
    link.user.copy_out(link.next, batch.data_bytes, data);
  }
  batch.code_bytes = reinterpret_cast<char*>(at) - code - static_cast<int64_t>(sizeof(Batch));
  batch.next = batch.data_bytes < link.left ? walk.position() : INT64_MAX;
  memcpy(code, &batch, sizeof batch);
  return batch;
}

bool Source::answer_of_list(int link, int lane) {
  Link& each = links_[link];
  const Messages& messages = call_->messages;
  if (each.tells_list) {
    return false;
  }
  each.list_buffer = take_buffer();
  if (each.list_buffer < 0) {
    return false;
  }
  // An aggregator that reads gets the content's places, and sends the content; one that writes gets both at once.
  char* const code = buffer(each.list_buffer);
  const int64_t begin = each.next;
  int data_buffer = -1;
  if (!call_->writes && call_->user.layout != nullptr) {
    data_buffer = take_buffer();
    if (data_buffer < 0) {
      buffer_used_[each.list_buffer] = false;
      return false;
    }
  }
  Batch batch = write_batch(each, code, code + kHalfChunk);
  int64_t bytes = static_cast<int64_t>(sizeof batch) + batch.code_bytes;
  if (call_->writes) {
    memmove(code + bytes, code + kHalfChunk, static_cast<size_t>(batch.data_bytes));
    bytes += batch.data_bytes;
  }
  each.tells_list = true;
  ++active_;
  messages.send(messages.context, slot_of_list(link), each.rank, kTagOfList, code, bytes);
  if (!call_->writes && batch.data_bytes > 0) {
    char* place = data_buffer < 0 ? place_in(call_->user, begin) : buffer(data_buffer);
    each.lanes[lane] = {true, data_buffer, begin};
    ++active_;
    messages.receive(messages.context, slot_of(link, lane), each.rank, kTagOfData, place, batch.data_bytes);
  } else if (data_buffer >= 0) {
    buffer_used_[data_buffer] = false;
  }
  asked_for(each, batch.data_bytes);
  return true;
}

}  // namespace headroom::collio
