// See find_mpi.h.
#include "rpipe/find_mpi.h"

#include <dlfcn.h>
#include <link.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>

#include "rpipe/messages.h"

namespace headroom::rpipe {

namespace {

struct KnownLibrary {
  const char* soname;
  const char* interface;
};
constexpr KnownLibrary kKnown[] = {{"libmpi.so.12", "mpich"}, {"libmpi.so.40", "openmpi"}, {"libmpi_abi.so", "standard"}};

int look_at(dl_phdr_info* info, size_t /*bytes*/, void* found) {
  const char* const slash = strrchr(info->dlpi_name, '/');
  const char* const name = slash == nullptr ? info->dlpi_name : slash + 1;
  for (const KnownLibrary& known : kKnown) {
    if (strncmp(name, known.soname, strlen(known.soname)) == 0) {
      *static_cast<const char**>(found) = known.interface;
      return 1;
    }
  }
  return 0;
}

}  // namespace

int find_mpi(rpipe_bootstrap& bootstrap, const rpipe_transport*& messages) {
  const char* interface = nullptr;
  dl_iterate_phdr(look_at, static_cast<void*>(&interface));
  if (interface == nullptr) {
    say("no MPI library is loaded; rpipe_init_with() does without");
    return -ENOTSUP;
  }
  Dl_info own = {};
  char path[PATH_MAX];
  if (dladdr(reinterpret_cast<void*>(&find_mpi), &own) == 0 || own.dli_fname == nullptr) {
    return -ENOTSUP;
  }
  const char* const slash = strrchr(own.dli_fname, '/');
  const int folder = slash == nullptr ? 0 : static_cast<int>(slash - own.dli_fname) + 1;
  (void)snprintf(path, sizeof path, "%.*slibrpipe_%s.so", folder, own.dli_fname, interface);
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    say("cannot open %s: %s", path, dlerror());
    return -ENOTSUP;
  }
  using Join = int(rpipe_bootstrap*, const rpipe_transport**);
  auto* const join = reinterpret_cast<Join*>(dlsym(library, "rpipe_join_mpi_world"));
  if (join == nullptr) {
    say("%s is not of this version", path);
    return -ENOTSUP;
  }
  const int error = join(&bootstrap, &messages);
  if (error != 0) {
    say("MPI is not initialized, or finalized: rpipe_init() comes between");
  }
  return error;
}

}  // namespace headroom::rpipe
