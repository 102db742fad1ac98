// libfabric, which is looked for when it is needed: librpipe is linked with none.
//
// Its functions are asked for in the version that the headers describe (FABRIC_1.3, since libfabric 1.5), which newer libraries
// have, too. All else goes through the tables of functions that its objects have, by inline functions of its headers.
#pragma once

#include <rdma/fabric.h>

#include <cstdint>

namespace headroom::rpipe {

struct OfiLibrary {
  int (*get_info)(uint32_t version, const char* node, const char* service, uint64_t flags, const fi_info* hints,
                  fi_info** found);
  fi_info* (*duplicate_info)(const fi_info* info);  // of nullptr: an empty one
  void (*free_info)(fi_info* info);
  int (*open_fabric)(fi_fabric_attr* attributes, fid_fabric** fabric, void* context);
  const char* (*error_text)(int error);
};

/// The library that is loaded, the system's, or else the one that comes with the MPI library that is loaded. nullptr: there is
/// none. Not thread-safe.
const OfiLibrary* find_ofi_library();

}  // namespace headroom::rpipe
