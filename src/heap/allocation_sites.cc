// See allocation_sites.h. A site is a stack of return addresses; the first allocation from it adds it to a fixed table.
#include "heap/allocation_sites.h"

#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <unwind.h>

#include <algorithm>
#include <atomic>

#include "arena/arena.h"
#include "base/system_calls.h"
#include "trace/labels.h"
#include "trace/recorder.h"

namespace headroom::heap {
namespace {

using trace::Event;
using trace::EventKind;

constexpr int kFrames = 12;
constexpr int kMostModules = 256;
constexpr uint64_t kPathPart = sizeof(Event::values);

struct Site {
  uintptr_t frames[kFrames];
  int depth;
  std::atomic<uint64_t> bytes;
};

// Site 0 is all that is not from a call: static data, small objects of unknown callers.
Site sites[trace::kMostLabels];
uint16_t site_count = 1;
base::FutexLock site_lock;

_Unwind_Reason_Code add_frame(_Unwind_Context* context, void* argument) {
  auto* site = static_cast<Site*>(argument);
  const uintptr_t address = _Unwind_GetIP(context);
  if (address == 0 || site->depth == kFrames) {
    return _URC_END_OF_STACK;
  }
  site->frames[site->depth++] = address;
  return _URC_NO_REASON;
}

uint16_t number_of_site(const Site& seen) {
  const base::LockHolder lock(site_lock);
  for (uint16_t number = 1; number < site_count; ++number) {
    if (sites[number].depth == seen.depth && memcmp(sites[number].frames, seen.frames, sizeof seen.frames) == 0) {
      return number;
    }
  }
  if (site_count == trace::kMostLabels) {
    return 0;
  }
  Site& fresh = sites[site_count];
  memcpy(fresh.frames, seen.frames, sizeof seen.frames);
  fresh.depth = seen.depth;
  return site_count++;
}

struct Modules {
  struct {
    uintptr_t begin;
    uintptr_t end;
    uintptr_t base;
    uint16_t number;
  } parts[kMostModules];
  int count = 0;
  uint16_t numbers = 0;
};

void record_path(uint16_t number, const char* path) {
  const uint64_t length = strlen(path);
  for (uint32_t part = 0; part * kPathPart < length; ++part) {
    Event event = {base::monotonic_ns(), EventKind::kModule, number, part, {}};
    const uint64_t left = length - part * kPathPart;
    memcpy(event.values, path + part * kPathPart, std::min(left, kPathPart));
    trace::record(event);
  }
}

int add_module(dl_phdr_info* object, size_t, void* argument) {
  auto* modules = static_cast<Modules*>(argument);
  const uint16_t number = modules->numbers++;
  char program[1024] = {};
  if (*object->dlpi_name == 0) {  // the program itself has no name there
    (void)base::system_call(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", program, sizeof program - 1);
  }
  record_path(number, *object->dlpi_name != 0 ? object->dlpi_name : program);
  for (int index = 0; index < object->dlpi_phnum && modules->count < kMostModules; ++index) {
    const ElfW(Phdr)& header = object->dlpi_phdr[index];
    if (header.p_type == PT_LOAD && (header.p_flags & PF_X) != 0) {
      const uintptr_t begin = object->dlpi_addr + header.p_vaddr;
      modules->parts[modules->count++] = {begin, begin + header.p_memsz, object->dlpi_addr, number};
    }
  }
  return 0;
}

void record_frame(const Modules& modules, uint16_t site, uint32_t depth, uintptr_t address) {
  for (int index = 0; index < modules.count; ++index) {
    const auto& part = modules.parts[index];
    if (address >= part.begin && address < part.end) {
      trace::record(
          {base::monotonic_ns(), EventKind::kFrame, site, depth, {part.number, static_cast<int64_t>(address - part.base)}});
      return;
    }
  }
}

}  // namespace

void label_with_site(uint64_t offset, uint64_t bytes) {
  Site seen = {};
  (void)_Unwind_Backtrace(add_frame, &seen);
  const uint16_t number = number_of_site(seen);
  sites[number].bytes.fetch_add(bytes, std::memory_order_relaxed);
  const uint64_t first = arena::block_of(offset);
  trace::label_blocks(first, arena::block_of(offset + bytes - 1) - first + 1, number);
}

void record_sites() {
  static Modules modules;
  (void)dl_iterate_phdr(add_module, &modules);
  for (uint16_t number = 0; number < site_count; ++number) {
    const trace::LabelCounts& counts = trace::label_counts(number);
    const auto faults = static_cast<int64_t>(counts.faults.load(std::memory_order_relaxed));
    const auto waited = static_cast<int64_t>(counts.waited_ns.load(std::memory_order_relaxed));
    const auto bytes = static_cast<int64_t>(sites[number].bytes.load(std::memory_order_relaxed));
    trace::record({base::monotonic_ns(), EventKind::kSite, number, 0, {faults, waited, bytes}});
    for (int depth = 0; depth < sites[number].depth; ++depth) {
      record_frame(modules, number, static_cast<uint32_t>(depth), sites[number].frames[depth]);
    }
    trace::write_recorded();  // the ring does not hold many sites
  }
}

}  // namespace headroom::heap
