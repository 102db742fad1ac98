// The network cards of this node, and other devices that can register, or keep, pages of a program.
#pragma once

namespace headroom::mpi {

/// The devices of this node that can register, or keep, pages of a program.
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

}  // namespace headroom::mpi
