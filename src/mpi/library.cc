// See library.h.
#include "mpi/library.h"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "mpi/function_table.h"

namespace headroom::mpi {
namespace {

struct Known {
  const char* soname;
  Abi abi;
};

constexpr Known kKnown[] = {
    {"libmpi_abi.so.1", Abi::kStandard}, {"libmpi_abi.so.0", Abi::kStandard}, {"libmpi.so.12", Abi::kMpich},
    {"libmpich.so.12", Abi::kMpich},     {"libmpi_cray.so.12", Abi::kMpich},  {"libmpi_intel.so.12", Abi::kMpich},
    {"libmpi.so.40", Abi::kOpenMpi},
};

constexpr int kMaxFound = 8;

struct Found {
  Library libraries[kMaxFound];
  int count = 0;
};

const char* soname_of(const dl_phdr_info& object) {
  const ElfW(Dyn)* dynamic = nullptr;
  for (int index = 0; index < object.dlpi_phnum; ++index) {
    if (object.dlpi_phdr[index].p_type == PT_DYNAMIC) {
      dynamic = reinterpret_cast<const ElfW(Dyn)*>(object.dlpi_addr + object.dlpi_phdr[index].p_vaddr);
    }
  }
  const char* strings = nullptr;
  uint64_t name = 0;
  for (; dynamic != nullptr && dynamic->d_tag != DT_NULL; ++dynamic) {
    if (dynamic->d_tag == DT_STRTAB) {
      const uintptr_t value = dynamic->d_un.d_ptr;
      strings = reinterpret_cast<const char*>(value < object.dlpi_addr ? value + object.dlpi_addr : value);
    } else if (dynamic->d_tag == DT_SONAME) {
      name = dynamic->d_un.d_val;
    }
  }
  return strings != nullptr && name != 0 ? strings + name : nullptr;
}

int look_at_object(dl_phdr_info* object, size_t, void* argument) {
  auto* found = static_cast<Found*>(argument);
  if (object->dlpi_name == nullptr || *object->dlpi_name == 0) {
    return 0;
  }
  const char* soname = soname_of(*object);
  for (const Known& known : kKnown) {
    if (soname != nullptr && strcmp(soname, known.soname) == 0 && found->count < kMaxFound) {
      Library& library = found->libraries[found->count++];
      library.abi = known.abi;
      strncpy(library.path, object->dlpi_name, sizeof library.path - 1);
    }
  }
  return 0;
}

/// The path of the object that defines what `caller`'s own dependencies mean by PMPI_Comm_rank.
const char* library_that_caller_uses(const void* caller, Dl_info& info) {
  Dl_info object = {};
  if (dladdr(caller, &object) == 0 || object.dli_fname == nullptr) {
    return nullptr;
  }
  void* handle = dlopen(object.dli_fname, RTLD_NOLOAD | RTLD_LAZY);
  if (handle == nullptr) {
    return nullptr;
  }
  void* symbol = dlsym(handle, "PMPI_Comm_rank");
  dlclose(handle);
  return symbol != nullptr && dladdr(symbol, &info) != 0 ? info.dli_fname : nullptr;
}

struct SelfTables {
  ElfW(Sym) * symbols;
  const char* strings;
  const uint32_t* gnu_hash;
};

/// This library's own dynamic symbol table.
SelfTables own_tables() {
  SelfTables tables = {};
  Dl_info info = {};
  const link_map* map = nullptr;
  if (dladdr1(reinterpret_cast<void*>(&hide_names), &info, const_cast<void**>(reinterpret_cast<const void**>(&map)),
              RTLD_DL_LINKMAP) == 0) {
    return tables;
  }
  for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_SYMTAB) {
      tables.symbols = reinterpret_cast<ElfW(Sym)*>(entry->d_un.d_ptr);
    } else if (entry->d_tag == DT_STRTAB) {
      tables.strings = reinterpret_cast<const char*>(entry->d_un.d_ptr);
    } else if (entry->d_tag == DT_GNU_HASH) {
      tables.gnu_hash = reinterpret_cast<const uint32_t*>(entry->d_un.d_ptr);
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

ElfW(Sym) * find_symbol(const SelfTables& tables, const char* name) {
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

void set_hidden(const SelfTables& tables, int index, bool hidden) {
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

bool lacks_in_library(int index, void* handle) { return dlsym(handle, kNames[index]) == nullptr; }

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

/// What is hidden where no MPI library is loaded yet (Python, plug-in hosts). Programs ask the global scope whether MPI is
/// there already (mpi4py asks for MPI_Get_version), so names that would only be forwarded are not shown: nothing is lost.
/// MPICH's process managers, which say PMI_RANK, start libraries that have all of MPI-4; others may not.
bool hidden_before_loading(int index, void*) {
  static const bool may_be_old = getenv("PMI_RANK") == nullptr;
  return HEADROOM_FUNCTION_KINDS[index] == 'f' || (may_be_old && came_after_mpi3(index, nullptr));
}

}  // namespace

const char* abi_name(Abi abi) {
  switch (abi) {
    case Abi::kMpich:
      return "mpich";
    case Abi::kOpenMpi:
      return "openmpi";
    case Abi::kStandard:
      return "standard";
    default:
      return "none";
  }
}

Library find_library(const void* caller) {
  static thread_local Found found;
  found.count = 0;
  dl_iterate_phdr(look_at_object, &found);  // collect only: dlopen is not allowed in the callback
  if (found.count == 0) {
    return Library{};
  }
  Dl_info info = {};
  const char* wanted = found.count > 1 && caller != nullptr ? library_that_caller_uses(caller, info) : nullptr;
  for (int index = 0; wanted != nullptr && index < found.count; ++index) {
    if (strcmp(found.libraries[index].path, wanted) == 0) {
      return found.libraries[index];
    }
  }
  return found.libraries[0];
}

void hide_names(bool (*lacks)(int index, void* context), void* context) {
  const SelfTables tables = own_tables();
  if (tables.symbols == nullptr || tables.strings == nullptr || tables.gnu_hash == nullptr) {
    return;
  }
  const uintptr_t page = reinterpret_cast<uintptr_t>(tables.symbols) & ~uintptr_t{4095};
  const uintptr_t end = (reinterpret_cast<uintptr_t>(tables.strings) + 4095) & ~uintptr_t{4095};
  if (end <= page || mprotect(reinterpret_cast<void*>(page), end - page, PROT_READ | PROT_WRITE) != 0) {
    return;
  }
  for (int index = 0; index < HEADROOM_FUNCTION_COUNT; ++index) {
    set_hidden(tables, index, lacks(index, context));
  }
  have_saved = true;
  mprotect(reinterpret_cast<void*>(page), end - page, PROT_READ);
}

void hide_absent_names() {
  const Library library = find_library(nullptr);
  if (library.abi == Abi::kNone) {
    hide_names(hidden_before_loading, nullptr);
    return;
  }
  if (void* handle = dlopen(library.path, RTLD_NOLOAD | RTLD_LAZY)) {
    hide_names(lacks_in_library, handle);
    dlclose(handle);
  }
}

}  // namespace headroom::mpi
