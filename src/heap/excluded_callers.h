// Which code may not be given evictable memory: the MPI library, what it is made of, and network stacks beneath it.
//
// Told by the return address of the allocating call: the object that it lies in is looked up by name once and remembered.
// Looking up takes the dynamic loader's lock for a moment and none of ours, so constructors that run inside dlopen() may
// allocate. The same question ("is this call from inside MPI?") is asked by the MPI layer of every interposed call.
#pragma once

#include <cstdint>

namespace headroom::heap {

enum class CallerKind : uint32_t {
  kProgram,          // the program, its libraries, tools
  kMpiLibrary,       // libmpi, its plug-ins, UCX, libfabric, PMIx, verbs
  kLanguageBinding,  // MPI's Fortran and C++ libraries: they call on behalf of the program
};

/// What kind of code `address` belongs to. A few ns when the object has been seen before.
CallerKind caller_kind(const void* address);

inline bool is_excluded_caller(const void* address) { return caller_kind(address) != CallerKind::kProgram; }

}  // namespace headroom::heap
