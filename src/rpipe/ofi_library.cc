// See ofi_library.h.
#include "rpipe/ofi_library.h"

#include <dlfcn.h>
#include <link.h>

#include <climits>
#include <cstdio>
#include <cstring>
#include <initializer_list>

#include "base/mpi_libraries.h"

namespace headroom::rpipe {

namespace {

constexpr const char* kName = "libfabric.so.1";

struct Folder {
  char path[PATH_MAX] = {};
};

int find_folder_of_mpi(dl_phdr_info* info, size_t /*bytes*/, void* argument) {
  if (base::mpi_interface_of(*info) == base::MpiInterface::kNone) {
    return 0;
  }
  auto& folder = *static_cast<Folder*>(argument);
  (void)snprintf(folder.path, sizeof folder.path, "%s", info->dlpi_name);
  char* const slash = strrchr(folder.path, '/');
  (slash == nullptr ? folder.path : slash)[0] = 0;
  return 1;
}

void* open_library() {
  if (void* const library = dlopen(kName, RTLD_NOW | RTLD_LOCAL)) {
    return library;
  }
  Folder folder;
  dl_iterate_phdr(find_folder_of_mpi, static_cast<void*>(&folder));
  for (const char* const within : {"", "/mpich", "/openmpi", "/libfabric"}) {
    char path[PATH_MAX + 64];
    (void)snprintf(path, sizeof path, "%s%s/%s", folder.path, within, kName);
    void* const library = folder.path[0] == 0 ? nullptr : dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) {
      return library;
    }
  }
  return nullptr;
}

template <typename Function>
bool find(void* library, const char* name, const char* version, Function*& function) {
  function = reinterpret_cast<Function*>(dlvsym(library, name, version));
  return function != nullptr;
}

}  // namespace

const OfiLibrary* find_ofi_library() {
  static OfiLibrary functions = {};
  static bool is_found = false;
  void* const library = is_found ? nullptr : open_library();
  if (library != nullptr) {
    is_found = find(library, "fi_getinfo", "FABRIC_1.3", functions.get_info) &&
               find(library, "fi_dupinfo", "FABRIC_1.3", functions.duplicate_info) &&
               find(library, "fi_freeinfo", "FABRIC_1.3", functions.free_info) &&
               find(library, "fi_fabric", "FABRIC_1.1", functions.open_fabric) &&
               find(library, "fi_strerror", "FABRIC_1.0", functions.error_text);
  }
  return is_found ? &functions : nullptr;
}

}  // namespace headroom::rpipe
