// See find_mpi.h.
#include "rpipe/find_mpi.h"

#include <dlfcn.h>
#include <link.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>

#include "base/mpi_libraries.h"
#include "rpipe/messages.h"

namespace headroom::rpipe {

namespace {

struct Found {
  base::MpiInterface interface = base::MpiInterface::kNone;
  char path[PATH_MAX] = {};
};

int look_at(dl_phdr_info* info, size_t /*bytes*/, void* argument) {
  const base::MpiInterface interface = base::mpi_interface_of(*info);
  if (interface == base::MpiInterface::kNone) {
    return 0;
  }
  auto& found = *static_cast<Found*>(argument);
  found.interface = interface;
  (void)snprintf(found.path, sizeof found.path, "%s", info->dlpi_name);
  return 1;
}

}  // namespace

int find_mpi(rpipe_bootstrap& bootstrap, const rpipe_transport*& messages) {
  Found found;
  dl_iterate_phdr(look_at, static_cast<void*>(&found));
  if (found.interface == base::MpiInterface::kNone) {
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
  (void)snprintf(path, sizeof path, "%.*slibrpipe_%s.so", folder, own.dli_fname, base::name_of(found.interface));
  // MPICH and its relatives have several SONAMEs, so ours names none of them: the functions that it calls are found among what
  // is loaded, also where a Python module had the library loaded for itself alone.
  (void)dlopen(found.path, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
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
