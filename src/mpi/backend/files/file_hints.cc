// See file_hints.h.
#include "mpi/backend/files/file_hints.h"

#include <unistd.h>

#include <fcntl.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "base/system_calls.h"
#include "collio/functions.h"
#include "mpi/backend/abi.h"
#include "mpi/backend/files/files.h"
#include "mpi/backend/guards.h"

namespace headroom::mpi {
namespace {

/// The file's text, read once.
const char* text_of_hints_file() {
  static char text[4096];
  static bool is_read = false;
  const base::LockHolder lock(io_files_lock);
  if (!is_read) {
    is_read = true;
    const char* path = getenv("ROMIO_HINTS");
    int descriptor = path != nullptr ? core->io.open_file(path, O_RDONLY) : -1;
    descriptor = descriptor < 0 ? core->io.open_file("/etc/romio-hints", O_RDONLY) : descriptor;
    if (descriptor >= 0) {
      const collio::FileAccess file = core->io.posix_file(descriptor);
      const int64_t bytes = file.read(file, text, sizeof text - 1, 0);
      text[std::max<int64_t>(bytes, 0)] = 0;
      char* const last = strrchr(text, '\n');
      if (bytes == sizeof text - 1 && last != nullptr) {
        last[1] = 0;  // the rest of a line that does not fit means something else
      }
      core->io.close_file(descriptor);
    }
  }
  return text;
}

/// The value of a hint in the hints file.
bool hint_in_file(const char* name, char (&value)[kHintBytes]) {
  const size_t letters = strlen(name);
  for (const char* line = text_of_hints_file(); *line != 0;) {
    line += strspn(line, " \t\n");
    const size_t length = strcspn(line, "\n");
    if (strncmp(line, name, letters) == 0 && (line[letters] == ' ' || line[letters] == '\t')) {
      const char* begin = line + letters + strspn(line + letters, " \t");
      const size_t kept = std::min(strcspn(begin, " \t\n"), sizeof value - 1);
      memcpy(value, begin, kept);
      value[kept] = 0;
      return kept > 0;
    }
    line += length;
  }
  return false;
}

}  // namespace

bool hint_in(MPI_Info info, const char* name, char (&value)[kHintBytes]) {
  int found = 0;
  if (info != MPI_INFO_NULL && real.Info_get[1] != nullptr) {
    const InsideLibrary inside;
    real.Info_get[1](info, name, sizeof value - 1, value, &found);
  }
  return found != 0;
}

bool hint_of(MPI_Info info, const char* name, char (&value)[kHintBytes]) {
  return hint_in(info, name, value) || hint_in_file(name, value);
}

bool may_aggregate(MPI_Info info) {
  char list[kHintBytes];
  char host[256] = "";
  if (!hint_of(info, "cb_config_list", list) || gethostname(host, sizeof host - 1) != 0) {
    return true;
  }
  for (const char* each = list; *each != 0;) {
    const size_t length = strcspn(each, ",");
    const size_t letters = std::min(strcspn(each, ":"), length);
    const bool is_this = (letters == 1 && *each == '*') || (letters == strlen(host) && strncmp(each, host, letters) == 0);
    if (is_this) {
      return length - letters != 2 || each[letters + 1] != '0';
    }
    each += length + (each[length] == ',' ? 1 : 0);
  }
  return false;
}

void take_limits(const IoFile& file, MPI_Info info, FileCard& card) {
  char value[kHintBytes];
  card.most_window = file.limits.most_window;
  card.most_aggregators = file.limits.most_aggregators;
  if (hint_of(info, "cb_buffer_size", value)) {
    const long long bytes = strtoll(value, nullptr, 10) / 2;  // there are two windows
    card.most_window = bytes > 0 ? std::max<int64_t>(bytes, 4096) : card.most_window;
  }
  if (hint_of(info, "cb_nodes", value)) {
    const int most = atoi(value);
    card.most_aggregators = most > 0 ? most : card.most_aggregators;
  }
}

void take_ways(IoFile& file, MPI_Info info, Hints hints) {
  char value[kHintBytes];
  const char* const names[] = {"romio_cb_read", "romio_cb_write"};
  for (int writes = 0; writes < 2; ++writes) {
    if (hints(info, names[writes], value)) {
      file.stays_apart[writes] = strcmp(value, "disable") == 0;
    }
  }
  if (hints(info, "collective_buffering", value)) {
    file.stays_apart[0] = file.stays_apart[1] = strcmp(value, "false") == 0;
  }
}

void take_view_hint(IoFile& file, MPI_Info info, Hints hints) {
  char value[kHintBytes];
  if (hints(info, "headroom_view", value)) {
    file.view_hint = strcmp(value, "now") == 0    ? ViewHint::kNow
                     : strcmp(value, "late") == 0 ? ViewHint::kAsLateAsPossible
                                                  : ViewHint::kUnlessItIsLarge;
  }
}

}  // namespace headroom::mpi
