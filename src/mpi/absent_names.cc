// Names that the MPI library lacks are absent from this library's symbol table too, so that a program that asks for them
// sees what it would see without Headroom: by a weak symbol in C, or by looking into the global scope, as mpi4py does.
//
// The loader passes over entries of the symbol table without a value, so the table is edited. For the program itself that must
// happen before it is relocated: the loader relocates it last, and this library shortly before it, calling the resolver of an
// indirect function (IFUNC) at the end. There names are looked up by hand: the loader is at work, and nobody's constructor has
// run. Where no MPI library is loaded with the program, all names are hidden from the program's own references; plug-ins that
// come later (Python's) see what hide_absent_names() leaves.
#include "mpi/absent_names.h"

#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/system_calls.h"
#include "mpi/function_table.h"
#include "mpi/library.h"

namespace headroom::mpi {
namespace {

/// The tables of an object in which names are looked up.
struct Tables {
  ElfW(Sym) * symbols;
  const char* strings;
  const uint32_t* gnu_hash;
};

/// What the dynamic section says. Its addresses are the loader's already, but for objects whose section it may not write.
Tables tables_of(const ElfW(Dyn) * entry, uintptr_t load_address) {
  Tables tables = {};
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

uint32_t gnu_hash(const char* name) {
  uint32_t hash = 5381;
  for (; *name != 0; ++name) {
    hash = hash * 33 + static_cast<unsigned char>(*name);
  }
  return hash;
}

ElfW(Sym) * find_symbol(const Tables& tables, const char* name) {
  const uint32_t buckets = tables.gnu_hash[0];
  const uint32_t first = tables.gnu_hash[1];
  const uint32_t bloom_words = tables.gnu_hash[2];
  const uint32_t* bucket = tables.gnu_hash + 4 + bloom_words * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
  const uint32_t* chain = bucket + buckets;
  const uint32_t hash = gnu_hash(name);
  uint32_t index = bucket[hash % buckets];
  for (; index >= first; ++index) {
    const uint32_t entry = chain[index - first];
    if ((entry | 1) == (hash | 1) && strcmp(tables.strings + tables.symbols[index].st_name, name) == 0) {
      return &tables.symbols[index];
    }
    if ((entry & 1) != 0) {
      break;
    }
  }
  return nullptr;
}

constexpr const char* kNames[] = {
#define X(index, name) "PMPI_" #name,
    HEADROOM_FUNCTIONS(X)
#undef X
};

// What names mean, so that a hidden one can come back when another library turns out to be loaded.
struct Saved {
  ElfW(Addr) value;
  uint16_t section;
};
Saved saved[HEADROOM_FUNCTION_COUNT][2];
bool have_saved = false;

void set_hidden(const Tables& tables, int index, bool hidden) {
  const char* const names[] = {kNames[index] + 1, kNames[index]};
  for (int profiled = 0; profiled < 2; ++profiled) {
    ElfW(Sym)* symbol = find_symbol(tables, names[profiled]);
    if (symbol == nullptr) {
      continue;
    }
    if (!have_saved) {
      saved[index][profiled] = {symbol->st_value, symbol->st_shndx};
    }
    // The loader passes over entries without a value when it looks a name up.
    symbol->st_value = hidden ? 0 : saved[index][profiled].value;
    symbol->st_shndx = hidden ? SHN_UNDEF : saved[index][profiled].section;
  }
}

bool lacks_in_library(int index, void* tables) {
  return find_symbol(*static_cast<const Tables*>(tables), kNames[index]) == nullptr;
}

bool begins_with_one_of(const char* name, const char* const* prefixes, size_t count) {
  for (size_t index = 0; index < count; ++index) {
    if (strncmp(name, prefixes[index], strlen(prefixes[index])) == 0) {
      return true;
    }
  }
  return false;
}

/// What came after MPI-3.1. Used until the library itself can be asked: a name hidden in vain is still found in the library,
/// only Headroom does not see its calls.
bool came_after_mpi3(int index, void*) {
  constexpr const char* kNewer[] = {"Abi_",
                                    "Remove_error",
                                    "Comm_attach_buffer",
                                    "Comm_detach_buffer",
                                    "Comm_flush_buffer",
                                    "Comm_iflush_buffer",
                                    "Session_",
                                    "Buffer_flush",
                                    "Buffer_iflush",
                                    "Type_get_value_index",
                                    "Request_get_status_",
                                    "Status_get_",
                                    "Get_hw_resource_info",
                                    "Psend_init",
                                    "Precv_init",
                                    "Pready",
                                    "Parrived",
                                    "Isendrecv",
                                    "Info_get_string",
                                    "Info_create_env",
                                    "Comm_idup_with_info",
                                    "Group_from_session",
                                    "Intercomm_create_from",
                                    "Comm_create_from_group",
                                    "Comm_ack",
                                    "Comm_agree",
                                    "Comm_iagree",
                                    "Comm_get_failed",
                                    "Comm_is_revoked",
                                    "Comm_revoke",
                                    "Comm_shrink",
                                    "Comm_ishrink",
                                    "Barrier_init",
                                    "Bcast_init",
                                    "Gather_init",
                                    "Gatherv_init",
                                    "Scatter_init",
                                    "Scatterv_init",
                                    "Allgather_init",
                                    "Allgatherv_init",
                                    "Alltoall_init",
                                    "Alltoallv_init",
                                    "Alltoallw_init",
                                    "Reduce_init",
                                    "Allreduce_init",
                                    "Reduce_scatter_init",
                                    "Reduce_scatter_block_init",
                                    "Scan_init",
                                    "Exscan_init",
                                    "Neighbor_"};
  constexpr const char* kOldNeighbor[] = {"Neighbor_allgather", "Neighbor_alltoall"};
  const char* name = kNames[index] + 5;  // after PMPI_
  const size_t length = strlen(name);
  const bool is_init = length > 5 && strcmp(name + length - 5, "_init") == 0;
  if (begins_with_one_of(name, kOldNeighbor, 2) && !is_init) {
    return length > 2 && strcmp(name + length - 2, "_c") == 0;
  }
  return (length > 2 && strcmp(name + length - 2, "_c") == 0) ||
         begins_with_one_of(name, kNewer, sizeof kNewer / sizeof *kNewer);
}

bool hides_all(int, void*) { return true; }

/// What is hidden where no MPI library is loaded yet (Python, plug-in hosts). Programs ask the global scope whether MPI is
/// there already (mpi4py asks for MPI_Get_version), so names that would only be forwarded are not shown: nothing is lost.
/// MPICH's process managers, which say PMI_RANK, start libraries that have all of MPI-4; others may not.
bool hidden_before_loading(int index, void*) {
  static const bool may_be_old = getenv("PMI_RANK") == nullptr;
  return HEADROOM_FUNCTION_KINDS[index] == 'f' || (may_be_old && came_after_mpi3(index, nullptr));
}

/// Makes names absent from this library's symbol table. `lacks` says which by index in functions.txt.
void hide_names(bool (*lacks)(int index, void* context), void* context) {
  const Tables tables = tables_of(_DYNAMIC, 0);
  const uintptr_t page = reinterpret_cast<uintptr_t>(tables.symbols) & ~uintptr_t{4095};
  const uintptr_t end = (reinterpret_cast<uintptr_t>(tables.strings) + 4095) & ~uintptr_t{4095};
  if (tables.symbols == nullptr || tables.gnu_hash == nullptr || end <= page ||
      base::is_error(base::system_call(SYS_mprotect, page, end - page, PROT_READ | PROT_WRITE))) {
    return;
  }
  for (int index = 0; index < HEADROOM_FUNCTION_COUNT; ++index) {
    set_hidden(tables, index, lacks(index, context));
  }
  have_saved = true;
  (void)base::system_call(SYS_mprotect, page, end - page, PROT_READ);
}

/// Fills in the tables of the first MPI library among the loaded objects.
int look_for_library(dl_phdr_info* object, size_t, void* argument) {
  if (abi_of(*object) == Abi::kNone) {
    return 0;
  }
  for (int index = 0; index < object->dlpi_phnum; ++index) {
    const ElfW(Phdr)& header = object->dlpi_phdr[index];
    if (header.p_type == PT_DYNAMIC) {
      *static_cast<Tables*>(argument) =
          tables_of(reinterpret_cast<const ElfW(Dyn)*>(object->dlpi_addr + header.p_vaddr), object->dlpi_addr);
    }
  }
  return 1;
}

void hide_from_program() {
  Tables library = {};
  dl_iterate_phdr(look_for_library, &library);
  if (library.symbols == nullptr || library.gnu_hash == nullptr) {
    hide_names(hides_all, nullptr);
  } else {
    hide_names(lacks_in_library, &library);
  }
}

}  // namespace

void hide_absent_names() {
  Tables library = {};
  dl_iterate_phdr(look_for_library, &library);
  if (library.symbols == nullptr || library.gnu_hash == nullptr) {
    hide_names(hidden_before_loading, nullptr);
  } else {
    hide_names(lacks_in_library, &library);
  }
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
