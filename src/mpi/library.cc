// See library.h.
#include "mpi/library.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

#include "mpi/known_libraries.h"

namespace headroom::mpi {
namespace {

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

Abi abi_of(const dl_phdr_info& object) {
  return object.dlpi_name != nullptr && *object.dlpi_name != 0 ? abi_of_soname(soname_of(object)) : Abi::kNone;
}

int look_at_object(dl_phdr_info* object, size_t, void* argument) {
  auto* found = static_cast<Found*>(argument);
  const Abi abi = abi_of(*object);
  if (abi != Abi::kNone && found->count < kMaxFound) {
    Library& library = found->libraries[found->count++];
    library.abi = abi;
    strncpy(library.path, object->dlpi_name, sizeof library.path - 1);
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

}  // namespace headroom::mpi
