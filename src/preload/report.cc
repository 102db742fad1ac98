// See report.h. Written with the C library's formatted output into memory and one write, so that lines of nodes do not mix;
// the shape of the JSON is described in docs/report.md.
#include "preload/report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

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
  return member.state.load(std::memory_order_relaxed) != static_cast<uint32_t>(MemberState::kEmpty);
}

uint64_t counter(const Member& member, Counter which) {
  return member.counters[static_cast<int>(which)].load(std::memory_order_relaxed);
}

uint64_t total(const node::Ledger& ledger, Counter which) {
  uint64_t sum = 0;
  for (const Member& member : ledger.members) {
    sum += took_part(member) ? counter(member, which) : 0;
  }
  return sum;
}

double mebibytes(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

const char* state_name(const Member& member) {
  switch (static_cast<MemberState>(member.state.load(std::memory_order_relaxed))) {
    case MemberState::kDied:
      return "died";
    case MemberState::kAlive:
      return "running";
    default:
      return "ended";
  }
}

/// A string in JSON's quotes; our strings hold file names and host names.
void write_string(FILE* out, const char* text) {
  fputc('"', out);
  for (; *text != 0; ++text) {
    const auto byte = static_cast<unsigned char>(*text);
    if (byte == '"' || byte == '\\') {
      fprintf(out, "\\%c", byte);
    } else if (byte < 0x20) {
      fprintf(out, "\\u%04x", byte);
    } else {
      fputc(byte, out);
    }
  }
  fputc('"', out);
}

void write_member(FILE* out, const Member& member) {
  char word[32];
  fprintf(out, "    {\"rank\": %d, \"process\": %d, \"program\": ", member.rank.load(std::memory_order_relaxed),
          member.pid.load(std::memory_order_relaxed));
  write_string(out, member.executable);
  fprintf(out, ", \"end\": \"%s\", \"mpi\": \"%s\"", state_name(member), member.abi);
  fprintf(out, ", \"engine\": \"%s\"",
          base::choice_name("engine", static_cast<int>(member.engine.load(std::memory_order_relaxed)), word, sizeof word));
  fprintf(out, ", \"store\": \"%s\"",
          base::choice_name("store", static_cast<int>(member.store.load(std::memory_order_relaxed)), word, sizeof word));
  fprintf(out, ", \"store_direct\": %s", member.store_direct.load(std::memory_order_relaxed) != 0 ? "true" : "false");
  fprintf(out, ", \"armed\": %s", member.armed.load(std::memory_order_relaxed) != 0 ? "true" : "false");
  fprintf(out, ", \"collectives\": \"%s\"",
          member.nonblocking_collectives.load(std::memory_order_relaxed) != 0 ? "nonblocking" : "blocking");
  for (int index = 0; index < trace::kCounterCount; ++index) {
    fprintf(out, ", \"%s\": %llu", trace::kCounterNames[index],
            static_cast<unsigned long long>(member.counters[index].load(std::memory_order_relaxed)));
  }
  fprintf(out, "}");
}

void write_json(FILE* out, const node::Ledger& ledger, const char* host) {
  char word[32];
  fprintf(out, "{\n  \"format\": \"headroom-run-1\",\n  \"host\": ");
  write_string(out, host);
  fprintf(out, ",\n  \"budget_bytes\": %lld,\n  \"peak_resident_bytes\": %lld,\n", static_cast<long long>(ledger.budget),
          static_cast<long long>(ledger.peak_reserved_bytes.load(std::memory_order_relaxed)));
  fprintf(out, "  \"storage\": ");
  write_string(out, base::settings().storage);
  fprintf(out, ",\n  \"evict\": \"%s\",\n",
          base::choice_name("evict", static_cast<int>(base::settings().evict), word, sizeof word));
  fprintf(out, "  \"slots\": %u,\n  \"most_slots_held\": %u,\n  \"cores\": %u,\n  \"short_of_memory\": %s,\n", ledger.slots(),
          ledger.most_held_slots.load(std::memory_order_relaxed), ledger.cores(),
          ledger.short_memory.load(std::memory_order_relaxed) != 0 ? "true" : "false");
  fprintf(out, "  \"elapsed_s\": %.3f,\n  \"modes\": [", static_cast<double>(base::monotonic_ns() - ledger.started_ns) / 1e9);
  const uint32_t changes = ledger.mode_changes.load(std::memory_order_acquire);
  for (uint32_t index = 0; index < changes; ++index) {
    const auto& change = ledger.modes[index];
    fprintf(out, "%s{\"at_s\": %.3f, \"mode\": \"%s\"}", index == 0 ? "" : ", ",
            static_cast<double>(change.at_ns.load(std::memory_order_acquire)) / 1e9,
            base::choice_name("mode", static_cast<int>(change.mode.load(std::memory_order_relaxed)), word, sizeof word));
  }
  fprintf(out, "],\n  \"total\": {");
  for (int index = 0; index < trace::kCounterCount; ++index) {
    fprintf(out, "%s\"%s\": %llu", index == 0 ? "" : ", ", trace::kCounterNames[index],
            static_cast<unsigned long long>(total(ledger, static_cast<Counter>(index))));
  }
  fprintf(out, "},\n  \"ranks\": [\n");
  bool first = true;
  for (const Member& member : ledger.members) {
    if (took_part(member)) {
      fprintf(out, "%s", first ? "" : ",\n");
      write_member(out, member);
      first = false;
    }
  }
  fprintf(out, "\n  ]\n}\n");
}

bool has_rank_zero(const node::Ledger& ledger) {
  for (const Member& member : ledger.members) {
    if (took_part(member) && member.rank.load(std::memory_order_relaxed) == 0) {
      return true;
    }
  }
  return false;
}

bool has_ranks(const node::Ledger& ledger) {
  for (const Member& member : ledger.members) {
    if (took_part(member) && member.rank.load(std::memory_order_relaxed) >= 0) {
      return true;
    }
  }
  return false;
}

void write_json_file(const node::Ledger& ledger, const char* host) {
  char path[4096];
  const char* name = base::settings().json;
  const bool first_node = has_rank_zero(ledger) || !has_ranks(ledger);
  snprintf(path, sizeof path, first_node ? "%s" : "%s.%s", name, host);
  FILE* out = fopen(path, "w");
  if (out == nullptr) {
    base::log_warning("cannot write --json %s: %s", path, strerror(errno));
    return;
  }
  write_json(out, ledger, host);
  if (fclose(out) != 0) {
    base::log_warning("cannot write --json %s: %s", path, strerror(errno));
  }
}

void write_summary(const node::Ledger& ledger, const char* host) {
  char text[2048];
  char engine[32] = "none";
  int members = 0;
  for (const Member& member : ledger.members) {
    if (took_part(member)) {
      ++members;
      base::choice_name("engine", static_cast<int>(member.engine.load(std::memory_order_relaxed)), engine, sizeof engine);
    }
  }
  int length =
      snprintf(text, sizeof text,
               "headroom: %s: %d processes, %.1f s\n"
               "headroom:   memory    peak %.1f MiB of %.1f MiB budget, %.1f MiB allocated at most\n",
               host, members, static_cast<double>(base::monotonic_ns() - ledger.started_ns) / 1e9,
               mebibytes(static_cast<uint64_t>(ledger.peak_reserved_bytes.load(std::memory_order_relaxed))),
               mebibytes(static_cast<uint64_t>(ledger.budget)), mebibytes(total(ledger, Counter::kAllocatedBytesPeak)));
  const auto room = [&] { return sizeof text - static_cast<size_t>(length); };
  if (ledger.short_memory.load(std::memory_order_relaxed) != 0) {
    length += snprintf(text + length, room(),
                       "headroom:   storage   %.1f MiB read, %.1f MiB written, %s\n"
                       "headroom:   faults    %llu (%s), %.1f s of waiting for storage or room, all processes together\n",
                       mebibytes(total(ledger, Counter::kBytesRead)), mebibytes(total(ledger, Counter::kBytesWritten)),
                       base::settings().storage, static_cast<unsigned long long>(total(ledger, Counter::kFaults)), engine,
                       static_cast<double>(total(ledger, Counter::kStorageWaitNs)) / 1e9);
  } else {
    length += snprintf(text + length, room(), "headroom:   storage   not used: everything fitted\n");
  }
  (void)base::system_call(SYS_write, STDERR_FILENO, text, length);
}

}  // namespace

void write_report(const node::Session& session) {
  char host[256] = "node";
  gethostname(host, sizeof host - 1);
  if (base::settings().summary == base::SummaryChoice::kOn) {
    write_summary(*session.ledger, host);
  }
  if (*base::settings().json != 0) {
    write_json_file(*session.ledger, host);
  }
}

}  // namespace headroom::preload
