// What MPI libraries are told about network cards: lists that leave something out, what a node has, and the environment.
#include "mpi/transports.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "mpi/library_environment.h"
#include "mpi/transport_lists.h"

namespace headroom::mpi {
namespace {

std::string excluded(const char* given, const char* off) {
  char out[256];
  return exclude_from_list(given, off, out, sizeof out) ? out : "as it was";
}

TEST(Transports, WhatIsOffIsLeftOutOfLists) {
  EXPECT_EQ(excluded(nullptr, "cma,ib"), "^cma,ib");
  EXPECT_EQ(excluded("", "cma"), "^cma");
  EXPECT_EQ(excluded("all", "ib"), "^ib");
  EXPECT_EQ(excluded("^tcp", "cma,ib"), "^tcp,cma,ib");
  EXPECT_EQ(excluded("^cma,ib", "cma"), "as it was");
  EXPECT_EQ(excluded("tcp,self", "cma,ib"), "as it was");
  EXPECT_EQ(excluded("tcp,cma,self", "cma"), "tcp,self");
  EXPECT_EQ(excluded("cma", "cma"), "^cma");  // nothing would be left
  EXPECT_EQ(excluded("tcp", ""), "as it was");
}

TEST(Transports, UcxsNamesForSeveralAreKnown) {
  EXPECT_EQ(excluded("rc,sm", "xpmem,knem"), "rc,posix,sysv,cma");
  EXPECT_EQ(excluded("rc,sm", "cma,xpmem,knem,ib"), "posix,sysv");
  EXPECT_EQ(excluded("rc_v,ud_x,self", "ib"), "self");
  EXPECT_EQ(excluded("\\rc_v,tcp", "ib"), "tcp");
  EXPECT_EQ(excluded("rc_v,ud:aux,tcp", "ib"), "tcp");
  EXPECT_EQ(excluded("verbs;ofi_rxm,tcp;ofi_rxm", "efa,verbs"), "tcp;ofi_rxm");  // libfabric's, of providers
  EXPECT_EQ(excluded("rc,tcp", "xpmem"), "as it was");
  EXPECT_EQ(excluded("mm,tcp", "xpmem"), "posix,sysv,tcp");
}

TEST(Transports, AListThatDoesNotFitIsNotMade) {
  char out[8];
  EXPECT_FALSE(exclude_from_list("posix,sysv,self,tcp,cma", "cma", out, sizeof out));
}

class FakeNode {
 public:
  FakeNode() {
    char name[] = "/tmp/headroom-cards-XXXXXX";
    root_ = mkdtemp(name);
  }
  ~FakeNode() { std::filesystem::remove_all(root_); }
  void add_card(const std::string& name, const std::string& driver) const {
    const auto folder = root_ / "sys/class/infiniband" / name / "device";
    std::filesystem::create_directories(folder);
    if (!driver.empty()) {
      std::filesystem::create_symlink("/sys/bus/drivers/" + driver, folder / "driver");
    }
  }
  void add_device(const std::string& path) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << "";
  }
  [[nodiscard]] Cards cards() const { return find_cards(root_.c_str()); }

