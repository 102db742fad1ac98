// See static_data.h.
#include "heap/static_data.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "arena/arena.h"
#include "arena/whole_blocks.h"
#include "base/log.h"
#include "base/system_calls.h"
#include "heap/heap.h"
#include "pager/pager.h"
#include "trace/counters.h"

namespace headroom::heap {
namespace {

using arena::kPageBytes;
using base::system_call;

#if defined(__x86_64__)
constexpr uint32_t kCopyRelocation = R_X86_64_COPY;
#else
constexpr uint32_t kCopyRelocation = R_AARCH64_COPY;
#endif

constexpr int kMaxSpans = arena::kMaxStaticRegions;
constexpr int kMaxCopies = 4096;

struct Span {
  uintptr_t begin;
  uintptr_t end;
};

/// The facts that are known about the main program.
struct Program {
  uintptr_t load_address = 0;
  Span writable = {0, 0};         // the writable segment without the part that becomes read-only after relocation
  uintptr_t file_backed_end = 0;  // pages before this one have content in the program's file
  const ElfW(Dyn) * dynamic = nullptr;
  uintptr_t copies[kMaxCopies];  // addresses of copy relocations
  int copy_count = 0;
};

Program program;  // small: stays where it is

int look_at_program(dl_phdr_info* object, size_t, void*) {
  if (object->dlpi_name != nullptr && *object->dlpi_name != 0) {
    return 0;
  }
  program.load_address = object->dlpi_addr;
  uintptr_t read_only_end = 0;
  for (int index = 0; index < object->dlpi_phnum; ++index) {
    const ElfW(Phdr)& header = object->dlpi_phdr[index];
    const uintptr_t begin = object->dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_GNU_RELRO) {
      read_only_end = begin + header.p_memsz;
    } else if (header.p_type == PT_LOAD && (header.p_flags & PF_W) != 0) {
      program.writable = {begin, begin + header.p_memsz};
      program.file_backed_end = (begin + header.p_filesz + kPageBytes - 1) & ~(kPageBytes - 1);
    } else if (header.p_type == PT_DYNAMIC) {
      program.dynamic = reinterpret_cast<const ElfW(Dyn)*>(begin);
    }
  }
  if (program.writable.begin < read_only_end) {
    program.writable.begin = read_only_end;
  }
  return 1;
}

/// Dynamic entries hold addresses that the loader has relocated in some objects and not in others.
uintptr_t dynamic_address(uintptr_t value) { return value < program.load_address ? value + program.load_address : value; }

void find_copy_relocations() {
  uintptr_t table = 0;
  size_t bytes = 0;
  for (const ElfW(Dyn)* entry = program.dynamic; entry != nullptr && entry->d_tag != DT_NULL; ++entry) {
    table = entry->d_tag == DT_RELA ? dynamic_address(entry->d_un.d_ptr) : table;
    bytes = entry->d_tag == DT_RELASZ ? entry->d_un.d_val : bytes;
  }
  const auto* relocations = reinterpret_cast<const ElfW(Rela)*>(table);
  for (size_t index = 0; table != 0 && index < bytes / sizeof(ElfW(Rela)); ++index) {
    if (ELF64_R_TYPE(relocations[index].r_info) == kCopyRelocation && program.copy_count < kMaxCopies) {
      program.copies[program.copy_count++] = program.load_address + relocations[index].r_offset;
    }
  }
}

bool holds_copy_relocation(Span span) {
  for (int index = 0; index < program.copy_count; ++index) {
    if (program.copies[index] >= span.begin && program.copies[index] < span.end) {
      return true;
    }
  }
  return false;
}

struct Spans {
  Span list[kMaxSpans];
  int count = 0;
};

/// Enters the page-aligned inside of [begin, end), joined with the span before if they touch.
void add_inside(Spans& spans, uintptr_t begin, uintptr_t end) {
  const Span inside = {(begin + kPageBytes - 1) & ~(kPageBytes - 1), end & ~(kPageBytes - 1)};
  if (inside.begin >= inside.end || inside.end - inside.begin < large_map_bytes || holds_copy_relocation(inside)) {
    return;
  }
  for (int index = 0; index < spans.count; ++index) {  // an object may have two names
    if (inside.begin < spans.list[index].end && spans.list[index].begin < inside.end) {
      return;
    }
  }
  if (spans.count == kMaxSpans) {
    base::log_warning("the program has more than %d large static arrays; %llu MiB stay in memory", kMaxSpans,
                      static_cast<unsigned long long>((inside.end - inside.begin) >> 20));
    return;
  }
  spans.list[spans.count++] = inside;
}

/// Large objects by the symbol table of the program's file; false if it has none.
bool find_large_objects(Spans& spans) {
  const int file = static_cast<int>(system_call(SYS_openat, AT_FDCWD, "/proc/self/exe", O_RDONLY | O_CLOEXEC));
  struct stat status = {};
  if (file < 0 || fstat(file, &status) != 0) {
    return false;
  }
  const long mapped = system_call(SYS_mmap, 0, status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
  (void)system_call(SYS_close, file);
  if (base::is_error(mapped)) {
    return false;
  }
  const char* image = reinterpret_cast<const char*>(mapped);
  const auto* header = reinterpret_cast<const ElfW(Ehdr)*>(image);
  const auto* sections = reinterpret_cast<const ElfW(Shdr)*>(image + header->e_shoff);
  const auto file_bytes = static_cast<uint64_t>(status.st_size);
  const bool sane = header->e_shoff + uint64_t{header->e_shnum} * sizeof(ElfW(Shdr)) <= file_bytes;
  bool found_table = false;
  for (int index = 0; sane && index < header->e_shnum; ++index) {
    if (sections[index].sh_type != SHT_SYMTAB || sections[index].sh_offset + sections[index].sh_size > file_bytes) {
      continue;
    }
    found_table = true;
    const auto* symbols = reinterpret_cast<const ElfW(Sym)*>(image + sections[index].sh_offset);
    for (size_t at = 0; at < sections[index].sh_size / sizeof(ElfW(Sym)); ++at) {
      const uintptr_t begin = program.load_address + symbols[at].st_value;
      const bool object = ELF64_ST_TYPE(symbols[at].st_info) == STT_OBJECT;
      if (object && symbols[at].st_size >= large_map_bytes && begin >= program.writable.begin &&
          begin + symbols[at].st_size <= program.writable.end) {
        add_inside(spans, begin, begin + symbols[at].st_size);
      }
    }
  }
  (void)system_call(SYS_munmap, mapped, status.st_size);
  return found_table;
}

/// Without symbols: everything between pages with copy relocations.
void find_large_gaps(Spans& spans) {
  uintptr_t begin = program.writable.begin + kPageBytes;
  const uintptr_t end = program.writable.end - kPageBytes;
  for (uintptr_t page = begin & ~(kPageBytes - 1); page < end; page += kPageBytes) {
    if (holds_copy_relocation({page, page + kPageBytes})) {
      add_inside(spans, begin, page);
      begin = page + kPageBytes;
    }
  }
  add_inside(spans, begin, end);
}

/// Copies the populated pages of the span into the memfd. Pages of .bss that were never touched stay holes; pages of
/// initialised data are copied whether touched or not, since their content may still be in the program's file only.
bool copy_populated(uintptr_t address, uint64_t span_bytes, uint64_t offset) {
  const Span span = {address, address + span_bytes};
  const long map = system_call(SYS_openat, AT_FDCWD, "/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  uint64_t entries[512] = {};
  for (uintptr_t at = span.begin; at < span.end;) {
    const uint64_t left = (span.end - at) / kPageBytes;
    const uint64_t pages = std::min<uint64_t>(left, 512);
    const long bytes = system_call(SYS_pread64, map, entries, pages * sizeof(uint64_t), at / kPageBytes * sizeof(uint64_t));
    const bool known = !base::is_error(map) && bytes == static_cast<long>(pages * sizeof(uint64_t));
    for (uint64_t page = 0; page < pages; ++page, at += kPageBytes) {
      constexpr uint64_t kPresentOrSwapped = uint64_t{3} << 62;
      if (known && (entries[page] & kPresentOrSwapped) == 0 && at >= program.file_backed_end) {
        continue;
      }
      if (!arena::copy_page(pager::partition(), offset + (at - span.begin), at)) {
        (void)system_call(SYS_close, map);
        return false;
      }
    }
  }
  (void)system_call(SYS_close, map);
  return true;
}

void move(Span span) {
  uint64_t offset = 0;
  if (!claim_for_static_data(span.end - span.begin, offset) ||
      pager::add_static_region(span.begin, span.end - span.begin, offset, copy_populated) != base::Status::kOk) {
    base::log_warning("cannot move %llu MiB of static data; it stays in memory",
                      static_cast<unsigned long long>((span.end - span.begin) >> 20));
    return;
  }
  trace::count(trace::Counter::kStaticBytes, span.end - span.begin);
  base::log_debug(base::Part::kHeap, "%.1f MiB of static data may move",
                  static_cast<double>(span.end - span.begin) / (1 << 20));
}

/// Once a node, and if it is much: many programs are stripped that have little.
void warn_of_missing_symbols() {
  constexpr uint64_t kMuch = 16 << 20;
  constexpr int64_t kMuchOfBudget = 16;  // a part in so many
  node::Ledger& ledger = *pager::session().ledger;
  const uint64_t stays = program.writable.end - program.writable.begin;
  const bool is_much = stays >= kMuch || static_cast<int64_t>(stays) > ledger.budget / kMuchOfBudget;
  if (is_much && ledger.told_of_static_data.exchange(1, std::memory_order_relaxed) == 0) {
    base::log_warning(
        "the program has no symbol table, so up to %llu MiB of static data stay in memory in each process with this engine; do "
        "not strip it, or see what `headroom doctor` says of page faults",
        static_cast<unsigned long long>(stays >> 20));
  }
}

}  // namespace

void move_static_data() {
  dl_iterate_phdr(look_at_program, nullptr);
  if (program.writable.end - program.writable.begin < large_map_bytes || program.writable.end < program.writable.begin) {
    return;
  }
  find_copy_relocations();
  Spans spans;
  const bool has_symbols = find_large_objects(spans);
  if (has_symbols && spans.count == 0) {
    return;
  }
  if (pager::start() != base::Status::kOk) {
    return;
  }
  if (!has_symbols && pager::engine_serves_kernel()) {
    find_large_gaps(spans);
  } else if (!has_symbols) {
    warn_of_missing_symbols();
  }
  for (int index = 0; index < spans.count; ++index) {
    move(spans.list[index]);
  }
}

}  // namespace headroom::heap
