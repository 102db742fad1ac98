// Names that the MPI library lacks are absent from this library's symbol table too, so that a program that asks for them
// sees what it would see without Headroom: by a weak symbol in C, or by looking into the global scope, as mpi4py does.
//
// Names that the program itself refers to were dealt with before it was relocated (before_relocation.cc). This file decides
// what code that is loaded later sees.
#include "mpi/absent_names.h"

#include <stdlib.h>
#include <string.h>

#include "mpi/function_table.h"
#include "mpi/symbol_tables.h"

namespace headroom::mpi {
namespace {

bool begins_with_one_of(const char* name, const char* const* prefixes, size_t count) {
  for (size_t index = 0; index < count; ++index) {
    if (strncmp(name, prefixes[index], strlen(prefixes[index])) == 0) {
      return true;
    }
  }
  return false;
}

/// Whether the function came after MPI-3.1. Used until the library itself can be asked: a name hidden in vain is still found in
/// the library, only Headroom does not see its calls.
bool came_after_mpi3(int index, void*) {
  constexpr const char* kNewer[] = {"Abi_",
                                    "Remove_error",
                                    "Comm_attach_buffer",
                                    "Comm_detach_buffer",
                                    "Comm_flush_buffer",
                                    "Comm_iflush_buffer",
                                    "Session_",
                                    "Buffer_flush",
                                    "Buffer_iflush",
                                    "Type_get_value_index",
                                    "Request_get_status_",
                                    "Status_get_",
                                    "Get_hw_resource_info",
                                    "Psend_init",
                                    "Precv_init",
                                    "Pready",
                                    "Parrived",
                                    "Isendrecv",
                                    "Info_get_string",
                                    "Info_create_env",
                                    "Comm_idup_with_info",
                                    "Group_from_session",
                                    "Intercomm_create_from",
                                    "Comm_create_from_group",
                                    "Comm_ack",
                                    "Comm_agree",
                                    "Comm_iagree",
                                    "Comm_get_failed",
                                    "Comm_is_revoked",
                                    "Comm_revoke",
                                    "Comm_shrink",
                                    "Comm_ishrink",
                                    "Barrier_init",
                                    "Bcast_init",
                                    "Gather_init",
                                    "Gatherv_init",
                                    "Scatter_init",
                                    "Scatterv_init",
                                    "Allgather_init",
                                    "Allgatherv_init",
                                    "Alltoall_init",
                                    "Alltoallv_init",
                                    "Alltoallw_init",
                                    "Reduce_init",
                                    "Allreduce_init",
                                    "Reduce_scatter_init",
                                    "Reduce_scatter_block_init",
                                    "Scan_init",
                                    "Exscan_init",
                                    "Neighbor_"};
  constexpr const char* kOldNeighbor[] = {"Neighbor_allgather", "Neighbor_alltoall"};
  const char* name = profiled_name_of(index) + 5;  // after PMPI_
  const size_t length = strlen(name);
  const bool is_init = length > 5 && strcmp(name + length - 5, "_init") == 0;
  if (begins_with_one_of(name, kOldNeighbor, 2) && !is_init) {
    return length > 2 && strcmp(name + length - 2, "_c") == 0;
  }
  return (length > 2 && strcmp(name + length - 2, "_c") == 0) ||
         begins_with_one_of(name, kNewer, sizeof kNewer / sizeof *kNewer);
}

/// Whether the name is hidden where no MPI library is loaded yet (Python, plug-in hosts). Programs ask the global scope whether
/// MPI is there already (mpi4py asks for MPI_Get_version), so names that would only be forwarded are not shown: nothing is
/// lost. MPICH's process managers, which say PMI_RANK, start libraries that have all of MPI-4; others may not.
bool hidden_before_loading(int index, void*) {
  static const bool may_be_old = getenv("PMI_RANK") == nullptr;
  return HEADROOM_FUNCTION_KINDS[index] == 'f' || (may_be_old && came_after_mpi3(index, nullptr));
}

}  // namespace

void hide_absent_names() {
  SymbolTables library = tables_of_mpi_library();
  if (library.are_known()) {
    hide_names(is_absent_from, &library);
  } else {
    hide_names(hidden_before_loading, nullptr);
  }
}

}  // namespace headroom::mpi
