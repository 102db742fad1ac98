// See cores.h. A quota of any ancestor binds.
#include "node/cores.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>

#include "base/launchers.h"
#include "base/system_calls.h"
#include "node/cgroups.h"

namespace headroom::node {
namespace {

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

/// The cores in a list such as "0-3,8".
cpu_set_t cores_in_list(const char* text) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  while (*text >= '0' && *text <= '9') {
    char* end = nullptr;
    const long first = strtol(text, &end, 10);
    const long last = *end == '-' ? strtol(end + 1, &end, 10) : first;
    for (long core = first; core <= last && core < CPU_SETSIZE; ++core) {
      CPU_SET(static_cast<size_t>(core), &cores);
    }
    text = *end == ',' ? end + 1 : end;
  }
  return cores;
}

/// Whether the core shares its circuits with one of `others`.
bool has_sibling_in(int core, const cpu_set_t& others) {
  char path[128];
  char text[256];
  (void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", core);
  if (!read_text(path, text, sizeof text)) {
    return false;
  }
  const cpu_set_t siblings = cores_in_list(text);
  cpu_set_t common;
  CPU_AND(&common, &siblings, &others);
  return CPU_COUNT(&common) > 0;
}

}  // namespace

/// The parent of the supervisor, which is the program's parent. Not Slurm's: it may run on other jobs' cores.
pid_t find_launcher() {
  char path[64];
  char text[512];
  (void)snprintf(path, sizeof path, "/proc/%d/stat", static_cast<int>(getppid()));
  if (base::launched_rank() == nullptr || !read_text(path, text, sizeof text)) {
    return 0;
  }
  const char* after_name = strrchr(text, ')');  // "12 (name) S 11 ..."
  const long launcher = after_name != nullptr && strlen(after_name) > 4 ? strtol(after_name + 4, nullptr, 10) : 0;
  (void)snprintf(path, sizeof path, "/proc/%ld/comm", launcher);
  const bool may_be_asked = launcher > 1 && read_text(path, text, sizeof text) && strncmp(text, "slurmstepd", 10) != 0;
  return may_be_asked ? static_cast<pid_t>(launcher) : 0;
}

cpu_set_t cores_of_helper(const cpu_set_t& own, const cpu_set_t& launchers, const cpu_set_t& ranks, const char* nodes) {
  cpu_set_t beside;
  CPU_ZERO(&beside);
  for (int node = 0;; ++node) {
    char path[256];
    char text[1024];
    (void)snprintf(path, sizeof path, "%s/node%d/cpulist", nodes, node);
    if (!read_text(path, text, sizeof text)) {
      if (node == 0) {
        beside = launchers;
      }
      break;
    }
    const cpu_set_t cores = cores_in_list(text);
    cpu_set_t common;
    CPU_AND(&common, &cores, &own);
    if (CPU_COUNT(&common) > 0) {
      CPU_OR(&beside, &beside, &cores);
    }
  }
  CPU_AND(&beside, &beside, &launchers);
  cpu_set_t of_ranks;
  CPU_AND(&of_ranks, &beside, &ranks);
  CPU_XOR(&beside, &beside, &of_ranks);
  CPU_OR(&beside, &beside, &own);
  return beside;
}

cpu_set_t cores_of_helper(const Ledger& ledger, const cpu_set_t& own, pid_t launcher) {
  cpu_set_t launchers;
  CPU_ZERO(&launchers);
  if (launcher == 0 || sched_getaffinity(launcher, sizeof launchers, &launchers) != 0) {
    return own;
  }
  cpu_set_t ranks;
  CPU_ZERO(&ranks);
  for (int core = 0; core < kMaxCores && core < CPU_SETSIZE; ++core) {
    if ((ledger.core_mask[core / 64].load(std::memory_order_relaxed) >> (core % 64) & 1) != 0) {
      CPU_SET(static_cast<size_t>(core), &ranks);
    }
  }
  cpu_set_t others;
  CPU_AND(&others, &own, &ranks);
  CPU_XOR(&others, &others, &ranks);
  cpu_set_t cores = cores_of_helper(own, launchers, ranks, "/sys/devices/system/node");
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &cores) && !CPU_ISSET(core, &own) && has_sibling_in(core, others)) {
      CPU_CLR(core, &cores);
    }
  }
  return cores;
}

uint32_t quota_in_cores(const char* own_cgroups, const char* root) {
  uint32_t tightest = kMaxCores;
  visit_cgroups(
      own_cgroups, root, "cpu",
      [](const char* folder, bool unified, void* least) {
        auto& quota = *static_cast<uint32_t*>(least);
        quota = std::min(quota, quota_of(folder, unified));
      },
      &tightest);
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
  while (known < count &&
         !ledger.cores_in_mask.compare_exchange_weak(known, count, std::memory_order_release, std::memory_order_relaxed)) {
  }
}

}  // namespace headroom::node
