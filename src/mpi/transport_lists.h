// Lists of transports, as UCX, libfabric and Open MPI take them from the environment.
#pragma once

#include <cstddef>

namespace headroom::mpi {

/// Whether a list (names separated by commas) has the name.
bool has_name(const char* list, const char* name, size_t length);

/// A list of what a library may use ("rc,sm"), or after "^" of what it may not, made such that it uses none of `off` (names
/// separated by commas; "" if all are allowed). False if it need not change, or does not fit. `given` may be nullptr: not set.
bool exclude_from_list(const char* given, const char* off, char* out, size_t room);

}  // namespace headroom::mpi
