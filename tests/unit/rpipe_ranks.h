// Processes of a test that are ranks with pipes, as in a job without MPI. The test's process is none of them. Where there are
// several `nodes` each rank takes those of others to be on other nodes, and pipes go by messages: those of rpipe_transport.h,
// or with `by_ofi` libfabric's.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "headroom/rpipe.h"
#include "rpipe/card.h"
#include "rpipe/handle.h"
#include "rpipe_transport.h"

namespace headroom::test {

constexpr int kMostPipeRanks = 8;
constexpr unsigned kPipesHangAfterSeconds = 60;

/// What the ranks share beside their pipes.
struct PipeJob {
  std::atomic<int> arrived[4];  // of what is gathered first, and so on
  char cards[4][kMostPipeRanks][1024];
  std::atomic<uint64_t> words[16];
  Mail mail;
};

/// Ends the rank with a line on what is wrong.
#define RANK_EXPECT(what)                                                        \
  do {                                                                           \
    if (!(what)) {                                                               \
      (void)dprintf(2, "%s:%d: rank %d: %s\n", __FILE__, __LINE__, self, #what); \
      _exit(77);                                                                 \
    }                                                                            \
  } while (false)

class PipeRanks : public ::testing::Test {
 protected:
  void SetUp() override {
    job = static_cast<PipeJob*>(mmap(nullptr, sizeof(PipeJob), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    said_file = memfd_create("said", MFD_CLOEXEC);
    ASSERT_EQ(0, fcntl(said_file, F_SETFL, O_APPEND));
  }
  void TearDown() override {
    munmap(static_cast<void*>(job), sizeof(PipeJob));
    close(said_file);
  }

  /// Starts the ranks, each of which does work(rank) between rpipe_init_with() and, if `finalizes`, rpipe_finalize().
  template <typename Work>
  void start(int count, Work work, bool finalizes = true) {
    for (std::atomic<int>& arrived : job->arrived) {
      arrived = 0;
    }
    for (int rank = 0; rank < count; ++rank) {
      processes[rank] = fork();
      ASSERT_GE(processes[rank], 0);
      if (processes[rank] == 0) {
        dup2(said_file, STDERR_FILENO);
        alarm(kPipesHangAfterSeconds);
        run(rank, count, work, finalizes);
      }
    }
  }
  /// How the rank ended: its exit status, or minus the signal.
  int end_of(int rank) {
    int status = 0;
    waitpid(processes[rank], &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  std::string said() const {
    std::string text(4096, 0);
    const ssize_t bytes = pread(said_file, text.data(), text.size(), 0);
    text.resize(bytes > 0 ? static_cast<size_t>(bytes) : 0);
    return text;
  }
  void expect_all_end_well(int count) {
    for (int rank = 0; rank < count; ++rank) {
      EXPECT_EQ(0, end_of(rank)) << "rank " << rank << "\n" << said();
    }
  }

  /// The way that pipes go to other nodes.
  [[nodiscard]] uint32_t backend() const { return nodes == 1 ? RPIPE_NODE : by_ofi ? RPIPE_OFI : RPIPE_MPI; }

  /// In a rank, after rpipe_finalize().
  int begin_again(int self, int count) {
    Bootstrap context = {job, self, count, nodes, 2};
    const rpipe_bootstrap bootstrap = {sizeof bootstrap, self, count, gather, &context};
    return rpipe_init_with(&bootstrap);
  }

  int nodes = 1;
  bool by_ofi = false;
  const char* wish_of_first = nullptr;     // RPIPE_BETWEEN of rank 0
  const char* network_of_first = nullptr;  // FI_PROVIDER of rank 0
  PipeJob* job = nullptr;
  int said_file = -1;
  pid_t processes[kMostPipeRanks] = {};

 private:
  struct Bootstrap {
    PipeJob* job;
    int rank, count, nodes, round;
  };
  static int gather(void* context, const void* mine, void* all, size_t bytes) {
    auto& bootstrap = *static_cast<Bootstrap*>(context);
    const int round = bootstrap.round++;
    auto& cards = bootstrap.job->cards[round];
    if (bytes > sizeof cards[0]) {
      return -1;
    }
    memcpy(cards[bootstrap.rank], mine, bytes);
    ++bootstrap.job->arrived[round];
    while (bootstrap.job->arrived[round].load() < bootstrap.count) {
      sched_yield();
    }
    for (int rank = 0; rank < bootstrap.count; ++rank) {
      auto* const card = static_cast<char*>(all) + static_cast<size_t>(rank) * bytes;
      memcpy(card, cards[rank], bytes);
      if (round % 2 == 0 && rank % bootstrap.nodes != bootstrap.rank % bootstrap.nodes) {
        reinterpret_cast<rpipe::Card*>(card)->node[0] = '?';
      }
    }
    return 0;
  }
  template <typename Work>
  void run(int self, int count, Work work, bool finalizes) {
    Bootstrap context = {job, self, count, nodes, 0};
    TestTransport::begin(job->mail, self);
    if (self == 0 && wish_of_first != nullptr) {
      setenv("RPIPE_BETWEEN", wish_of_first, 1);
    }
    if (self == 0 && network_of_first != nullptr) {
      setenv("FI_PROVIDER", network_of_first, 1);
    }
    const rpipe_bootstrap bootstrap = {sizeof bootstrap, self, count, gather, &context};
    RANK_EXPECT((nodes > 1 && !by_ofi ? rpipe::begin(bootstrap, TestTransport::table()) : rpipe_init_with(&bootstrap)) == 0);
    work(self);
    RANK_EXPECT(!finalizes || rpipe_finalize(RPIPE_FOREVER) == 0);
    TestTransport::end(count);
    _exit(0);
  }
};

}  // namespace headroom::test
