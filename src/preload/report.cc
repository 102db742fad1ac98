// See report.h. The JSON is report_json.cc's. Like that the summary is written through a buffer of our own.
#include "preload/report.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>

#include "base/log.h"
#include "base/settings.h"
#include "base/system_calls.h"
#include "preload/report_figures.h"
#include "preload/report_json.h"

namespace headroom::preload {
namespace {

struct Size {
  double number;
  const char* unit;
};

/// In MiB; from 10 GiB on in GiB.
Size in_units(uint64_t bytes) {
  constexpr uint64_t kGib = uint64_t{1} << 30;
  return bytes < 10 * kGib ? Size{mebibytes(bytes), "MiB"} : Size{static_cast<double>(bytes) / kGib, "GiB"};
}

/// The lines of a summary. All of it fits: the host's name has at most 255 characters, of the directories 1000 are shown.
class Summary {
 public:
  __attribute__((format(printf, 2, 3))) void add(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int more = vsnprintf(text_ + length_, sizeof text_ - length_, format, arguments);
    va_end(arguments);
    length_ = std::min(length_ + static_cast<size_t>(std::max(more, 0)), sizeof text_ - 1);
  }
  void write() const { (void)base::system_call(SYS_write, STDERR_FILENO, text_, length_); }

 private:
  char text_[2048];
  size_t length_ = 0;
};

void add_head(Summary& out, const node::Ledger& ledger, const char* host) {
  int members = 0;
  int died = 0;
  for (const Member& member : ledger.used_members()) {
    members += took_part(member) ? 1 : 0;
    died += member.state.load(std::memory_order_relaxed) == static_cast<uint32_t>(MemberState::kDied) ? 1 : 0;
  }
  out.add("headroom: %s: %d process%s, %.1f s", host, members, members == 1 ? "" : "es",
          static_cast<double>(base::monotonic_ns() - ledger.started_ns) / 1e9);
  if (has_failed(ledger)) {
    out.add(", ended by an error or MPI_Abort; figures up to then");
  } else if (died > 0) {
    out.add(", of which %d died", died);
  }
  out.add("\n");
}

/// `needed`: the bytes that all processes had touched at their most, each at its own time, added up; as the page of `headroom
/// report` has it.
void add_memory(Summary& out, const node::Ledger& ledger) {
  const uint64_t outside = total(ledger, Counter::kOtherBytesPeak);
  const uint64_t needed_bytes = total(ledger, Counter::kTouchedBytesPeak) + outside;
  const uint64_t allocated_bytes = total(ledger, Counter::kAllocatedBytesPeak) + total(ledger, Counter::kStaticBytes) + outside;
  const Size needed = in_units(needed_bytes);
  const Size allocated = in_units(allocated_bytes);
  const Size peak = in_units(static_cast<uint64_t>(ledger.peak_resident_bytes.load(std::memory_order_relaxed)));
  const Size budget = in_units(static_cast<uint64_t>(ledger.budget));
  out.add("headroom:   memory    %.1f %s needed, ", needed.number, needed.unit);
  if (allocated_bytes > needed_bytes + needed_bytes / 8) {
    out.add("of %.1f %s allocated, ", allocated.number, allocated.unit);
  }
  if (was_watched(ledger) || has_exceeded_unmoved(ledger)) {  // else the reserved bytes are the allocated ones
    out.add("peak %.1f %s, ", peak.number, peak.unit);
  }
  out.add("budget %.1f %s\n", budget.number, budget.unit);
}

void add_storage(Summary& out, const node::Ledger& ledger) {
  if (!was_short(ledger) && total(ledger, Counter::kBytesRead) + total(ledger, Counter::kBytesWritten) == 0) {
    if (!has_failed(ledger)) {
      const bool fits = ledger.peak_resident_bytes.load(std::memory_order_relaxed) <= ledger.budget || !was_watched(ledger);
      const bool fitted = fits && !has_exceeded_unmoved(ledger);
      out.add("headroom:   storage   not used: %s\n", fitted ? "everything fitted" : "what can be moved fitted");
    }
    return;
  }
  char engine[32] = "none";
  for (const Member& member : ledger.used_members()) {
    if (took_part(member)) {
      base::choice_name("engine", static_cast<int>(member.pager.engine.load(std::memory_order_relaxed)), engine, sizeof engine);
    }
  }
  const Size read = in_units(total(ledger, Counter::kBytesRead));
  const Size written = in_units(total(ledger, Counter::kBytesWritten));
  out.add("headroom:   storage   %.1f %s read, %.1f %s written, %.1000s\n", read.number, read.unit, written.number,
          written.unit, base::settings().storage);
  out.add("headroom:   faults    %llu (%s), %.1f s of waiting for storage or room, all processes together\n",
          static_cast<unsigned long long>(total(ledger, Counter::kFaults)), engine,
          static_cast<double>(total(ledger, Counter::kStorageWaitNs)) / 1e9);
  if (const uint64_t stood = total(ledger, Counter::kStorageFullNs); stood > 0) {
    out.add("headroom:   full      storage was full: %.1f s of standing still, all processes\n",
            static_cast<double>(stood) / 1e9);
  }
}

bool add_messages(Summary& out, const node::Ledger& ledger) {
  const auto direct = total(ledger, Counter::kMessagesDirect);
  const auto sent = direct + total(ledger, Counter::kMessagesBetween) + total(ledger, Counter::kPassedForOtherNodes) +
                    total(ledger, Counter::kPassedForCommunicator);
  const auto staged = total(ledger, Counter::kCollectivesStaged);  // the library does its part, too
  const auto direct_calls = total(ledger, Counter::kCollectivesDirect) - staged;
  const auto calls = direct_calls + staged + total(ledger, Counter::kCollectivesPassedForOtherNodes) +
                     total(ledger, Counter::kCollectivesPassedForCommunicator) +
                     total(ledger, Counter::kCollectivesPassedForOperation);
  if (sent + calls == 0) {
    return false;
  }
  out.add("headroom:   messages  ");
  if (sent > 0) {
    out.add("%llu of %llu direct, ", static_cast<unsigned long long>(direct), static_cast<unsigned long long>(sent));
  }
  if (calls > 0) {
    out.add("%llu of %llu collective calls direct, ", static_cast<unsigned long long>(direct_calls),
            static_cast<unsigned long long>(calls));
  }
  const Size content =
      in_units(total(ledger, Counter::kMessagesDirectBytes) + total(ledger, Counter::kMessagesCollectiveBytes));
  out.add("%.1f %s\n", content.number, content.unit);
  return true;
}

/// Messages to and from other nodes that were matched here.
bool add_network(Summary& out, const node::Ledger& ledger) {
  const auto sent = total(ledger, Counter::kMessagesBetween);
  const auto read = total(ledger, Counter::kRdmaMessages);
  if (sent + read == 0) {
    return false;
  }
  const Size content = in_units(total(ledger, Counter::kMessagesBetweenBytes));
  out.add("headroom:   network   %llu to other nodes, %.1f %s", static_cast<unsigned long long>(sent), content.number,
          content.unit);
  if (read > 0) {
    const Size by_card = in_units(total(ledger, Counter::kRdmaMessagesBytes));
    out.add("; %llu read by the card, %.1f %s", static_cast<unsigned long long>(read), by_card.number, by_card.unit);
  }
  out.add("\n");
  return true;
}

/// Collective calls on files, of all ranks.
bool add_files(Summary& out, const node::Ledger& ledger) {
  const auto ours = total(ledger, Counter::kIoWrites) + total(ledger, Counter::kIoReads);
  const auto calls = ours + total(ledger, Counter::kIoPassedForFileSystem) + total(ledger, Counter::kIoPassedForMode) +
                     total(ledger, Counter::kIoPassedForRepresentation) + total(ledger, Counter::kIoPassedForDatatypes) +
                     total(ledger, Counter::kIoPassedForArguments) + total(ledger, Counter::kIoPassedForCommunicator) +
                     total(ledger, Counter::kIoPassedAsAsked);
  if (calls == 0) {
    return false;
  }
  const uint64_t largest = total(ledger, Counter::kIoWindowBytesPeak);
  const Size written = in_units(total(ledger, Counter::kIoWritesBytes));
  const Size read = in_units(total(ledger, Counter::kIoReadsBytes));
  const Size window = in_units(largest);
  out.add("headroom:   files     %llu of %llu collective calls, %.1f %s written, %.1f %s read",
          static_cast<unsigned long long>(ours), static_cast<unsigned long long>(calls), written.number, written.unit,
          read.number, read.unit);
  if (largest > 0) {
    out.add(", windows of up to %.1f %s", window.number, window.unit);
  }
  out.add("\n");
  return true;
}

/// Says nothing of a run in which nothing was allocated or sent.
void write_summary(const node::Ledger& ledger, const char* host) {
  Summary out;
  add_head(out, ledger, host);
  add_memory(out, ledger);
  add_storage(out, ledger);
  const bool has_messages = add_messages(out, ledger);
  const bool has_network = add_network(out, ledger);
  const bool has_files = add_files(out, ledger);
  // Programs that have nothing large are said nothing of, unless they have much of the budget all the same.
  const bool has_much = ledger.peak_resident_bytes.load(std::memory_order_relaxed) > ledger.budget / 4;
  if (has_messages || has_network || has_files || has_much ||
      total(ledger, Counter::kAllocatedBytesPeak) + total(ledger, Counter::kStaticBytes) > 0) {
    out.write();
  }
}

}  // namespace

void write_report(const node::Session& session) {
  char host[256] = "node";
  gethostname(host, sizeof host - 1);
  if (base::settings().summary == base::SummaryChoice::kOn) {
    write_summary(*session.ledger, host);
  }
  if (*base::settings().json != 0) {
    write_json_file(*session.ledger, host, base::settings().json);
  }
  if (*base::settings().trace != 0) {
    char path[4096];
    snprintf(path, sizeof path, "%s/run.json", base::settings().trace);
    write_json_file(*session.ledger, host, path);
  }
}

}  // namespace headroom::preload
