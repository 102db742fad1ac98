// The MPI libraries that Headroom knows, by the SONAME under which they are loaded. Inline, and without a call of the C
// library's: mpi/before_relocation.cc asks while no such call can be made.
#pragma once

#include <link.h>

#include <cstdint>

namespace headroom::base {

/// The binary interfaces; their names are those of the libraries that are compiled for each (libheadroom_mpich.so).
enum class MpiInterface : int { kNone = -1, kMpich = 0, kOpenMpi, kStandard };

inline constexpr const char* name_of(MpiInterface interface) {
  switch (interface) {
    case MpiInterface::kMpich:
      return "mpich";
    case MpiInterface::kOpenMpi:
      return "openmpi";
    case MpiInterface::kStandard:
      return "standard";
    default:
      return "none";
  }
}

/// strcmp() == 0.
inline bool are_equal(const char* one, const char* other) {
  while (*one != 0 && *one == *other) {
    ++one;
    ++other;
  }
  return *one == *other;
}

/// The binary interface of the library that has this SONAME (nullptr: none).
inline MpiInterface interface_of_soname(const char* soname) {
  constexpr struct {
    const char* soname;
    MpiInterface interface;
  } kKnown[] = {
      {"libmpi.so.12", MpiInterface::kMpich},       {"libmpich.so.12", MpiInterface::kMpich},
      {"libmpi_cray.so.12", MpiInterface::kMpich},  {"libmpi_intel.so.12", MpiInterface::kMpich},
      {"libmpi.so.40", MpiInterface::kOpenMpi},     {"libmpi_abi.so.1", MpiInterface::kStandard},
      {"libmpi_abi.so.0", MpiInterface::kStandard},
  };
  for (const auto& known : kKnown) {
    if (soname != nullptr && are_equal(soname, known.soname)) {
      return known.interface;
    }
  }
  return MpiInterface::kNone;
}

/// The SONAME of a loaded object; nullptr: it has none.
inline const char* soname_of(const dl_phdr_info& object) {
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
      const uintptr_t value = dynamic->d_un.d_ptr;  // the kernel's own object has offsets
      strings = reinterpret_cast<const char*>(value < object.dlpi_addr ? value + object.dlpi_addr : value);
    } else if (dynamic->d_tag == DT_SONAME) {
      name = dynamic->d_un.d_val;
    }
  }
  return strings != nullptr && name != 0 ? strings + name : nullptr;
}

/// The binary interface of a loaded object, if it is an MPI library.
inline MpiInterface mpi_interface_of(const dl_phdr_info& object) {
  const bool is_library = object.dlpi_name != nullptr && *object.dlpi_name != 0;
  return is_library ? interface_of_soname(soname_of(object)) : MpiInterface::kNone;
}

}  // namespace headroom::base
