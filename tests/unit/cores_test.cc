// The processor quota of cgroups of both versions, their ancestors' included; the cores that Headroom's own threads run on.
#include "node/cores.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace headroom::node {
namespace {

class Quota : public ::testing::Test {
 protected:
  void SetUp() override { root = std::filesystem::path(::testing::TempDir()) / ("quota_test." + std::to_string(getpid())); }
  void TearDown() override { std::filesystem::remove_all(root); }

  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text;
  }
  uint32_t cores(const std::string& own) const {
    write("own", own);
    return quota_in_cores((root / "own").c_str(), root.c_str());
  }

  std::filesystem::path root;
};

TEST_F(Quota, NoneWithoutACgroup) {
  EXPECT_EQ(kMaxCores, quota_in_cores("/nowhere", "/nowhere"));
  EXPECT_EQ(kMaxCores, cores("0::/\n"));
}

TEST_F(Quota, VersionTwoTheTightestAncestorBinds) {
  write("cpu.max", "max 100000\n");
  write("job/cpu.max", "150000 100000\n");
  write("job/step/cpu.max", "400000 100000\n");
  EXPECT_EQ(2, cores("0::/job/step\n"));
  EXPECT_EQ(2, cores("0::/job\n"));
  EXPECT_EQ(kMaxCores, cores("0::/\n"));
}

TEST_F(Quota, VersionOneHasAPeriodOfItsOwn) {
  write("cpu/job/cpu.cfs_quota_us", "30000\n");
  write("cpu/job/cpu.cfs_period_us", "10000\n");
  write("cpu/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(3, cores("9:memory:/elsewhere\n4:cpuacct,cpu:/job\n0::/\n"));
  EXPECT_EQ(kMaxCores, cores("4:cpuset:/job\n"));
}

TEST_F(Quota, AContainerSeesItsCgroupAsTheRoot) {
  write("cpu.max", "100000 100000\n");
  EXPECT_EQ(1, cores("0::/not/to/be/seen\n"));
}

cpu_set_t set_of(std::initializer_list<int> cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) {
    CPU_SET(static_cast<size_t>(core), &set);
  }
  return set;
}

class Helper : public Quota {
 protected:
  bool runs_on(std::initializer_list<int> expected, std::initializer_list<int> own, std::initializer_list<int> launchers,
               std::initializer_list<int> ranks) const {
    const cpu_set_t cores = cores_of_helper(set_of(own), set_of(launchers), set_of(ranks), root.c_str());
    const cpu_set_t wanted = set_of(expected);
    return CPU_EQUAL(&cores, &wanted) != 0;
  }
};

TEST_F(Helper, RunsWhereTheLauncherMayOnTheSameNodes) {
  write("node0/cpulist", "0-3,8-11\n");
  write("node1/cpulist", "4-7,12-15\n");
  EXPECT_TRUE(runs_on({0, 1, 2, 3, 8, 9}, {1}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {1}));
  EXPECT_TRUE(runs_on({4, 5}, {5}, {4, 5}, {5}));
  EXPECT_TRUE(runs_on({1, 2, 4}, {1, 4}, {1, 2, 4}, {1, 4}));
}

TEST_F(Helper, LeavesOtherRanksTheirCores) {
  write("node0/cpulist", "0-3\n");
  EXPECT_TRUE(runs_on({1, 3}, {1}, {0, 1, 2, 3}, {0, 1, 2}));
  EXPECT_TRUE(runs_on({1}, {1}, {0, 1, 2, 3}, {0, 1, 2, 3}));
}

TEST_F(Helper, RunsWithTheProgramInAnyCase) {
  write("node0/cpulist", "0-3\n");
  EXPECT_TRUE(runs_on({2}, {2}, {}, {2}));
  EXPECT_TRUE(runs_on({9}, {9}, {0, 1}, {9}));  // a core that no node has
}

TEST_F(Helper, TakesAMachineWithoutNodesForOne) { EXPECT_TRUE(runs_on({0, 1}, {1}, {0, 1}, {1})); }

}  // namespace
}  // namespace headroom::node
