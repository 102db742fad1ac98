// See report.h. The shape of the JSON is described in docs/user/report.md.
//
// Written through a buffer of our own with nothing but vsnprintf and write, since it is also written when this process ends by
// an error: another thread may then hold the allocator's lock for ever, waiting for memory.
#include "preload/report.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>

#include "base/log.h"
#include "base/settings.h"
#include "base/system_calls.h"
#include "trace/counters.h"

namespace headroom::preload {
namespace {

using node::Member;
using node::MemberState;
using trace::Counter;

bool took_part(const Member& member) {
  const MemberState state = node::state_of(member);
  return state != MemberState::kEmpty && state != MemberState::kJoining;
}

uint64_t counter(const Member& member, Counter which) {
  return member.counters[static_cast<int>(which)].load(std::memory_order_relaxed);
}

/// The sum of all processes' (of those that say how much memory a process had at most: of what each had at its own time); or
/// the most of any, where only that means something.
uint64_t total(const node::Ledger& ledger, Counter which) {
  const bool is_most =
      which == Counter::kSlotWaitNsPeak || which == Counter::kMessagesUnexpectedPeak || which == Counter::kIoWindowBytesPeak;
  uint64_t all = 0;
  for (const Member& member : ledger.used_members()) {
    if (took_part(member)) {
      const uint64_t one = counter(member, which);
      all = !is_most ? all + one : std::max(one, all);
    }
  }
  return all;
}

/// Whether something had to leave memory.
bool was_short(const node::Ledger& ledger) { return ledger.lacked_room_ns.load(std::memory_order_relaxed) != 0; }

/// Whether memory was watched, since an allocation did not fit.
bool was_watched(const node::Ledger& ledger) { return ledger.short_memory.load(std::memory_order_relaxed) != 0; }

double mebibytes(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

/// Whether the first process that ended by an error of Headroom's, or by MPI_Abort, is writing this.
bool has_failed(const node::Ledger& ledger) { return ledger.reporter.load(std::memory_order_relaxed) != 0; }

const char* state_name(const Member& member) {
  switch (node::state_of(member)) {
    case MemberState::kDied:
      return "died";
    case MemberState::kAlive:
      return "running";
    default:
      return "ended";
  }
}

/// A file that text is written to. It gets its name when all is in it, so that a process that is killed while it writes leaves
/// no half of a report; but where the file system has no files without names, or the name is not one of a plain file.
class Output {
 public:
  explicit Output(const char* path) : path_(path) {}
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  ~Output() = default;

  __attribute__((format(printf, 2, 3))) void print(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    char text[512];
    const int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    for (int index = 0; index < length && index < static_cast<int>(sizeof text) - 1; ++index) {
      put(text[index]);
    }
  }

  void put(char byte) {
    buffer_[filled_++] = byte;
    if (filled_ == sizeof buffer_) {
      flush();
    }
  }

  /// Ends the file; 0, or the errno of what went wrong.
  int close() {
    flush();
    if (file_ >= 0 && is_nameless_ && error_ == 0) {
      give_name();
    }
    if (file_ >= 0 && base::is_error(base::system_call(SYS_close, file_)) && error_ == 0) {
      error_ = EIO;
    }
    return error_;
  }

 private:
  void open_file() {
    struct stat status = {};
    const int known = fstatat(AT_FDCWD, path_, &status, AT_SYMLINK_NOFOLLOW);
    const char* slash = strrchr(path_, '/');
    const size_t length = slash == nullptr ? 0 : static_cast<size_t>(slash - path_) + 1;
    char folder[PATH_MAX] = ".";
    if ((known != 0 || S_ISREG(status.st_mode)) && length < sizeof folder) {
      memcpy(folder, slash == nullptr ? "." : path_, slash == nullptr ? 1 : length);
      file_ = base::system_call(SYS_openat, AT_FDCWD, folder, O_RDWR | O_TMPFILE | O_CLOEXEC, 0666);
      is_nameless_ = !base::is_error(file_);
    }
    if (!is_nameless_) {
      file_ = base::system_call(SYS_openat, AT_FDCWD, path_, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
      error_ = base::is_error(file_) ? static_cast<int>(-file_) : 0;
    }
  }

  /// Puts the file where the one before is, if there is one.
  void give_name() {
    char nameless[64];
    (void)snprintf(nameless, sizeof nameless, "/proc/self/fd/%ld", file_);
    long result = -EEXIST;
    for (int attempt = 0; result == -EEXIST && attempt < 16; ++attempt) {  // another process may be at it, too
      (void)base::system_call(SYS_unlinkat, AT_FDCWD, path_, 0);
      result = base::system_call(SYS_linkat, AT_FDCWD, nameless, AT_FDCWD, path_, AT_SYMLINK_FOLLOW);
    }
    if (base::is_error(result)) {  // a mount point, or no /proc
      copy_to_name();
    }
  }

  void copy_to_name() {
    const long from = file_;
    file_ = base::system_call(SYS_openat, AT_FDCWD, path_, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    error_ = base::is_error(file_) ? static_cast<int>(-file_) : 0;
    for (uint64_t at = 0; error_ == 0;) {
      const long bytes = base::system_call(SYS_pread64, from, buffer_, sizeof buffer_, at);
      if (bytes <= 0) {
        break;
      }
      at += static_cast<uint64_t>(bytes);
      filled_ = static_cast<size_t>(bytes);
      flush();
    }
    (void)base::system_call(SYS_close, from);
  }

  void flush() {
    if (file_ < 0 && error_ == 0) {
      open_file();
    }
    for (size_t done = 0; done < filled_ && error_ == 0;) {
      const long written = base::system_call(SYS_write, file_, buffer_ + done, filled_ - done);
      if (base::is_error(written)) {
        error_ = written == -EINTR ? 0 : static_cast<int>(-written);
      } else {
        done += static_cast<size_t>(written);
      }
    }
    filled_ = 0;
  }

  const char* path_;
  long file_ = -1;
  bool is_nameless_ = false;
  int error_ = 0;
  size_t filled_ = 0;
  static inline char buffer_[64 << 10];  // one report is written at a time, by one thread of a process
};

/// A string in JSON's quotes; our strings hold file names and host names.
void write_string(Output& out, const char* text) {
  out.put('"');
  for (; *text != 0; ++text) {
    const auto byte = static_cast<unsigned char>(*text);
    if (byte == '"' || byte == '\\') {
      out.print("\\%c", byte);
    } else if (byte < 0x20) {
      out.print("\\u%04x", byte);
    } else {
      out.put(static_cast<char>(byte));
    }
  }
  out.put('"');
}

void write_member(Output& out, const Member& member) {
  char word[32];
  out.print("    {\"rank\": %d, \"process\": %d, \"program\": ", member.rank.load(std::memory_order_relaxed),
            member.pid.load(std::memory_order_relaxed));
  write_string(out, member.executable);
  out.print(", \"end\": \"%s\", \"mpi\": \"%s\"", state_name(member), member.abi);
  out.print(
      ", \"engine\": \"%s\"",
      base::choice_name("engine", static_cast<int>(member.pager.engine.load(std::memory_order_relaxed)), word, sizeof word));
  out.print(
      ", \"store\": \"%s\"",
      base::choice_name("store", static_cast<int>(member.pager.store.load(std::memory_order_relaxed)), word, sizeof word));
  out.print(", \"store_direct\": %s", member.pager.store_direct.load(std::memory_order_relaxed) != 0 ? "true" : "false");
  out.print(", \"armed\": %s", member.pager.armed.load(std::memory_order_relaxed) != 0 ? "true" : "false");
  out.print(", \"collectives\": \"%s\"",
            member.nonblocking_collectives.load(std::memory_order_relaxed) != 0 ? "nonblocking" : "blocking");
  for (int index = 0; index < trace::kCounterCount; ++index) {
    out.print(", \"%s\": %llu", trace::kCounterNames[index],
              static_cast<unsigned long long>(member.counters[index].load(std::memory_order_relaxed)));
  }
  out.print("}");
}

void write_read_time(Output& out, const char* what, const node::ReadTime& time) {
  out.print("\"%s\": {\"median\": %u, \"samples\": %u}", what, time.median_ns.load(std::memory_order_relaxed),
            time.samples.load(std::memory_order_relaxed));
}

void write_json(Output& out, const node::Ledger& ledger, const char* host) {
  char word[32];
  out.print("{\n  \"format\": \"headroom-run-1\",\n  \"host\": ");
  write_string(out, host);
  out.print(",\n  \"budget_bytes\": %lld,\n  \"peak_resident_bytes\": %lld,\n  \"peak_counted_bytes\": %lld,\n",
            static_cast<long long>(ledger.budget),
            static_cast<long long>(ledger.peak_resident_bytes.load(std::memory_order_relaxed)),
            static_cast<long long>(ledger.peak_reserved_bytes.load(std::memory_order_relaxed)));
  out.print("  \"storage\": ");
  write_string(out, base::settings().storage);
  out.print(",\n  \"storage_added\": [");
  int added = 0;
  for (const node::AddedDirectory& directory : ledger.added_directories) {
    if (directory.ready.load(std::memory_order_acquire) != 0) {
      out.print("%s", added++ > 0 ? ", " : "");
      write_string(out, directory.path);
    }
  }
  out.print("],\n  \"read_times_ns\": {");
  write_read_time(out, "page", ledger.read_page);
  out.print(", ");
  write_read_time(out, "block", ledger.read_block);
  out.print(", ");
  write_read_time(out, "transfer", ledger.read_transfer);
  out.print("}");
  out.print(",\n");
  out.print("  \"slots\": %u,\n  \"most_slots_held\": %u,\n  \"most_slots_held_with_lent\": %u,\n", ledger.slots(),
            ledger.most_held_slots.load(std::memory_order_relaxed), ledger.most_held_with_lent.load(std::memory_order_relaxed));
  out.print("  \"cores\": %u,\n  \"watched\": %s,\n  \"short_of_memory\": %s,\n", ledger.cores(),
            was_watched(ledger) ? "true" : "false", was_short(ledger) ? "true" : "false");
  out.print("  \"failed\": %s,\n", has_failed(ledger) ? "true" : "false");
  out.print("  \"elapsed_s\": %.3f,\n  \"modes\": [", static_cast<double>(base::monotonic_ns() - ledger.started_ns) / 1e9);
  const uint32_t changes = ledger.mode_changes.load(std::memory_order_acquire);
  for (uint32_t index = 0; index < changes; ++index) {
    const auto& change = ledger.modes[index];
    out.print("%s{\"at_s\": %.3f, \"mode\": \"%s\"}", index == 0 ? "" : ", ",
              static_cast<double>(change.at_ns.load(std::memory_order_acquire)) / 1e9,
              base::choice_name("mode", static_cast<int>(change.mode.load(std::memory_order_relaxed)), word, sizeof word));
  }
  out.print("],\n  \"total\": {");
  for (int index = 0; index < trace::kCounterCount; ++index) {
    out.print("%s\"%s\": %llu", index == 0 ? "" : ", ", trace::kCounterNames[index],
              static_cast<unsigned long long>(total(ledger, static_cast<Counter>(index))));
  }
  out.print("},\n  \"ranks\": [\n");
  bool first = true;
  for (const Member& member : ledger.used_members()) {
    if (took_part(member)) {
      out.print("%s", first ? "" : ",\n");
      write_member(out, member);
      first = false;
    }
  }
  out.print("\n  ]\n}\n");
}

bool has_rank_zero(const node::Ledger& ledger) {
  for (const Member& member : ledger.used_members()) {
    if (took_part(member) && member.rank.load(std::memory_order_relaxed) == 0) {
      return true;
    }
  }
  return false;
}

bool has_ranks(const node::Ledger& ledger) {
  for (const Member& member : ledger.used_members()) {
    if (took_part(member) && member.rank.load(std::memory_order_relaxed) >= 0) {
      return true;
    }
  }
  return false;
}

void write_json_file(const node::Ledger& ledger, const char* host, const char* name) {
  char path[4096];
  const bool first_node = has_rank_zero(ledger) || !has_ranks(ledger);
  snprintf(path, sizeof path, first_node ? "%s" : "%s.%s", name, host);
  Output out(path);
  write_json(out, ledger, host);
  if (const int error = out.close()) {
    base::log_warning("cannot write the figures to %s: %s", path, strerror(error));
  }
}

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
  if (was_watched(ledger)) {  // before, the reserved bytes are the allocated ones
    out.add("peak %.1f %s, ", peak.number, peak.unit);
  }
  out.add("budget %.1f %s\n", budget.number, budget.unit);
}

void add_storage(Summary& out, const node::Ledger& ledger) {
  if (!was_short(ledger) && total(ledger, Counter::kBytesRead) + total(ledger, Counter::kBytesWritten) == 0) {
    if (!has_failed(ledger)) {
      const bool fitted = ledger.peak_resident_bytes.load(std::memory_order_relaxed) <= ledger.budget || !was_watched(ledger);
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
