// Copies by cross-memory attach when this process's own memory is of the kind that the kernel cannot bring in: hidden, and
// shown by a signal handler, as the engines for ordinary users do. The other process is this one.
#include "direct/attach.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <vector>

namespace headroom::direct {
namespace {

constexpr uint64_t kBytes = 100 << 10;
char* hidden = nullptr;
volatile int shown = 0;

void show(int, siginfo_t* what, void*) {
  const uint64_t at = (reinterpret_cast<uint64_t>(what->si_addr) - reinterpret_cast<uint64_t>(hidden)) & ~uint64_t{4095};
  shown = shown + 1;
  if (at >= kBytes || mprotect(hidden + at, 4096, PROT_READ | PROT_WRITE) != 0) {
    _exit(1);
  }
}

class Attach : public ::testing::Test {
 protected:
  void SetUp() override {
    hidden = static_cast<char*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(MAP_FAILED, static_cast<void*>(hidden));
    struct sigaction action = {};
    action.sa_sigaction = show;
    action.sa_flags = SA_SIGINFO;
    ASSERT_EQ(0, sigaction(SIGSEGV, &action, &before));
    shown = 0;
  }
  void TearDown() override {
    sigaction(SIGSEGV, &before, nullptr);
    munmap(hidden, kBytes);
  }
  struct sigaction before = {};
};

std::vector<char> pattern() {
  std::vector<char> content(kBytes);
  for (uint64_t at = 0; at < kBytes; ++at) {
    content[at] = static_cast<char>(at * 31 + (at >> 12));
  }
  return content;
}

TEST_F(Attach, WritesFromHiddenMemory) {
  const std::vector<char> content = pattern();
  memcpy(hidden, content.data(), kBytes);
  ASSERT_EQ(0, mprotect(hidden + 8192, kBytes - 8192, PROT_NONE));
  std::vector<char> target(kBytes);
  Walk from({hidden, kBytes, nullptr});
  Walk to({target.data(), kBytes, nullptr});
  EXPECT_TRUE(copy(to, from, kBytes, {Reach::kToOther, getpid()}));
  EXPECT_EQ(content, target);
  EXPECT_GT(shown, 0);
}

TEST_F(Attach, ReadsIntoHiddenMemory) {
  std::vector<char> content = pattern();
  ASSERT_EQ(0, mprotect(hidden, kBytes, PROT_NONE));
  Walk from({content.data(), kBytes, nullptr});
  Walk to({hidden, kBytes, nullptr});
  EXPECT_TRUE(copy(to, from, kBytes, {Reach::kFromOther, getpid()}));
  EXPECT_EQ(0, memcmp(content.data(), hidden, kBytes));
  EXPECT_GT(shown, 0);
}

TEST_F(Attach, SaysWhenTheOtherMemoryCannotBeReached) {
  ASSERT_EQ(0, munmap(hidden, kBytes));
  std::vector<char> own(kBytes);
  for (const Reach reach : {Reach::kFromOther, Reach::kToOther}) {
    Walk mine({own.data(), kBytes, nullptr});
    Walk gone({hidden, kBytes, nullptr});
    EXPECT_FALSE(
        copy(reach == Reach::kFromOther ? mine : gone, reach == Reach::kFromOther ? gone : mine, kBytes, {reach, getpid()}));
  }
}

}  // namespace
}  // namespace headroom::direct
