// See call.h.
#include "collio/call.h"

#include <errno.h>
#include <stdlib.h>

#include <algorithm>
#include <new>

#include "collio/aggregator.h"
#include "collio/source.h"
#include "collio/user_memory.h"
#include "collio/window_memory.h"

namespace headroom::collio {
namespace {

/// A part of the program's memory that is read or written directly; longer parts go piece by piece.
constexpr int64_t kDirectBytes = 16 << 20;

/// All of it, where it has gaps neither in the file nor in memory.
Outcome access_directly(const CallDescription& call, int64_t position) {
  Outcome outcome;
  const int64_t bytes = call.openings[call.rank].bytes;
  char* const memory = call.user.address;
  for (int64_t done = 0; done < bytes && outcome.error == 0 && outcome.end_of_file == INT64_MAX;) {
    const int64_t part = std::min(bytes - done, kDirectBytes);
    if (call.writes) {
      if (!call.fills_holes) {
        call.file.lock(call.file, position + done, part);
      }
      outcome.error = call.file.write(call.file, memory + done, part, position + done);
      if (!call.fills_holes) {
        call.file.unlock(call.file, position + done, part);
      }
    } else {
      const int64_t got = call.file.read(call.file, memory + done, part, position + done);
      outcome.error = got < 0 ? static_cast<int>(-got) : 0;
      outcome.end_of_file = got >= 0 && got < part ? position + done + got : INT64_MAX;
    }
    done += part;
  }
  return outcome;
}

template <typename Part>
Part* make() {
  void* memory = malloc(sizeof(Part));
  return memory != nullptr ? new (memory) Part : nullptr;
}

template <typename Part>
void destroy(Part*& part) {
  if (part != nullptr) {
    part->end();
    part->~Part();
    free(part);
    part = nullptr;
  }
}

}  // namespace

int Call::slots_needed(const CallDescription& call) { return Aggregator::kSlots + Source::slots_needed(call); }

bool Call::begin(const CallDescription& call) {
  call_ = call;
  source_ = make<Source>();
  if (source_ == nullptr || !source_->begin(call_, Aggregator::kSlots)) {
    return false;
  }
  for (int each = 0; each < call.domain_count; ++each) {
    if (call.domains[each].rank == call.rank) {
      aggregator_ = make<Aggregator>();
      return aggregator_ != nullptr && aggregator_->begin(call_, call.domains[each]);
    }
  }
  return true;
}

Call::~Call() {
  destroy(source_);
  destroy(aggregator_);
}

bool Call::step() {
  const bool did = source_->step();
  return (aggregator_ != nullptr && aggregator_->step()) || did;
}

bool Call::is_done() const { return source_->is_done() && (aggregator_ == nullptr || aggregator_->is_done()); }

Outcome Call::outcome() const { return aggregator_ != nullptr ? aggregator_->outcome() : Outcome{}; }

Outcome access_alone(const CallDescription& call) {
  Outcome outcome;
  const Opening& own = call.openings[call.rank];
  if (own.bytes == 0) {
    return outcome;
  }
  if ((own.flags & kIsList) == 0 && own.end - own.first == own.bytes && call.user.layout == nullptr) {
    return access_directly(call, own.first);
  }
  // An aggregator of its own bytes, which asks nobody.
  Opening opening = own;
  const Domain domain = {0, own.first, own.end, std::min(call.most_window, kSmallestWindow)};
  CallDescription alone = call;
  alone.rank = 0;
  alone.size = 1;
  alone.openings = &opening;
  alone.domains = &domain;
  alone.domain_count = 1;
  auto* aggregator = make<Aggregator>();
  if (aggregator == nullptr || !aggregator->begin(alone, domain)) {
    outcome.error = ENOMEM;
  } else {
    while (!aggregator->is_done()) {
      if (!aggregator->step()) {
        aggregator->wait_for_job();
      }
    }
    outcome = aggregator->outcome();
  }
  destroy(aggregator);
  return outcome;
}

}  // namespace headroom::collio
