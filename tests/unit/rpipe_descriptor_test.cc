// The descriptor that becomes readable when something may have come for pipes.
#include <gtest/gtest.h>
#include <poll.h>

#include <cerrno>
#include <thread>
#include <utility>

#include "headroom/rpipe.h"
#include "rpipe/descriptor.h"
#include "rpipe_messages.h"
#include "rpipe_ranks.h"
#include "seed.h"

namespace headroom::test {
namespace {

using RpipeDescriptor = PipeRanks;
class RpipeDescriptorOn : public PipesOnNodes {};
INSTANTIATE_TEST_SUITE_P(Nodes, RpipeDescriptorOn, ::testing::ValuesIn(kAllNodes), name_of_nodes);

/// Sleeps in poll() until the pipe is ready. Says how often it slept. Once the pipe goes through memory and was met nothing but
/// a peer makes the descriptor readable: the timer would hide that it was not rung.
int poll_until_ready(int self, rpipe_t pipe, unsigned char write) {
  int which = -1;
  for (int sleeps = 0;; ++sleeps) {
    if (rpipe_wait_any(&pipe, &write, 1, &which, RPIPE_NOWAIT) == 0) {
      return sleeps;
    }
    const int armed = rpipe_arm(&pipe, &write, 1);
    RANK_EXPECT(armed >= 0);
    if (armed == 0) {
      rpipe_state state = {};
      state.size = sizeof state;
      RANK_EXPECT(rpipe_read_state(pipe, &state) == 0);
      if (state.backend == RPIPE_NODE) {
        rpipe::let_descriptor_expire(3600'000'000'000);
      }
      pollfd readable = {rpipe_descriptor(), POLLIN, 0};
      RANK_EXPECT(poll(&readable, 1, 20'000) == 1);
    }
  }
}

TEST_P(RpipeDescriptorOn, IsReadableWhenAMessageHasCome) {
  constexpr int kMessages = 2000;
  start(2, [this](int self) {
    rpipe_t pipe = nullptr;
    RANK_EXPECT(rpipe_open(&pipe, 1 - self, self == 0 ? RPIPE_WRITER : RPIPE_READER, nullptr) == 0);
    std::mt19937 random(headroom::test::seed_of(7));
    for (int each = 0; each < kMessages; ++each) {
      if (self == 0) {
        if (random() % 16 == 0) {
          usleep(static_cast<useconds_t>(random() % 2000));
        }
        RANK_EXPECT(rpipe_send(pipe, &each, sizeof each, RPIPE_FOREVER) == 0);
        continue;
      }
      job->words[0] += static_cast<uint64_t>(poll_until_ready(self, pipe, 0));
      int came = -1;
      RANK_EXPECT(rpipe_receive(pipe, &came, sizeof came, nullptr, RPIPE_NOWAIT) == 0 && came == each);
    }
  });
  expect_all_end_well(2);
  EXPECT_GT(job->words[0].load(), 20U);
}

TEST_P(RpipeDescriptorOn, IsReadableWhenThereIsRoom) {
  constexpr int kMessages = 500;
  start(2, [this](int self) {
    rpipe_t pipe = nullptr;
    const rpipe_options options = options_with(4);
    RANK_EXPECT(rpipe_open(&pipe, 1 - self, self == 0 ? RPIPE_WRITER : RPIPE_READER, &options) == 0);
    for (int each = 0; each < kMessages; ++each) {
      if (self == 0) {
        job->words[0] += static_cast<uint64_t>(poll_until_ready(self, pipe, 1));
        RANK_EXPECT(rpipe_send(pipe, &each, sizeof each, RPIPE_NOWAIT) == 0);
        continue;
      }
      if (each % 16 == 0) {
        usleep(2000);
      }
      int came = -1;
      RANK_EXPECT(rpipe_receive(pipe, &came, sizeof came, nullptr, RPIPE_FOREVER) == 0 && came == each);
    }
  });
  expect_all_end_well(2);
  EXPECT_GT(job->words[0].load(), 10U);
}

TEST_P(RpipeDescriptorOn, IsReadableWhenThePeerOpensItsEndLate) {
  start(2, [](int self) {
    rpipe_t pipe = nullptr;
    if (self == 1) {
      usleep(300'000);
    }
    RANK_EXPECT(rpipe_open(&pipe, 1 - self, self == 1 ? RPIPE_WRITER : RPIPE_READER, nullptr) == 0);
    if (self == 1) {
      RANK_EXPECT(rpipe_send(pipe, "late", 5, RPIPE_FOREVER) == 0);
      return;
    }
    (void)poll_until_ready(self, pipe, 0);
    char text[8];
    RANK_EXPECT(rpipe_receive(pipe, text, sizeof text, nullptr, RPIPE_NOWAIT) == 0 && strcmp(text, "late") == 0);
  });
  expect_all_end_well(2);
}

TEST_F(RpipeDescriptor, IsReadableWhenThePeerHasDied) {
  // `waits`: a call that waits finds the death first.
  for (const auto& [has_met, waits] : {std::pair{true, false}, std::pair{false, false}, std::pair{true, true}}) {
    start(2, [has_met = has_met, waits = waits](int self) {
      rpipe_t pipe = nullptr;
      if (self == 1 && !has_met) {
        usleep(300'000);
        raise(SIGKILL);
      }
      RANK_EXPECT(rpipe_open(&pipe, 1 - self, self == 1 ? RPIPE_WRITER : RPIPE_READER, nullptr) == 0);
      if (self == 1) {
        RANK_EXPECT(rpipe_send(pipe, "last", 5, RPIPE_FOREVER) == 0);
        usleep(300'000);
        raise(SIGKILL);
      }
      char text[8];
      if (has_met) {
        RANK_EXPECT(rpipe_receive(pipe, text, sizeof text, nullptr, RPIPE_FOREVER) == 0);
      }
      if (waits) {
        RANK_EXPECT(rpipe_descriptor() >= 0 && rpipe_receive(pipe, text, sizeof text, nullptr, RPIPE_FOREVER) == -EPIPE);
      }
      (void)poll_until_ready(self, pipe, 0);
      RANK_EXPECT(rpipe_receive(pipe, text, sizeof text, nullptr, RPIPE_NOWAIT) == -EPIPE);
      // It does not stay readable for that.
      rpipe_t to_self[2] = {};
      RANK_EXPECT(rpipe_open(&to_self[0], 0, RPIPE_READER, nullptr) == 0 &&
                  rpipe_open(&to_self[1], 0, RPIPE_WRITER, nullptr) == 0);
      RANK_EXPECT(rpipe_arm(to_self, nullptr, 1) == 0);
      pollfd readable = {rpipe_descriptor(), POLLIN, 0};
      RANK_EXPECT(poll(&readable, 1, 50) == 0);
    });
    EXPECT_EQ(0, end_of(0)) << said();
    EXPECT_EQ(-SIGKILL, end_of(1));
  }
}

TEST_F(RpipeDescriptor, IsReadableByWhatAnotherThreadDoes) {
  start(1, [](int self) {
    rpipe_t pipes[2] = {};
    RANK_EXPECT(rpipe_open(&pipes[0], 0, RPIPE_READER, nullptr) == 0 && rpipe_open(&pipes[1], 0, RPIPE_WRITER, nullptr) == 0);
    std::thread writer([=] {
      usleep(100'000);
      RANK_EXPECT(rpipe_send(pipes[1], "self", 5, RPIPE_FOREVER) == 0);
    });
    RANK_EXPECT(poll_until_ready(self, pipes[0], 0) >= 1);
    writer.join();
    char text[8];
    RANK_EXPECT(rpipe_receive(pipes[0], text, sizeof text, nullptr, RPIPE_NOWAIT) == 0);
  });
  expect_all_end_well(1);
}

TEST_F(RpipeDescriptor, EndsWithThePipes) {
  EXPECT_EQ(-EBADF, rpipe_descriptor());
  EXPECT_EQ(-EBADF, rpipe_arm(nullptr, nullptr, 0));
  start(
      1,
      [](int self) {
        rpipe_t pipe = nullptr;
        RANK_EXPECT(rpipe_open(&pipe, 0, RPIPE_READER, nullptr) == 0);
        RANK_EXPECT(rpipe_arm(nullptr, nullptr, 1) == -EINVAL && rpipe_arm(&pipe, nullptr, 0) == -EINVAL);
        const int descriptor = rpipe_descriptor();
        RANK_EXPECT(descriptor >= 0 && rpipe_descriptor() == descriptor && fcntl(descriptor, F_GETFD) == FD_CLOEXEC);
        const pid_t child = fork();
        if (child == 0) {
          _exit(rpipe_descriptor() == -EBADF && fcntl(descriptor, F_GETFD) == -1 ? 0 : 1);
        }
        int status = -1;
        RANK_EXPECT(waitpid(child, &status, 0) == child && status == 0);
        RANK_EXPECT(rpipe_finalize(RPIPE_FOREVER) == 0);
        RANK_EXPECT(rpipe_descriptor() == -EBADF && fcntl(descriptor, F_GETFD) == -1);
      },
      false);
  expect_all_end_well(1);
}

}  // namespace
}  // namespace headroom::test
