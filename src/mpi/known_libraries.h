// The MPI libraries that Headroom knows, by the SONAME under which they are loaded. Inline, and without a call of the C
// library's: before_relocation.cc asks while no such call can be made.
#pragma once

#include "mpi/library.h"

namespace headroom::mpi {

/// strcmp() == 0.
inline bool are_equal(const char* one, const char* other) {
  while (*one != 0 && *one == *other) {
    ++one;
    ++other;
  }
  return *one == *other;
}

/// The binary interface of the library that has this SONAME (nullptr: none).
inline Abi abi_of_soname(const char* soname) {
  constexpr struct {
    const char* soname;
    Abi abi;
  } kKnown[] = {
      {"libmpi_abi.so.1", Abi::kStandard}, {"libmpi_abi.so.0", Abi::kStandard}, {"libmpi.so.12", Abi::kMpich},
      {"libmpich.so.12", Abi::kMpich},     {"libmpi_cray.so.12", Abi::kMpich},  {"libmpi_intel.so.12", Abi::kMpich},
      {"libmpi.so.40", Abi::kOpenMpi},
  };
  for (const auto& known : kKnown) {
    if (soname != nullptr && are_equal(soname, known.soname)) {
      return known.abi;
    }
  }
  return Abi::kNone;
}

}  // namespace headroom::mpi
