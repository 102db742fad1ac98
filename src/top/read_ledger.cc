// headroom-ledger: prints a running job's ledger as one line of JSON each interval, for `headroom top`, or names a further
// storage directory to the job, for `headroom storage add`.
//
// usage: headroom-ledger PID [INTERVAL_MS [TIMES]]
//        headroom-ledger PID add DIRECTORY
//        headroom-ledger DESCRIPTOR ended PID      (by the supervisor: supervise/figures.h)
//
// The ledger is mapped for reading only, unless a directory is added; nothing of the job notices. Printing ends when no process
// of the node is left.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/settings.h"
#include "top/ledger_file.h"

namespace {

using headroom::node::Ledger;
using headroom::node::Member;
using headroom::node::MemberState;
using headroom::trace::Counter;

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

void print_string(const char* text) {
  putchar('"');
  for (; *text != 0; ++text) {
    const auto letter = static_cast<unsigned char>(*text);
    if (letter == '"' || letter == '\\' || letter < ' ') {
      printf("\\u%04x", letter);
    } else {
      putchar(letter);
    }
  }
  putchar('"');
}

/// Whether ranks take turns: only then the ledger is told which of them compute.
bool in_turns(const Ledger& ledger) {
  const uint32_t changes = ledger.mode_changes.load(std::memory_order_acquire);
  if (changes == headroom::node::kMaxModeChanges) {  // later ones are not written down
    return ledger.lacks_room.load(std::memory_order_relaxed) != 0;
  }
  return changes > 0 && ledger.modes[changes - 1].mode.load(std::memory_order_relaxed) ==
                            static_cast<uint32_t>(headroom::base::ModeChoice::kTurns);
}

/// Prints the ledger; how many processes of the node are alive.
int print(const Ledger& ledger) {
  timespec now = {};
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  printf(
      "{\"at_s\": %.3f, \"budget\": %lld, \"free\": %lld, \"watched\": %s, \"short\": %s, \"turns\": %s, \"slots\": %u, "
      "\"held\": %u, "
      "\"members\": [",
      static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9 - static_cast<double>(ledger.started_ns) / 1e9,
      static_cast<long long>(ledger.budget), static_cast<long long>(ledger.free_bytes.load(std::memory_order_relaxed)),
      ledger.short_memory.load(std::memory_order_relaxed) != 0 ? "true" : "false",
      ledger.lacks_room.load(std::memory_order_relaxed) != 0 ? "true" : "false", in_turns(ledger) ? "true" : "false",
      ledger.slots(), ledger.held_slots.load(std::memory_order_relaxed));
  int alive = 0;
  for (const Member& member : ledger.used_members()) {
    if (headroom::node::state_of(member) != MemberState::kAlive) {
      continue;
    }
    printf("%s{\"program\": ", alive == 0 ? "" : ", ");
    print_string(member.executable);
    printf(
        ", \"rank\": %d, \"pid\": %d, \"state\": %u, \"storage_full\": %s, \"resident\": %lld, \"outside\": %lld, "
        "\"allocated\": %llu, \"read\": "
        "%llu, \"written\": %llu, \"faults\": %llu, \"waited_ns\": %llu, \"messages\": %llu, \"message_bytes\": %llu}",
        member.rank.load(std::memory_order_relaxed), member.pid.load(std::memory_order_relaxed),
        member.turns.run_state.load(std::memory_order_relaxed),
        member.pager.waits_for_storage_room.load(std::memory_order_relaxed) != 0 ? "true" : "false",
        static_cast<long long>(member.memory.reserved_bytes.load(std::memory_order_relaxed)),
        static_cast<long long>(bytes_besides_blocks(member)), counted(member, Counter::kAllocatedBytes),
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
  if (argc == 4 && strcmp(argv[2], "ended") == 0) {
    Ledger* ended = headroom::top::map_ledger_file(atoi(argv[1]));
    if (ended != nullptr) {
      headroom::top::report_ended(*ended, atoi(argv[3]));
    }
    return ended != nullptr ? 0 : 1;
  }
  const bool adds = argc == 4 && strcmp(argv[2], "add") == 0;
  long numbers[2] = {1000, -1};
  bool right = argc >= 2 && argc <= 4;
  for (int index = 2; right && !adds && index < argc; ++index) {
    char* end = nullptr;
    numbers[index - 2] = strtol(argv[index], &end, 10);
    right = end != argv[index] && *end == 0 && numbers[index - 2] >= 0;
  }
  if (!right) {
    fprintf(stderr, "usage: headroom-ledger PID [INTERVAL_MS [TIMES]], or PID add DIRECTORY\n");
    return 2;
  }
  Ledger* ledger = headroom::top::map_ledger(argv[1], adds);
  if (ledger == nullptr) {
    return 1;
  }
  if (adds) {
    return headroom::top::add_directory(*ledger, argv[3]);
  }
  for (long time = 0; numbers[1] < 0 || time < numbers[1]; ++time) {
    if (time > 0) {
      const timespec interval = {numbers[0] / 1000, numbers[0] % 1000 * 1'000'000};
      (void)nanosleep(&interval, nullptr);
    }
    if (print(*ledger) == 0 || ferror(stdout) != 0) {
      break;
    }
  }
  return 0;
}