 private:
  std::filesystem::path root_;
};

TEST(Transports, CardsAreFound) {
  const FakeNode none;
  EXPECT_FALSE(none.cards().are_any());
  const FakeNode mellanox;
  mellanox.add_card("mlx5_0", "mlx5_core");
  EXPECT_TRUE(mellanox.cards().infiniband && mellanox.cards().on_demand && mellanox.cards().register_memory());
  mellanox.add_card("rxe0", "");  // one that is made of software
  EXPECT_TRUE(mellanox.cards().infiniband);
  EXPECT_FALSE(mellanox.cards().on_demand);
  const FakeNode amazon;
  amazon.add_card("rdmap0s6", "efa");
  EXPECT_TRUE(amazon.cards().efa);
  EXPECT_FALSE(amazon.cards().infiniband);
  const FakeNode others;
  others.add_card("hfi1_0", "hfi1");
  others.add_device("dev/xpmem");
  others.add_device("sys/class/cxi/cxi0");
  EXPECT_TRUE(others.cards().hfi1 && others.cards().xpmem && others.cards().cxi);
  EXPECT_FALSE(others.cards().knem || others.cards().gni);
}

TEST(Transports, WhatPinsIsOverriddenAndSaid) {
  Cards cards;
  cards.infiniband = true;
  setenv("UCX_TLS", "rc,sm", 1);
  setenv("UCX_RCACHE_ENABLE", "y", 1);
  setenv("UCX_RNDV_THRESH", "8k", 1);
  setenv("UCX_RC_TM_ENABLE", "y", 1);
  setenv("FI_PROVIDER", "verbs,tcp", 1);
  setenv("OMPI_MCA_btl", "^ofi", 1);
  setenv("OMPI_MCA_coll_ucc_enable", "1", 1);
  setenv("HEADROOM_TEST", "stays", 1);
  make_transports_copy(cards, true, nullptr);
  // No UCX is loaded, so that it is not known to copy.
  EXPECT_STREQ(getenv("UCX_TLS"), "posix,sysv,cma");
  EXPECT_STREQ(getenv("UCX_RCACHE_ENABLE"), "n");
  EXPECT_STREQ(getenv("UCX_ZCOPY_THRESH"), "inf");
  EXPECT_STREQ(getenv("UCX_RNDV_SCHEME"), "am");
  EXPECT_STREQ(getenv("UCX_RNDV_THRESH"), "8k");  // means memory, not whether data are right
  EXPECT_STREQ(getenv("UCX_RC_TM_ENABLE"), "n");
  EXPECT_EQ(getenv("UCX_DC_TM_ENABLE"), nullptr);
  EXPECT_STREQ(getenv("MPI_UCX_RCACHE_ENABLE"), "n");
  EXPECT_STREQ(getenv("FI_PROVIDER"), "tcp");
  EXPECT_STREQ(getenv("OMPI_MCA_btl"), "^ofi,openib,uct,ugni,usnic,portals4");
  EXPECT_STREQ(getenv("OMPI_MCA_mpi_leave_pinned"), "0");
  EXPECT_STREQ(getenv("OMPI_MCA_coll_hcoll_enable"), "0");
  EXPECT_STREQ(getenv("OMPI_MCA_coll_ucc_enable"), "0");
  EXPECT_EQ(getenv("MPIR_CVAR_ENABLE_HCOLL"), nullptr);
  EXPECT_STREQ(getenv("HEADROOM_TEST"), "stays");
  const std::string said = overridden_settings();
  EXPECT_NE(said.find("UCX_TLS=rc,sm -> posix,sysv,cma"), std::string::npos) << said;
  EXPECT_NE(said.find("UCX_RCACHE_ENABLE=y -> n"), std::string::npos) << said;
  EXPECT_NE(said.find("FI_PROVIDER=verbs,tcp -> tcp"), std::string::npos) << said;
  EXPECT_NE(said.find("OMPI_MCA_coll_ucc_enable=1 -> 0"), std::string::npos) << said;
  EXPECT_EQ(said.find("OMPI_MCA_btl"), std::string::npos) << said;  // nothing was allowed that is not now
  // Asked again, as it is when MPI begins, it says and sets the same.
  make_transports_copy(cards, true, nullptr);
  EXPECT_EQ(said, overridden_settings());
  EXPECT_STREQ(getenv("UCX_TLS"), "posix,sysv,cma");
}

TEST(Transports, WhatTurnsOutToCopyIsGivenBack) {
  // As where the library is loaded by the program, after Headroom had to decide for the first time.
  setenv("UCX_TLS", "cma,tcp", 1);
  make_transports_copy(Cards{}, false, nullptr);
  EXPECT_STREQ(getenv("UCX_TLS"), "tcp");
  Cards cards;
  cards.knem = true;
  make_transports_copy(cards, true, nullptr);
  EXPECT_STREQ(getenv("UCX_TLS"), "cma,tcp");
  EXPECT_STREQ(overridden_settings(), "");
  unsetenv("UCX_TLS");
}

TEST(Transports, NothingIsSetWhereNothingIsToBeKeptFromPinning) {
  unsetenv("UCX_TLS");
  make_transports_copy(Cards{}, true, nullptr);
  EXPECT_EQ(getenv("UCX_TLS"), nullptr);
  make_transports_copy(Cards{}, false, nullptr);  // the engine does not serve the kernel
  EXPECT_STREQ(getenv("UCX_TLS"), "^cma");
  EXPECT_STREQ(getenv("MPIR_CVAR_CH4_CMA_ENABLE"), "0");
  EXPECT_EQ(getenv("UCX_RCACHE_ENABLE"), nullptr);
}

TEST(Transports, LibrariesThatCannotBeToldAreRefused) {
  Cards cards;
  cards.cxi = true;
  EXPECT_NE(why_it_cannot_copy(cards, "MPI VERSION    : CRAY MPICH version 8.1.29"), nullptr);
  EXPECT_EQ(why_it_cannot_copy(cards, "MPICH Version:      5.0.2"), nullptr);
  EXPECT_NE(why_it_cannot_copy(cards, "MVAPICH2 Version      :\t2.3.7"), nullptr);
  EXPECT_EQ(why_it_cannot_copy(Cards{}, "MVAPICH2 Version      :\t2.3.7"), nullptr);
}

}  // namespace
}  // namespace headroom::mpi
