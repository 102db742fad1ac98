// The first MPI call: finds the MPI library, opens the backend for its binary interface, fills the table; see trampolines.h.
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <atomic>

#include "base/log.h"
#include "base/settings.h"
#include "mpi/core_functions.h"
#include "mpi/library.h"
#include "mpi/shortcuts.h"
#include "mpi/trampolines.h"

extern "C" void* headroom_mpi_resolve(uint32_t entry, const void* caller);

namespace headroom::mpi {
namespace {

constexpr const char* kNames[kEntryCount] = {
#define X(index, name) "MPI_" #name, "PMPI_" #name,
    HEADROOM_FUNCTIONS(X)
#undef X
};

std::atomic<bool> resolved{false};
bool tools_define[kEntryCount] = {};

/// The function that a name leads to if the MPI library lacks it. Reached only by a program that could not have run without
/// Headroom.
int missing_function() { base::die("the program calls an MPI function that its MPI library does not have"); }

/// The function behind us in the search order that has the MPI_ name, if it is a tool's and not an MPI library's or a language
/// binding's. (Two libraries may be loaded; and where one was loaded privately, as mpi4py does, its own handle alone finds it.
/// MPICH's Fortran library defines two functions of C.)
void* tool_function(const char* name, void* in_library) {
  void* next = dlsym(RTLD_NEXT, name);
  return next != in_library && next != nullptr && core_functions().is_program(next) ? next : nullptr;
}

/// The library's own function, or its Fortran library's.
void* library_function(void* library, const char* name) {
  void* own = dlsym(library, name);
  void* next = own != nullptr ? nullptr : dlsym(RTLD_NEXT, name);
  const CoreFunctions& core = core_functions();
  return next != nullptr && !core.is_program(next) && !core.is_mpi_library(next) ? next : own;
}

void look_up_real(BackendRequest& request, void* library) {
  for (int entry = 0; entry < kEntryCount; ++entry) {
    void* own = library_function(library, kNames[entry]);
    void* tool = entry % 2 == 0 ? tool_function(kNames[entry], own) : nullptr;
    request.real[entry] = tool != nullptr ? tool : own;
    tools_define[entry] = tool != nullptr;
  }
}

/// Whether the object that defines `function` calls `name` by linking, so that the call comes to our trampolines. (Others fetch
/// it with dlsym(RTLD_NEXT), which passes us by.)
bool object_calls(void* function, const char* name) {
  Dl_info info = {};
  const link_map* map = nullptr;
  if (dladdr1(function, &info, const_cast<void**>(reinterpret_cast<const void**>(&map)), RTLD_DL_LINKMAP) == 0) {
    return false;
  }
  const ElfW(Sym)* symbol = nullptr;
  const char* strings = nullptr;
  for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_SYMTAB) {
      symbol = reinterpret_cast<const ElfW(Sym)*>(entry->d_un.d_ptr);
    } else if (entry->d_tag == DT_STRTAB) {
      strings = reinterpret_cast<const char*>(entry->d_un.d_ptr);
    }
  }
  // Linkers put the names behind the table that refers to them.
  for (; symbol != nullptr && reinterpret_cast<const char*>(symbol + 1) <= strings; ++symbol) {
    if (symbol->st_shndx == SHN_UNDEF && strcmp(strings + symbol->st_name, name) == 0) {
      return true;
    }
  }
  return false;
}

/// A tool of the profiling interface is to see the program's calls as they are, so Headroom works below it where it can: the
/// tool's MPI_ functions are called directly, and their calls by PMPI_ names count as the program's. Starting MPI is always
/// wrapped on both sides of the tool.
void step_below_tools(BackendRequest& request) {
  for (int entry = 0; entry < kEntryCount; entry += 2) {
    const bool starts = strstr(kNames[entry], "_Init") != nullptr || strstr(kNames[entry], "_init") != nullptr;
    if (tools_define[entry] && !starts && object_calls(request.real[entry], kNames[entry + 1])) {
      request.wrapper[entry] = nullptr;
    } else if (tools_define[entry] && !starts) {
      note_tool_below();
    }
  }
}

void check_forced(Abi abi, const char* path) {
  const base::MpiChoice wanted = base::settings().mpi;
  if (wanted != base::MpiChoice::kAuto && static_cast<int>(wanted) - 1 != static_cast<int>(abi)) {
    char name[32];
    base::die("--mpi %s: the program uses %s, which is %s; leave --mpi out, or start a program that was built with %s",
              base::choice_name("mpi", static_cast<int>(wanted), name, sizeof name), path, base::name_of(abi), name);
  }
}

/// The backend lies beside this library.
void backend_path(Abi abi, char* out, size_t bytes) {
  Dl_info self = {};
  dladdr(reinterpret_cast<void*>(&missing_function), &self);
  const char* slash = strrchr(self.dli_fname, '/');
  const int directory = slash != nullptr ? static_cast<int>(slash - self.dli_fname) : 0;
  snprintf(out, bytes, "%.*s/libheadroom_%s.so", directory, self.dli_fname, base::name_of(abi));
}

bool resolve(const void* caller) {
  const Library library = find_library(caller);
  if (library.abi == Abi::kNone) {
    return false;
  }
  void* handle = dlopen(library.path, RTLD_NOLOAD | RTLD_LAZY);
  if (handle == nullptr) {
    return false;
  }
  check_forced(library.abi, library.path);
  // Static: several threads may resolve at once and fill it with the same values.
  static BackendRequest request;
  request.library_path = library.path;
  look_up_real(request, handle);
  char path[1024];
  backend_path(library.abi, path, sizeof path);
  void* backend = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  auto* init = backend != nullptr ? reinterpret_cast<BackendInit>(dlsym(backend, kBackendInitName)) : nullptr;
  if (init == nullptr) {
    if (access(path, F_OK) == 0) {
      base::die("cannot open %s: %s", path, dlerror());
    }
    base::die("Headroom was installed without a backend for %s, which the program uses; build it with that library's headers",
              library.path);
  }
  init(&request, &core_functions());
  step_below_tools(request);
  fill_table(request, reinterpret_cast<void*>(missing_function));
  resolved.store(true, std::memory_order_release);
  return true;
}

}  // namespace
}  // namespace headroom::mpi

void* headroom_mpi_resolve(uint32_t entry, const void* caller) {
  using namespace headroom;
  const int saved_errno = errno;
  if (!mpi::resolved.load(std::memory_order_acquire) && !mpi::resolve(caller)) {
    base::die(
        "the program calls %s, but no MPI library that Headroom knows is loaded (libmpi.so.12, libmpi.so.40, "
        "libmpi_abi.so.1)",
        mpi::kNames[entry]);
  }
  errno = saved_errno;
  return headroom_mpi_table[entry].load(std::memory_order_acquire);
}
