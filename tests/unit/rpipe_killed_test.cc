// A rank that is killed at some instruction of what it does with a pipe: opening it, allocating, writing, reading, freeing,
// closing. The other one reads all that was written, whole and in order, hears of the death as an error, and does not hang.
#if defined(__x86_64__)
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "rpipe_ranks.h"
#include "stepping.h"

namespace headroom::test {
namespace {

constexpr int64_t kLongestNs = 20'000'000'000;  // far more than the two seconds after which a death is known
constexpr uint32_t kMessages = 14;
constexpr int kMoments = 12;

// A step costs 15 us, so not more than what a few instructions fill.
size_t bytes_of(uint32_t number) { return number % 3 == 0 ? 8 : number % 3 == 1 ? 200 : 1500 + number; }

void fill(void* at, size_t bytes, uint32_t number) { memset(at, static_cast<int>(number + 1), bytes); }

bool is_filled(const void* at, size_t bytes, uint32_t number) {
  char expected[2048];
  fill(expected, bytes, number);
  return memcmp(at, expected, bytes) == 0;
}

/// Both hear of an end as -EPIPE; the survivor's is looked at.
int write_one(rpipe_t pipe, uint32_t number) {
  raddr_t buffer = 0;
  if (const int error = rpipe_alloc(pipe, bytes_of(number), &buffer, kLongestNs)) {
    return error;
  }
  fill(rpipe_at(buffer), bytes_of(number), number);
  return rpipe_write(buffer, RPIPE_ALL, kLongestNs);
}

int read_one(int self, rpipe_t pipe, uint32_t number) {
  raddr_t buffer = 0;
  size_t bytes = 0;
  if (const int error = rpipe_read(pipe, &buffer, &bytes, kLongestNs)) {
    return error;
  }
  RANK_EXPECT(bytes == bytes_of(number) && is_filled(rpipe_at(buffer), bytes, number));
  RANK_EXPECT(rpipe_free(buffer) == 0);
  return 0;
}

class RpipeKilledAnywhere : public PipeRanks {
 protected:
  void SetUp() override {
    PipeRanks::SetUp();
    open_steps();
  }
  void TearDown() override {
    close_steps();
    PipeRanks::TearDown();
  }

  /// `work(rank, victim)` in both, of which the victim steps itself.
  template <typename Work>
  void kill_at_moments(Work work) {
    long all = 0;
    for (int moment = 0; moment <= kMoments; ++moment) {
      const long killed_at = moment == 0 ? kNobody : 1 + static_cast<long>(moment * 618'034L % 1'000'000) * all / 1'000'000;
      steps->taken = 0;
      steps->killed_at = killed_at;
      steps->last = 0;
      steps->killed = false;
      ASSERT_EQ(0, ftruncate(said_file, 0));
      start(2, work, moment == 0);
      const int victims_end = end_of(0);
      const int others_end = end_of(1);
      ASSERT_EQ(0, others_end) << "killed at instruction " << killed_at << " of " << all << "\n" << said();
      ASSERT_TRUE(victims_end == 0 || (victims_end == -SIGKILL && moment > 0)) << victims_end << "\n" << said();
      deaths += victims_end == -SIGKILL ? 1 : 0;
      all = moment == 0 ? steps->taken.load() : all;
    }
    EXPECT_GE(deaths * 2, kMoments);  // where the first run waited long, some moments lie behind the end of the others
  }

  int deaths = 0;
};

TEST_F(RpipeKilledAnywhere, AWriterAnywhere) {
  kill_at_moments([](int self) {
    rpipe_t pipe = nullptr;
    if (self == 0) {
      begin_stepping();
    }
    RANK_EXPECT(rpipe_open(&pipe, 1 - self, self == 0 ? RPIPE_WRITER : RPIPE_READER, nullptr) == 0);
    uint32_t number = 0;
    int error = 0;
    while (number < kMessages && error == 0) {
      error = self == 0 ? write_one(pipe, number) : read_one(self, pipe, number);
      number += error == 0 ? 1 : 0;
    }
    RANK_EXPECT(error == 0 || (self == 1 && error == -EPIPE));
    if (self == 0) {
      RANK_EXPECT(rpipe_close(pipe, kLongestNs) == 0);
      end_stepping();
      return;
    }
    RANK_EXPECT(read_one(self, pipe, number) == -EPIPE);
    RANK_EXPECT(rpipe_reason(pipe) != nullptr);
    RANK_EXPECT(rpipe_close(pipe, kLongestNs) == 0);
  });
}

TEST_F(RpipeKilledAnywhere, AReaderAnywhere) {
  kill_at_moments([](int self) {
    rpipe_t pipe = nullptr;
    rpipe_options options = {};
    options.size = sizeof options;
    options.width = 4;
    if (self == 0) {
      begin_stepping();
    }
    RANK_EXPECT(rpipe_open(&pipe, 1 - self, self == 0 ? RPIPE_READER : RPIPE_WRITER, &options) == 0);
    int error = 0;
    for (uint32_t number = 0; number < kMessages && error == 0; ++number) {
      error = self == 0 ? read_one(self, pipe, number) : write_one(pipe, number);
    }
    RANK_EXPECT(error == 0 || (self == 1 && error == -EPIPE));
    if (self == 0) {
      RANK_EXPECT(rpipe_close(pipe, kLongestNs) == 0);
      end_stepping();
      return;
    }
    while (error == 0) {
      error = write_one(pipe, 0);
    }
    RANK_EXPECT(error == -EPIPE && rpipe_reason(pipe) != nullptr);
    const int closed = rpipe_close(pipe, kLongestNs);
    RANK_EXPECT(closed == -EPIPE || closed == 0);  // 0: it had written nothing
  });
}

TEST_F(RpipeKilledAnywhere, AWriterOfTwoPipesThatAreWaitedForTogether) {
  kill_at_moments([](int self) {
    rpipe_t pipes[2] = {};
    if (self == 0) {
      begin_stepping();
    }
    rpipe_options options = {};
    options.size = sizeof options;
    RANK_EXPECT(rpipe_open(&pipes[0], 1 - self, RPIPE_BOTH, &options) == 0);
    options.channel = 1;
    RANK_EXPECT(rpipe_open(&pipes[1], 1 - self, RPIPE_BOTH, &options) == 0);
    int error = 0;
    for (uint32_t number = 0; number < kMessages && error == 0; ++number) {
      int which = -1;
      if (self == 0) {
        error = write_one(pipes[number % 2], number);
        continue;
      }
      error = rpipe_wait_any(pipes, nullptr, 2, &which, kLongestNs);
      RANK_EXPECT(error == 0);
      error = read_one(self, pipes[which], number);
    }
    RANK_EXPECT(error == 0 || (self == 1 && error == -EPIPE));
    if (self == 0) {
      end_stepping();
      return;
    }
    _exit(0);
  });
}

}  // namespace
}  // namespace headroom::test
#endif
