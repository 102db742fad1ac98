// Names that the program itself refers to are hidden before the loader relocates it.
//
// Names that the MPI library lacks are absent from this library's symbol table, too (absent_names.cc says why). The loader
// passes over entries without a value, so the table is edited. For the program's own references that must happen before it is
// relocated: the loader relocates it last, and this library shortly before it, calling the resolver of an indirect function
// (IFUNC) at the end.
//
// The resolver must call nothing outside this file, not even strlen(). Where a program without PIE takes a function's address,
// the whole process means by its name a stub in the program, which leads nowhere until the program is relocated: such a call
// ends the process before it has begun (gcc, node). A program may also define such a name itself. So loops are written out, the
// compiler is kept from making calls of them (below, and CMakeLists.txt), system calls are made by instruction, and the loaded
// objects are found in the loader's own list. A test looks at what this file's object refers to.
//
// Where no MPI library is loaded with the program, all names are hidden from the program's own references; plug-ins that
// come later (Python's) see what hide_absent_names() leaves.

// Of a loop GCC would make a call of memcpy(). (Clang has no such option, and is for analysis alone here.)
#ifndef __clang__
#pragma GCC optimize("no-tree-loop-distribute-patterns")
#endif

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>

#include "base/mpi_libraries.h"
#include "base/system_calls.h"
#include "mpi/function_table.h"
#include "mpi/symbol_tables.h"

namespace headroom::mpi {
namespace {

/// The tables that the dynamic section names. Its addresses are the loader's already, but for objects whose section it may not
/// write.
SymbolTables tables_of(const ElfW(Dyn) * entry, uintptr_t load_address) {
  SymbolTables tables;
  for (; entry != nullptr && entry->d_tag != DT_NULL; ++entry) {
    const uintptr_t value = entry->d_un.d_ptr;
    const uintptr_t address = value < load_address ? value + load_address : value;
    if (entry->d_tag == DT_SYMTAB) {
      tables.symbols = reinterpret_cast<ElfW(Sym)*>(address);
    } else if (entry->d_tag == DT_STRTAB) {
      tables.strings = reinterpret_cast<const char*>(address);
    } else if (entry->d_tag == DT_GNU_HASH) {
      tables.gnu_hash = reinterpret_cast<const uint32_t*>(address);
    }
  }
  return tables;
}

const char* soname_of(const link_map& object) {
  const SymbolTables tables = tables_of(object.l_ld, object.l_addr);
  for (const ElfW(Dyn)* entry = object.l_ld; entry != nullptr && entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_SONAME && tables.strings != nullptr) {
      return tables.strings + entry->d_un.d_val;
    }
  }
  return nullptr;
}

uint32_t gnu_hash(const char* name) {
  uint32_t hash = 5381;
  for (; *name != 0; ++name) {
    hash = hash * 33 + static_cast<unsigned char>(*name);
  }
  return hash;
}

constexpr const char* kNames[] = {
#define X(index, name) "PMPI_" #name,
    HEADROOM_FUNCTIONS(X)
#undef X
};

// The meaning of a name, so that a hidden one can come back when another library turns out to be loaded.
struct Saved {
  ElfW(Addr) value;
  uint16_t section;
};
Saved saved[HEADROOM_FUNCTION_COUNT][2];
bool have_saved = false;

void set_hidden(const SymbolTables& tables, int index, bool hidden) {
  const char* const names[] = {kNames[index] + 1, kNames[index]};
  for (int profiled = 0; profiled < 2; ++profiled) {
    ElfW(Sym)* symbol = find_symbol(tables, names[profiled]);
    if (symbol == nullptr) {
      continue;
    }
    Saved& known = saved[index][profiled];
    if (!have_saved) {
      known.value = symbol->st_value;
      known.section = symbol->st_shndx;
    }
    symbol->st_value = hidden ? 0 : known.value;
    symbol->st_shndx = hidden ? static_cast<uint16_t>(SHN_UNDEF) : known.section;
  }
}

/// The loader's own list of loaded objects, by the loader's own symbol table: a program may have a copy of `_r_debug`, which is
/// empty until it is relocated. nullptr: not found.
const r_debug* list_of_loader() {
  const long file = base::system_call(SYS_openat, AT_FDCWD, "/proc/self/auxv", O_RDONLY | O_CLOEXEC, 0);
  if (base::is_error(file)) {
    return nullptr;
  }
  constexpr long kMost = 64;  // the kernel gives about twenty
  ElfW(auxv_t) entries[kMost];
  const long bytes = base::system_call(SYS_read, file, entries, sizeof entries);
  (void)base::system_call(SYS_close, file);
  uintptr_t begin = 0;
  uintptr_t headers = 0;
  for (long index = 0; index < kMost && (index + 1) * static_cast<long>(sizeof *entries) <= bytes; ++index) {
    begin = entries[index].a_type == AT_BASE ? entries[index].a_un.a_val : begin;
    headers = entries[index].a_type == AT_PHDR ? entries[index].a_un.a_val : headers;
  }
  if (begin == 0) {  // the loader was started as a program: the headers are its own, behind its first bytes
    begin = headers - sizeof(ElfW(Ehdr));
  }
  const auto* object = reinterpret_cast<const ElfW(Ehdr)*>(begin);
  if (headers == 0 || (begin & 4095) != 0 || object->e_ident[0] != ELFMAG0 || object->e_ident[1] != ELFMAG1) {
    return nullptr;
  }
  const auto* segment = reinterpret_cast<const ElfW(Phdr)*>(begin + object->e_phoff);
  for (int index = 0; index < object->e_phnum; ++index) {
    if (segment[index].p_type == PT_DYNAMIC) {
      const SymbolTables tables = tables_of(reinterpret_cast<const ElfW(Dyn)*>(begin + segment[index].p_vaddr), begin);
      const ElfW(Sym)* symbol = tables.are_known() ? find_symbol(tables, "_r_debug") : nullptr;
      return symbol != nullptr ? reinterpret_cast<const r_debug*>(begin + symbol->st_value) : nullptr;
    }
  }
  return nullptr;
}

bool lacks_all(int, void*) { return true; }

void hide_from_program() {
  SymbolTables library = tables_of_mpi_library();
  if (library.are_known()) {
    hide_names(is_absent_from, &library);
  } else {
    hide_names(lacks_all, nullptr);
  }
}

}  // namespace

