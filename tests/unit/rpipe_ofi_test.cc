// Pipes between processes by libfabric: what holds of these alone. What holds of all pipes is tested with them, too, where
// tests are over kAllNodes.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>

#include "headroom/rpipe.h"
#include "rpipe_messages.h"
#include "rpipe_ranks.h"

#ifdef HEADROOM_OFI

namespace headroom::test {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

class RpipeByOfi : public PipeRanks {
 protected:
  void SetUp() override {
    PipeRanks::SetUp();
    nodes = kMostPipeRanks;
    by_ofi = true;
  }
};

void expect_backend(int self, rpipe_t pipe) {
  rpipe_state state = {};
  state.size = sizeof state;
  RANK_EXPECT(rpipe_read_state(pipe, &state) == 0 && state.backend == RPIPE_OFI);
}

TEST_F(RpipeByOfi, WhatAPeerHadSentIsReadAfterItDied) {
  start(2, [](int self) {
    rpipe_t pipe = nullptr;
    RANK_EXPECT(rpipe_open(&pipe, 1 - self, RPIPE_BOTH, nullptr) == 0);
    if (self == 0) {
      write_many(self, pipe, 30, 4);
      sleep(1);  // the network has it
      raise(SIGKILL);
    }
    sleep(2);
    read_many(self, pipe, 30, 4, false);
    expect_backend(self, pipe);
    raddr_t buffer = 0;
    RANK_EXPECT(rpipe_read(pipe, &buffer, nullptr, 20 * kSecond) == -EPIPE);
    RANK_EXPECT(strstr(rpipe_reason(pipe), "rank 0 (on ") != nullptr);
    RANK_EXPECT(strstr(rpipe_reason(pipe), "has ended, or the network to it has failed") != nullptr);
    RANK_EXPECT(rpipe_alloc(pipe, 10, &buffer, 20 * kSecond) == -EPIPE);
  });
  EXPECT_EQ(-SIGKILL, end_of(0));
  EXPECT_EQ(0, end_of(1)) << said();
}

TEST_F(RpipeByOfi, ARankThatWaitsForRoomHearsOfADeath) {
  start(2, [](int self) {
    rpipe_t pipe = nullptr;
    const rpipe_options options = options_with(4);
    RANK_EXPECT(rpipe_open(&pipe, 1 - self, self == 0 ? RPIPE_WRITER : RPIPE_READER, &options) == 0);
    raddr_t buffer = 0;
    if (self == 1) {
      RANK_EXPECT(rpipe_read(pipe, &buffer, nullptr, RPIPE_FOREVER) == 0);
      raise(SIGKILL);
    }
    int error = 0;
    while ((error = rpipe_send(pipe, "x", 1, RPIPE_FOREVER)) == 0) {
    }
    RANK_EXPECT(error == -EPIPE);
  });
  EXPECT_EQ(0, end_of(0)) << said();
  EXPECT_EQ(-SIGKILL, end_of(1));
}

TEST_F(RpipeByOfi, AChildThatLivesOnDoesNotHideADeath) {
  start(2, [this](int self) {
    rpipe_t pipe = nullptr;
    RANK_EXPECT(rpipe_open(&pipe, 1 - self, RPIPE_BOTH, nullptr) == 0);
    RANK_EXPECT(rpipe_send(pipe, "x", 1, RPIPE_FOREVER) == 0);
    char text[8];
    RANK_EXPECT(rpipe_receive(pipe, text, sizeof text, nullptr, RPIPE_FOREVER) == 0);
    if (self == 0) {
      if (fork() == 0) {
        alarm(kPipesHangAfterSeconds);
        while (job->words[0].load() == 0) {
          usleep(1000);
        }
        _exit(0);
      }
      raise(SIGKILL);
    }
    raddr_t buffer = 0;
    const int error = rpipe_read(pipe, &buffer, nullptr, 20 * kSecond);
    job->words[0] = 1;
    RANK_EXPECT(error == -EPIPE);
  });
  EXPECT_EQ(-SIGKILL, end_of(0));
  EXPECT_EQ(0, end_of(1)) << said();
}

TEST_F(RpipeByOfi, ContentGoesWhileItsWriterCallsNothing) {
  start(2, [this](int self) {
    constexpr size_t kBytes = 32 << 20;
    rpipe_t pipe = nullptr;
    RANK_EXPECT(rpipe_open(&pipe, 1 - self, self == 0 ? RPIPE_WRITER : RPIPE_READER, nullptr) == 0);
    raddr_t buffer = 0;
    if (self == 0) {
      RANK_EXPECT(rpipe_alloc(pipe, kBytes, &buffer, RPIPE_FOREVER) == 0);
      fill(rpipe_at(buffer), kBytes, 7);
      RANK_EXPECT(rpipe_write(buffer, RPIPE_ALL, RPIPE_FOREVER) == 0);
      while (job->words[0].load() == 0) {
        sched_yield();
      }
      return;
    }
    size_t bytes = 0;
    RANK_EXPECT(rpipe_read(pipe, &buffer, &bytes, RPIPE_FOREVER) == 0);
    RANK_EXPECT(bytes == kBytes && is_filled(rpipe_at(buffer), kBytes, 7));
    expect_backend(self, pipe);
    RANK_EXPECT(rpipe_free(buffer) == 0);
    job->words[0] = 1;
  });
  expect_all_end_well(2);
}

TEST_F(RpipeByOfi, SignalsDoWhatTheyDidBefore) {
  setenv("RPIPE_BETWEEN", "ofi", 1);
  std::map<int, void (*)(int)> before;
  for (const int signal : {SIGSEGV, SIGBUS, SIGTERM, SIGINT, SIGABRT}) {
    struct sigaction now = {};
    ASSERT_EQ(0, sigaction(signal, nullptr, &now));
    before[signal] = now.sa_handler;
  }
  start(1, [&before](int self) {
    for (const auto& [signal, handler] : before) {
      struct sigaction now = {};
      RANK_EXPECT(sigaction(signal, nullptr, &now) == 0 && now.sa_handler == handler);
    }
  });
  expect_all_end_well(1);
  unsetenv("RPIPE_BETWEEN");
}

TEST_F(RpipeByOfi, PipesBeginAgain) {
  start(
      2,
      [this](int self) {
        for (int life = 0; life < 2; ++life) {
          rpipe_t pipe = nullptr;
          RANK_EXPECT(rpipe_open(&pipe, 1 - self, RPIPE_BOTH, nullptr) == 0);
          write_many(self, pipe, 50, static_cast<uint64_t>(life));
          read_many(self, pipe, 50, static_cast<uint64_t>(life), false);
          RANK_EXPECT(rpipe_finalize(RPIPE_FOREVER) == 0);
          RANK_EXPECT(life == 1 || begin_again(self, 2) == 0);
        }
      },
      false);
  expect_all_end_well(2);
}

TEST_F(RpipeByOfi, AWishThatCannotBeHadIsAnErrorOnAllRanks) {
  nodes = 1;
  wish_of_first = "pigeon";
  start(2, [](int /*self*/) {}, false);
  EXPECT_EQ(77, end_of(0));
  EXPECT_EQ(77, end_of(1));
  EXPECT_NE(std::string::npos, said().find("rpipe: RPIPE_BETWEEN=pigeon: it can be mpi or ofi\n")) << said();
  EXPECT_NE(std::string::npos, said().find(") cannot begin: Invalid argument\n")) << said();
}

TEST_F(RpipeByOfi, MessagesOfMpiAreNotHadWithoutIt) {
  wish_of_first = "mpi";
  start(2, [](int /*self*/) {}, false);
  EXPECT_EQ(77, end_of(0));
  EXPECT_EQ(77, end_of(1));
  EXPECT_NE(std::string::npos, said().find("rpipe: RPIPE_BETWEEN=mpi: pipes did not begin by rpipe_init()\n")) << said();
}

TEST_F(RpipeByOfi, ANetworkThatOneRankHasNotIsHadByNone) {
  wish_of_first = "ofi";
  network_of_first = "none_of_this_name";
  start(2, [](int /*self*/) {}, false);
  EXPECT_EQ(77, end_of(0));
  EXPECT_EQ(77, end_of(1));
  EXPECT_NE(std::string::npos, said().find("rpipe: no messages by libfabric on rank 0 (on ")) << said();
  EXPECT_NE(std::string::npos, said().find("): libfabric has no network for it: ")) << said();
}

TEST_F(RpipeByOfi, RanksOfDifferentNetworksHaveNone) {
  wish_of_first = "ofi";
  network_of_first = "tcp;ofi_rxm";  // the others take the network itself
  start(2, [](int /*self*/) {}, false);
  EXPECT_EQ(77, end_of(0));
  EXPECT_EQ(77, end_of(1));
  EXPECT_NE(std::string::npos, said().find("rpipe: no messages by libfabric on rank 1 (on ")) << said();
  EXPECT_NE(std::string::npos, said().find("): its network is ")) << said();
  EXPECT_NE(std::string::npos, said().find(", that of rank 0 tcp;ofi_rxm with names of form ")) << said();
}

TEST_F(RpipeByOfi, WithoutAWishPipesBeginWithoutANetworkAndSayWhy) {
  network_of_first = "none_of_this_name";
  start(2, [](int self) {
    rpipe_t pipe = nullptr;
    RANK_EXPECT(rpipe_open(&pipe, 1 - self, RPIPE_BOTH, nullptr) == -ENOTSUP);
  });
  expect_all_end_well(2);
  EXPECT_NE(std::string::npos, said().find("rpipe: rank 1: no pipe to rank 0 (on ")) << said();
  EXPECT_NE(std::string::npos, said().find("by messages: no messages by libfabric on rank 0 (on ")) << said();
}

#ifndef __SANITIZE_ADDRESS__  // what is left to the kernel is a leak to it
TEST_F(RpipeByOfi, AProcessMayEndWithoutAWord) {
  start(
      2,
      [](int self) {
        rpipe_t pipe = nullptr;
        RANK_EXPECT(rpipe_open(&pipe, 1 - self, RPIPE_BOTH, nullptr) == 0);
        write_many(self, pipe, 50, 1);
        read_many(self, pipe, 50, 1, false);
        exit(0);  // the thread runs
      },
      false);
  for (int rank = 0; rank < 2; ++rank) {
    const int end = end_of(rank);  // the other one may have been told that this one ended
    EXPECT_TRUE(end == 0 || end == 77) << end << said();
  }
}
#endif

TEST_F(RpipeByOfi, ItIsHadOnOneNodeWhereItIsAskedFor) {
  nodes = 1;
  setenv("RPIPE_BETWEEN", "ofi", 1);
  start(2, [](int self) {
    rpipe_t pipe = nullptr;
    rpipe_options options = options_with(0);
    options.backend = RPIPE_MPI;
    RANK_EXPECT(rpipe_open(&pipe, 1 - self, RPIPE_BOTH, &options) == -ENOTSUP);
    options.backend = RPIPE_OFI;
    RANK_EXPECT(rpipe_open(&pipe, 1 - self, RPIPE_BOTH, &options) == 0);
    write_many(self, pipe, 50, 3);
    read_many(self, pipe, 50, 3, false);
    expect_backend(self, pipe);
  });
  expect_all_end_well(2);
  unsetenv("RPIPE_BETWEEN");
}

}  // namespace
}  // namespace headroom::test

#endif
