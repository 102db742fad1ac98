// Processes of a test that are ranks with pipes, as in a job without MPI. The test's process is none of them. Where `apart` is
// set each rank takes the others to be on other nodes, and pipes go by messages (rpipe_transport.h).
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
  std::atomic<int> arrived;
  char cards[kMostPipeRanks][1024];
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

  int nodes = 1;
  PipeJob* job = nullptr;
  int said_file = -1;
  pid_t processes[kMostPipeRanks] = {};

 private:
  struct Bootstrap {
    PipeJob* job;
    int rank, count, nodes;
  };
  static int gather(void* context, const void* mine, void* all, size_t bytes) {
    const auto& bootstrap = *static_cast<Bootstrap*>(context);
    if (bytes > sizeof bootstrap.job->cards[0]) {
      return -1;
    }
    memcpy(bootstrap.job->cards[bootstrap.rank], mine, bytes);
    ++bootstrap.job->arrived;
    while (bootstrap.job->arrived.load() < bootstrap.count) {
      sched_yield();
    }
    for (int rank = 0; rank < bootstrap.count; ++rank) {
      auto* const card = static_cast<char*>(all) + static_cast<size_t>(rank) * bytes;
      memcpy(card, bootstrap.job->cards[rank], bytes);
      if (rank % bootstrap.nodes != bootstrap.rank % bootstrap.nodes) {
        reinterpret_cast<rpipe::Card*>(card)->node[0] = '?';
      }
    }
    return 0;
  }
  template <typename Work>
  void run(int self, int count, Work work, bool finalizes) {
    Bootstrap context = {job, self, count, nodes};
    TestTransport::begin(job->mail, self);
    const rpipe_bootstrap bootstrap = {sizeof bootstrap, self, count, gather, &context};
    RANK_EXPECT((nodes > 1 ? rpipe::begin(bootstrap, TestTransport::table()) : rpipe_init_with(&bootstrap)) == 0);
    work(self);
    RANK_EXPECT(!finalizes || rpipe_finalize(RPIPE_FOREVER) == 0);
    TestTransport::end(count);
    _exit(0);
  }
};

}  // namespace headroom::test