const char* profiled_name_of(int index) { return kNames[index]; }

ElfW(Sym) * find_symbol(const SymbolTables& tables, const char* name) {
  const uint32_t buckets = tables.gnu_hash[0];
  const uint32_t first = tables.gnu_hash[1];
  const uint32_t bloom_words = tables.gnu_hash[2];
  const uint32_t* bucket = tables.gnu_hash + 4 + bloom_words * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
  const uint32_t* chain = bucket + buckets;
  const uint32_t hash = gnu_hash(name);
  uint32_t index = bucket[hash % buckets];
  for (; index >= first; ++index) {
    const uint32_t entry = chain[index - first];
    if ((entry | 1) == (hash | 1) && base::are_equal(tables.strings + tables.symbols[index].st_name, name)) {
      return &tables.symbols[index];
    }
    if ((entry & 1) != 0) {
      break;
    }
  }
  return nullptr;
}

SymbolTables tables_of_mpi_library() {
  const r_debug* list = &_r_debug;
  if (list->r_map == nullptr) {
    list = list_of_loader();
  }
  for (const link_map* object = list != nullptr ? list->r_map : nullptr; object != nullptr; object = object->l_next) {
    const bool is_program = object->l_prev == nullptr;
    if (!is_program && base::interface_of_soname(soname_of(*object)) != base::MpiInterface::kNone) {
      return tables_of(object->l_ld, object->l_addr);
    }
  }
  return {};
}

bool is_absent_from(int index, void* tables) {
  return find_symbol(*static_cast<const SymbolTables*>(tables), kNames[index]) == nullptr;
}

void hide_names(bool (*lacks)(int index, void* context), void* context) {
  const SymbolTables tables = tables_of(_DYNAMIC, 0);
  const uintptr_t page = reinterpret_cast<uintptr_t>(tables.symbols) & ~uintptr_t{4095};
  const uintptr_t end = (reinterpret_cast<uintptr_t>(tables.strings) + 4095) & ~uintptr_t{4095};
  if (!tables.are_known() || end <= page ||
      base::is_error(base::system_call(SYS_mprotect, page, end - page, PROT_READ | PROT_WRITE))) {
    return;
  }
  for (int index = 0; index < HEADROOM_FUNCTION_COUNT; ++index) {
    set_hidden(tables, index, lacks(index, context));
  }
  have_saved = true;
  (void)base::system_call(SYS_mprotect, page, end - page, PROT_READ);
}

}  // namespace headroom::mpi

// An indirect function that nobody calls; the loader resolves it because its address is wanted.
extern "C" {
static void nothing() {}
__attribute__((visibility("hidden"))) void (*headroom_before_relocation())() {
  headroom::mpi::hide_from_program();
  return nothing;
}
__attribute__((visibility("hidden"), ifunc("headroom_before_relocation"))) void headroom_relocated();
}
__attribute__((used)) static void (*volatile wanted)() = headroom_relocated;
