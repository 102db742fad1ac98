// What a node has left: the least of its cgroups of both versions, their ancestors, and the machine; clean pages of files
// count.
#include "node/memory_left.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace headroom::node {
namespace {

class MemoryLeft : public ::testing::Test {
 protected:
  void SetUp() override {
    root = std::filesystem::path(::testing::TempDir()) / ("memory_left_test." + std::to_string(getpid()));
    write("meminfo", "MemTotal:       16000 kB\nMemFree:         1000 kB\nMemAvailable:    8000 kB\n");
  }
  void TearDown() override { std::filesystem::remove_all(root); }

  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text;
  }
  int64_t left(const std::string& own) const {
    write("own", own);
    return memory_left((root / "own").c_str(), root.c_str(), (root / "meminfo").c_str());
  }

  std::filesystem::path root;
};

TEST_F(MemoryLeft, TheMachinesWithoutACgroup) {
  EXPECT_EQ(8000 << 10, left("0::/\n"));
  EXPECT_EQ(INT64_MAX, memory_left("/nowhere", "/nowhere", "/nowhere"));
}

TEST_F(MemoryLeft, VersionTwoTheTightestAncestorBinds) {
  write("job/memory.max", "3000000\n");
  write("job/memory.current", "2500000\n");
  write("job/step/memory.max", "max\n");
  write("job/step/memory.current", "1000000\n");
  EXPECT_EQ(500000, left("0::/job/step\n"));
  write("job/step/memory.high", "1200000\n");
  EXPECT_EQ(200000, left("0::/job/step\n"));
}

TEST_F(MemoryLeft, CleanPagesOfFilesCountAsLeftAndDirtyOnesDoNot) {
  write("job/memory.max", "3000000\n");
  write("job/memory.current", "2900000\n");
  write("job/memory.stat",
        "anon 5\nfile 900000\nfile_dirty 300000\nfile_writeback 100000\nactive_file 200000\ninactive_file 600000\n");
  EXPECT_EQ(100000 + 400000, left("0::/job\n"));
  write("job/memory.stat", "file_dirty 300000\nactive_file 1\ninactive_file 1\n");
  EXPECT_EQ(100000, left("0::/job\n"));
}

TEST_F(MemoryLeft, VersionOneWithNoLimitHasNone) {
  write("memory/job/memory.limit_in_bytes", "9223372036854771712\n");
  write("memory/job/memory.usage_in_bytes", "100000\n");
  EXPECT_EQ(8000 << 10, left("9:cpu,memory:/job\n"));
  write("memory/job/memory.limit_in_bytes", "400000\n");
  write("memory/job/memory.stat",
        "active_file 7\ntotal_active_file 50000\ntotal_inactive_file 1000\ntotal_dirty 500\ntotal_writeback 0\n");
  EXPECT_EQ(300000 + 50500, left("9:cpu,memory:/job\n"));
  write("memory/job/memory.usage_in_bytes", "500000\n");
  write("memory/job/memory.stat", "");
  EXPECT_EQ(0, left("9:cpu,memory:/job\n"));
}

}  // namespace
}  // namespace headroom::node
