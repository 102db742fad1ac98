// See cores.h. A quota of any ancestor binds; inside a container, which sees its own cgroup as the root, the path that
// /proc/self/cgroup names may not exist below the mount, and then what exists of it counts.
#include "node/cores.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>

#include "base/system_calls.h"

namespace headroom::node {
namespace {

using base::system_call;

/// Reads the beginning of a small file; false if there is none.
bool read_text(const char* path, char* text, size_t room) {
  const long file = system_call(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
  if (base::is_error(file)) {
    return false;
  }
  const long bytes = system_call(SYS_read, file, text, room - 1);
  (void)system_call(SYS_close, file);
  text[bytes > 0 ? bytes : 0] = 0;
  return bytes > 0;
}

/// The quota that one folder of the hierarchy sets.
uint32_t quota_of(const char* folder, bool unified) {
  char path[1024];
  char text[64];
  (void)snprintf(path, sizeof path, "%s/%s", folder, unified ? "cpu.max" : "cpu.cfs_quota_us");
  if (!read_text(path, text, sizeof text)) {
    return kMaxCores;
  }
  const long quota = strtol(text, nullptr, 10);  // "max" and -1 mean none
  long period = 100000;
  if (const char* second = strchr(text, ' ')) {
    period = strtol(second, nullptr, 10);
  } else if ((void)snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder); read_text(path, text, sizeof text)) {
    period = strtol(text, nullptr, 10);
  }
  if (quota <= 0 || period <= 0) {
    return kMaxCores;
  }
  return static_cast<uint32_t>(std::min<long>((quota + period - 1) / period, kMaxCores));
}

/// The tightest quota from `mount`/`path` up to `mount`.
uint32_t quota_up_from(const char* mount, const char* path, bool unified) {
  char folder[768];
  const size_t top = strlen(mount);
  (void)snprintf(folder, sizeof folder, "%s%s", mount, path);
  uint32_t tightest = kMaxCores;
  for (;;) {
    tightest = std::min(tightest, quota_of(folder, unified));
    char* last = strrchr(folder, '/');
    if (last == nullptr || static_cast<size_t>(last - folder) < top) {
      return tightest;
    }
    *last = 0;
  }
}

bool has_controller(const char* list, const char* name) {
  const size_t length = strlen(name);
  for (const char* at = list; (at = strstr(at, name)) != nullptr; at += length) {
    if ((at == list || at[-1] == ',') && (at[length] == 0 || at[length] == ',')) {
      return true;
    }
  }
  return false;
}

}  // namespace

uint32_t quota_in_cores(const char* own_cgroups, const char* root) {
  static char text[4096];
  if (!read_text(own_cgroups, text, sizeof text)) {
    return kMaxCores;
  }
  uint32_t tightest = kMaxCores;
  char* rest = nullptr;
  for (char* line = strtok_r(text, "\n", &rest); line != nullptr; line = strtok_r(nullptr, "\n", &rest)) {
    char* controllers = strchr(line, ':');  // "4:cpu,cpuacct:/path", in version 2 "0::/path"
    char* path = controllers != nullptr ? strchr(controllers + 1, ':') : nullptr;
    if (path == nullptr) {
      continue;
    }
    *path++ = 0;
    ++controllers;
    const bool unified = *controllers == 0;
    if (!unified && !has_controller(controllers, "cpu")) {
      continue;
    }
    char mount[256];
    (void)snprintf(mount, sizeof mount, "%s%s", root, unified ? "" : "/cpu");
    tightest = std::min(tightest, quota_up_from(mount, strcmp(path, "/") == 0 ? "" : path, unified));
  }
  return tightest;
}

void add_cores(Ledger& ledger) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) {
    return;
  }
  for (int core = 0; core < kMaxCores && core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) {
      ledger.core_mask[core / 64].fetch_or(uint64_t{1} << (core % 64), std::memory_order_acq_rel);
    }
  }
  uint32_t count = 0;
  for (const auto& word : ledger.core_mask) {
    count += static_cast<uint32_t>(__builtin_popcountll(word.load(std::memory_order_relaxed)));
  }
  uint32_t known = ledger.cores_in_mask.load(std::memory_order_relaxed);
  while (known < count && !ledger.cores_in_mask.compare_exchange_weak(known, count, std::memory_order_relaxed)) {
  }
}

}  // namespace headroom::node
