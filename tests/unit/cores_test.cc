// The processor quota of cgroups of both versions, their ancestors' included.
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

}  // namespace
}  // namespace headroom::node
