// headroom-ledger: prints a running job's ledger as one line of JSON each interval, for `headroom top`.
//
// usage: headroom-ledger PID [INTERVAL_MS [TIMES]]
//
// The ledger is a memory file of the job's processes; it is opened by way of /proc/PID/fd, which the user who runs the job may
// do, and mapped for reading only. Nothing of the job notices. Ends when no process of the node is left.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "node/ledger.h"

namespace {

using headroom::node::Ledger;
using headroom::node::Member;
using headroom::node::MemberState;
using headroom::trace::Counter;

int open_ledger(const char* pid) {
  char folder[64];
  (void)snprintf(folder, sizeof folder, "/proc/%s/fd", pid);
  DIR* files = opendir(folder);
  if (files == nullptr) {
    fprintf(stderr, "headroom-ledger: %s: %s\n", folder, strerror(errno));
    return -1;
  }
  int found = -1;
  while (const dirent* entry = found < 0 ? readdir(files) : nullptr) {
    char path[400];
    char target[128] = {};
    (void)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    if (readlink(path, target, sizeof target - 1) > 0 && strncmp(target, "/memfd:headroom-ledger", 22) == 0) {
      found = open(path, O_RDONLY | O_CLOEXEC);
    }
  }
  (void)closedir(files);
  if (found < 0) {
    fprintf(stderr, "headroom-ledger: process %s has no ledger of Headroom's\n", pid);
  }
  return found;
}

unsigned long long counted(const Member& member, Counter counter) {
  return member.counters[static_cast<int>(counter)].load(std::memory_order_relaxed);
}

/// Past the MPI library: messages of the program and of its collectives, and one-sided calls.
unsigned long long messages(const Member& member) {
  return counted(member, Counter::kMessagesDirect) + counted(member, Counter::kMessagesCollective) +
         counted(member, Counter::kPutsDirect) + counted(member, Counter::kGetsDirect) + counted(member, Counter::kFoldsDirect);
}

unsigned long long message_bytes(const Member& member) {
  return counted(member, Counter::kMessagesDirectBytes) + counted(member, Counter::kMessagesCollectiveBytes) +
         counted(member, Counter::kOneSidedBytes);
}

/// Prints the ledger; how many processes of the node are alive.
int print(const Ledger& ledger) {
  timespec now = {};
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  printf(
      "{\"at_s\": %.3f, \"budget\": %lld, \"free\": %lld, \"short\": %s, \"slots\": %u, \"held\": %u, \"members\": [",
      static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9 - static_cast<double>(ledger.started_ns) / 1e9,
      static_cast<long long>(ledger.budget), static_cast<long long>(ledger.free_bytes.load(std::memory_order_relaxed)),
      ledger.short_memory.load(std::memory_order_relaxed) != 0 ? "true" : "false", ledger.slots(),
      ledger.held_slots.load(std::memory_order_relaxed));
  int alive = 0;
  for (const Member& member : ledger.members) {
    if (member.state.load(std::memory_order_acquire) != static_cast<uint32_t>(MemberState::kAlive)) {
      continue;
    }
    printf(
        "%s{\"rank\": %d, \"pid\": %d, \"state\": %u, \"resident\": %lld, \"outside\": %lld, \"allocated\": %llu, \"read\": "
        "%llu, \"written\": %llu, \"faults\": %llu, \"waited_ns\": %llu, \"messages\": %llu, \"message_bytes\": %llu}",
        alive == 0 ? "" : ", ", member.rank.load(std::memory_order_relaxed), member.pid.load(std::memory_order_relaxed),
        member.run_state.load(std::memory_order_relaxed),
        static_cast<long long>(member.reserved_bytes.load(std::memory_order_relaxed)),
        static_cast<long long>(member.other_bytes.load(std::memory_order_relaxed)), counted(member, Counter::kAllocatedBytes),
        counted(member, Counter::kBytesRead), counted(member, Counter::kBytesWritten), counted(member, Counter::kFaults),
        counted(member, Counter::kStorageWaitNs), messages(member), message_bytes(member));
    ++alive;
  }
  printf("]}\n");
  (void)fflush(stdout);
  return alive;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: headroom-ledger PID [INTERVAL_MS [TIMES]]\n");
    return 2;
  }
  const long interval_ms = argc > 2 ? strtol(argv[2], nullptr, 10) : 1000;
  const long times = argc > 3 ? strtol(argv[3], nullptr, 10) : -1;
  const int file = open_ledger(argv[1]);
  if (file < 0) {
    return 1;
  }
  void* mapped = mmap(nullptr, sizeof(Ledger), PROT_READ, MAP_SHARED, file, 0);
  const auto* ledger = static_cast<const Ledger*>(mapped);
  if (mapped == MAP_FAILED || ledger->magic != headroom::node::kLedgerMagic || ledger->bytes != sizeof(Ledger)) {
    fprintf(stderr, "headroom-ledger: process %s runs under another version of Headroom\n", argv[1]);
    return 1;
  }
  for (long time = 0; times < 0 || time < times; ++time) {
    if (time > 0) {
      const timespec interval = {interval_ms / 1000, interval_ms % 1000 * 1'000'000};
      (void)nanosleep(&interval, nullptr);
    }
    if (print(*ledger) == 0 || ferror(stdout) != 0) {
      break;
    }
  }
  return 0;
}
