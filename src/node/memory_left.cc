// See memory_left.h. Some files of a few hundred bytes each: about 30 us on two levels of cgroups.
#include "node/memory_left.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>

#include "node/cgroups.h"

namespace headroom::node {
namespace {

/// The number after `name` at the beginning of a line; 0 if there is none.
int64_t number_of(const char* text, const char* name) {
  const size_t length = strlen(name);
  for (const char* line = text; line != nullptr; line = strchr(line, '\n')) {
    line += *line == '\n' ? 1 : 0;
    if (strncmp(line, name, length) == 0 && (line[length] == ' ' || line[length] == ':')) {
      return strtoll(line + length + 1, nullptr, 10);
    }
  }
  return 0;
}

/// A limit's file; INT64_MAX where it limits nothing ("max", or version 1's largest number of pages).
int64_t limit_in(const char* folder, const char* name) {
  char path[1024];
  char text[64];
  constexpr int64_t kNone = int64_t{1} << 60;
  (void)snprintf(path, sizeof path, "%s/%s", folder, name);
  if (!read_text(path, text, sizeof text) || text[0] < '0' || text[0] > '9') {
    return INT64_MAX;
  }
  const int64_t limit = strtoll(text, nullptr, 10);
  return limit > kNone ? INT64_MAX : limit;
}

/// The bytes that one cgroup may still use.
int64_t left_in(const char* folder, bool unified) {
  const int64_t limit = unified ? std::min(limit_in(folder, "memory.max"), limit_in(folder, "memory.high"))
                                : limit_in(folder, "memory.limit_in_bytes");
  const int64_t used = limit == INT64_MAX ? INT64_MAX : limit_in(folder, unified ? "memory.current" : "memory.usage_in_bytes");
  if (used == INT64_MAX) {
    return INT64_MAX;
  }
  char path[1024];
  char text[8192];
  (void)snprintf(path, sizeof path, "%s/memory.stat", folder);
  int64_t clean = 0;
  if (read_text(path, text, sizeof text)) {
    const char* const names_unified[] = {"active_file", "inactive_file", "file_dirty", "file_writeback"};
    const char* const names_of_first[] = {"total_active_file", "total_inactive_file", "total_dirty", "total_writeback"};
    const char* const* names = unified ? names_unified : names_of_first;
    clean = number_of(text, names[0]) + number_of(text, names[1]) - number_of(text, names[2]) - number_of(text, names[3]);
  }
  return std::max<int64_t>(limit - used + std::max<int64_t>(clean, 0), 0);
}

}  // namespace

int64_t memory_left(const char* own_cgroups, const char* root, const char* memory) {
  char text[4096];
  int64_t least = INT64_MAX;
  if (read_text(memory, text, sizeof text)) {
    least = number_of(text, "MemAvailable") << 10;
  }
  visit_cgroups(
      own_cgroups, root, "memory",
      [](const char* folder, bool unified, void* so_far) {
        auto& left = *static_cast<int64_t*>(so_far);
        left = std::min(left, left_in(folder, unified));
      },
      &least);
  return least;
}

}  // namespace headroom::node
