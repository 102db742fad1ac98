// See excluded_callers.h.
#include "heap/excluded_callers.h"

#include <link.h>
#include <string.h>

#include <atomic>

#include "arena/arena.h"
#include "base/system_calls.h"

namespace headroom::heap {
namespace {

constexpr const char* kLibraryPrefixes[] = {
    "libmpi.so",  "libmpi_abi", "libmpich.so", "libmpi_cray", "libmpi_intel", "libopen-", "libpmix",   "libprrte",
    "mca_",       "libmca_",    "libucp",      "libucs",      "libuct",       "libucm",   "libfabric", "libpsm",
    "libibverbs", "librdmacm",  "libmlx",      "libefa",      "libhwloc",     "libevent", "libpmi",    "libcxi",
    "libxpmem",   "libmpl",     "libopa",      "libcoll",     "libhcoll",     "libsharp", "libucc",    "hmca_",
    "libumap",  // whose memory is watched by itself
};
constexpr const char* kBindingPrefixes[] = {"libmpi_mpifh", "libmpi_usempi", "libmpi_cxx",  "libmpichfort", "libmpichcxx",
                                            "libmpifort",   "libmpicxx",     "libmpi_java", "libmpif"};

constexpr const char* kSystemPrefixes[] = {"libc.so.", "libc-2.", "ld-linux", "ld-2.", "libpthread"};

bool is_letter(char character) { return (character | 0x20) >= 'a' && (character | 0x20) <= 'z'; }

/// Not within one: a program's libcollision.so is not libcoll.so, and libeventloop.so not libevent-2.1.so.
bool ends_a_word(const char* name, size_t length) { return !is_letter(name[length - 1]) || !is_letter(name[length]); }

CallerKind kind_of_object(const char* path) {
  const char* slash = strrchr(path, '/');
  const char* name = slash != nullptr ? slash + 1 : path;
  for (const char* prefix : kBindingPrefixes) {
    if (strncmp(name, prefix, strlen(prefix)) == 0) {
      return CallerKind::kLanguageBinding;
    }
  }
  for (const char* prefix : kLibraryPrefixes) {
    if (strncmp(name, prefix, strlen(prefix)) == 0 && ends_a_word(name, strlen(prefix))) {
      return CallerKind::kMpiLibrary;
    }
  }
  for (const char* prefix : kSystemPrefixes) {
    if (strncmp(name, prefix, strlen(prefix)) == 0) {
      return CallerKind::kSystem;
    }
  }
  return CallerKind::kProgram;
}

struct Range {
  uintptr_t begin;
  uintptr_t end;
  CallerKind kind;
};

// Append-only: entries are complete before the count is raised. An object that is unloaded leaves a stale range; another one
// at the same place would be misjudged, which costs an allocation its eviction, never correctness.
constexpr int kMaxRanges = 1024;
Range ranges[kMaxRanges];
std::atomic<int> range_count{0};
base::FutexLock append_lock;

struct Search {
  uintptr_t address;
  Range found;
};

int look_at_object(dl_phdr_info* object, size_t, void* argument) {
  auto* search = static_cast<Search*>(argument);
  for (int index = 0; index < object->dlpi_phnum; ++index) {
    const ElfW(Phdr)& header = object->dlpi_phdr[index];
    const uintptr_t begin = object->dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_LOAD && (header.p_flags & PF_X) != 0 && search->address - begin < header.p_memsz) {
      search->found = {begin, begin + header.p_memsz, kind_of_object(object->dlpi_name)};
      return 1;
    }
  }
  return 0;
}

CallerKind look_up(uintptr_t address) {
  Search search = {address, {0, 0, CallerKind::kProgram}};
  if (dl_iterate_phdr(look_at_object, &search) == 0) {
    return CallerKind::kProgram;  // code made at run time
  }
  base::LockHolder lock(append_lock);
  const int count = range_count.load(std::memory_order_relaxed);
  if (count < kMaxRanges) {
    ranges[count] = search.found;
    range_count.store(count + 1, std::memory_order_release);
  }
  return search.found.kind;
}

const Range* find_range(uintptr_t address) {
  const int count = range_count.load(std::memory_order_acquire);
  for (int index = 0; index < count; ++index) {
    if (address - ranges[index].begin < ranges[index].end - ranges[index].begin) {
      return &ranges[index];
    }
  }
  return nullptr;
}

CallerKind kind_in_ranges(uintptr_t address) {
  const Range* range = find_range(address);
  return range != nullptr ? range->kind : look_up(address);
}

}  // namespace

namespace detail {

std::atomic<uintptr_t> recent_callers[kRecentPages];

CallerKind look_up_caller(uintptr_t address) {
  const CallerKind kind = kind_in_ranges(address);
  if (kind == CallerKind::kProgram && find_range(address) == nullptr) {
    return kind;  // code made at run time: its page may be a library's one day
  }
  const uintptr_t page = address / arena::kPageBytes;
  recent_callers[page % kRecentPages].store(page << kKindBits | static_cast<uintptr_t>(kind), std::memory_order_relaxed);
  return kind;
}

}  // namespace detail

}  // namespace headroom::heap
