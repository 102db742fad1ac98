// See library.h.
#include "mpi/library.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

namespace headroom::mpi {
namespace {

constexpr int kMaxFound = 8;

struct Found {
  Library libraries[kMaxFound];
  int count = 0;
};

int look_at_object(dl_phdr_info* object, size_t, void* argument) {
  auto* found = static_cast<Found*>(argument);
  const Abi abi = base::mpi_interface_of(*object);
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
