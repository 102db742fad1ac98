// See report_json.h.
//
// Written through a buffer of our own with nothing but vsnprintf and write, since it is also written when this process ends by
// an error: another thread may then hold the allocator's lock for ever, waiting for memory.
#include "preload/report_json.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>

#include "base/log.h"
#include "base/settings.h"
#include "base/system_calls.h"
#include "preload/report_figures.h"

namespace headroom::preload {
namespace {

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
  out.print(", \"end\": \"%s\", \"mpi\": \"%s\"", state_name(member), member.mpi.abi);
  out.print(
      ", \"engine\": \"%s\"",
      base::choice_name("engine", static_cast<int>(member.pager.engine.load(std::memory_order_relaxed)), word, sizeof word));
  out.print(
      ", \"store\": \"%s\"",
      base::choice_name("store", static_cast<int>(member.pager.store.load(std::memory_order_relaxed)), word, sizeof word));
  out.print(", \"store_direct\": %s", member.pager.store_direct.load(std::memory_order_relaxed) != 0 ? "true" : "false");
  out.print(", \"armed\": %s", member.pager.armed.load(std::memory_order_relaxed) != 0 ? "true" : "false");
  out.print(", \"collectives\": \"%s\"",
            member.mpi.nonblocking_collectives.load(std::memory_order_relaxed) != 0 ? "nonblocking" : "blocking");
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

}  // namespace

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

}  // namespace headroom::preload
