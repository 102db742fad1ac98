// Transports of MPI libraries beside memory that may move: what this node has, and how the libraries are told; transports.cc.
#pragma once

#include <cstddef>

namespace headroom::mpi {

/// What this node has that can register, or keep, pages of a program.
struct Cards {
  bool infiniband = false;  // RDMA cards that UCX and libfabric's verbs use, real ones or not
  bool on_demand = false;   // all of these can work on memory that is not pinned
  bool efa = false;
  bool hfi1 = false;
  bool cxi = false;
  bool gni = false;
  bool xpmem = false;
  bool knem = false;

  /// Whether a library may register memory with one.
  [[nodiscard]] bool register_memory() const { return infiniband || efa || hfi1 || cxi || gni; }
  [[nodiscard]] bool are_any() const { return register_memory() || xpmem || knem; }
};

/// `root`: where /sys and /dev are, for tests.
Cards find_cards(const char* root = "");

/// Sets what makes the MPI library's transports copy, and excludes those that would not, in the environment of this process and
/// of what it starts. What the user has set stays as far as it goes with that. `serves`: the fault engine lets the kernel touch
/// absent memory. Before the program begins, and once more before the library does: it may be called again.
/// `library`: where the MPI library lies, which may load UCX later; nullptr if that is not known yet.
void make_transports_copy(const Cards& cards, bool serves, const char* library);

/// What of the user's own settings was overridden ("UCX_TLS=rc -> ^cma", ...), for a message; "" if nothing.
const char* overridden_settings();

/// Whether UCX, as this process would load it, copies what its cards transfer.
bool does_ucx_copy(const Cards& cards, const char* library);

/// nullptr, or why this library's use of these cards can be neither made to copy nor switched off. `version`: what
/// MPI_Get_library_version() says.
const char* why_it_cannot_copy(const Cards& cards, const char* version);

/// A list of what a library may use ("rc,sm"), or after "^" of what it may not, made such that it uses none of `off` (names
/// separated by commas; "" if all are allowed). False if it need not change, or does not fit. `given` may be nullptr: not set.
bool exclude_from_list(const char* given, const char* off, char* out, size_t room);

}  // namespace headroom::mpi
