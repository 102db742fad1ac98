// Pipes between processes: what closes, what breaks, and what is used again afterwards.
#include "headroom/rpipe.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <random>
#include <thread>
#include <vector>

#include "rpipe/peers.h"
#include "rpipe_messages.h"
#include "rpipe_ranks.h"

namespace headroom::test {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

using RpipeEnds = PipeRanks;
class RpipeEndsOn : public PipesOnNodes {};
INSTANTIATE_TEST_SUITE_P(Nodes, RpipeEndsOn, ::testing::ValuesIn(kAllNodes), name_of_nodes);

TEST_F(RpipeEnds, WhereMessagesFailThePeerIsGone) {
  nodes = 2;
  start(
      2,
      [](int self) {
        rpipe_t pipe = nullptr;
        RANK_EXPECT(rpipe_open(&pipe, 1 - self, RPIPE_BOTH, nullptr) == 0);
        RANK_EXPECT(rpipe_send(pipe, "here", 5, RPIPE_FOREVER) == 0);
        char text[8] = {};
        RANK_EXPECT(rpipe_receive(pipe, text, sizeof text, nullptr, RPIPE_FOREVER) == 0 && strcmp(text, "here") == 0);
        if (self == 1) {
          return;
        }
        TestTransport::fail();
        int error = 0;
        while ((error = rpipe_send(pipe, "gone", 5, RPIPE_FOREVER)) == 0) {
        }
        RANK_EXPECT(error == -EPIPE);
        RANK_EXPECT(strstr(rpipe_reason(pipe), "cannot be reached any more: MPI has ended, or failed") != nullptr);
        RANK_EXPECT(rpipe_close(pipe, RPIPE_FOREVER) == -EPIPE);
      },
      false);
  expect_all_end_well(2);
}

TEST_F(RpipeEnds, AMessageThatANetworkLosesEndsThePipe) {
  nodes = 2;
  start(
      2,
      [this](int self) {
        rpipe_t pipe = nullptr;
        RANK_EXPECT(rpipe_open(&pipe, 1 - self, RPIPE_BOTH, nullptr) == 0);
        raddr_t buffer = 0;
        if (self == 0) {
          write_many(self, pipe, 20, 4);
          while (job->words[1].load() == 0) {  // what was written may go out later
            (void)rpipe_read(pipe, &buffer, nullptr, RPIPE_NOWAIT);
          }
          TestTransport::lose_next_frame();
          RANK_EXPECT(rpipe_send(pipe, "lost", 5, RPIPE_FOREVER) == 0);
          RANK_EXPECT(rpipe_send(pipe, "sent", 5, RPIPE_FOREVER) == 0);
          while (job->words[0].load() == 0) {
            (void)rpipe_read(pipe, &buffer, nullptr, RPIPE_NOWAIT);
          }
          return;
        }
        read_many(self, pipe, 20, 4, false);
        job->words[1] = 1;
        RANK_EXPECT(rpipe_read(pipe, &buffer, nullptr, 20 * kSecond) == -EPIPE);  // not "sent"
        RANK_EXPECT(strstr(rpipe_reason(pipe), "rank 0 (on ") != nullptr);
        job->words[0] = 1;
      },
      false);
  expect_all_end_well(2);
}

TEST_F(RpipeEnds, WhatWasReadIsFreedAfterMessagesHaveEnded) {
  nodes = 2;
  start(
      2,
      [](int self) {
        rpipe_t pipe = nullptr;
        RANK_EXPECT(rpipe_open(&pipe, 1 - self, RPIPE_BOTH, nullptr) == 0);
        RANK_EXPECT(rpipe_send(pipe, "here", 5, RPIPE_FOREVER) == 0);
        raddr_t buffer = 0;
        RANK_EXPECT(rpipe_read(pipe, &buffer, nullptr, RPIPE_FOREVER) == 0);
        TestTransport::end(2);
        RANK_EXPECT(rpipe_free(buffer) == 0);
        RANK_EXPECT(rpipe_finalize(RPIPE_FOREVER) == 0);
        _exit(0);
      },
      false);
  expect_all_end_well(2);
}

TEST_F(RpipeEnds, WhatAPeerHadWrittenIsReadAfterItDied) {
  start(2, [](int self) {
    rpipe_t pipe = nullptr;
    RANK_EXPECT(rpipe_open(&pipe, 1 - self, RPIPE_BOTH, nullptr) == 0);
    if (self == 0) {
      write_many(self, pipe, 300, 4);
      raise(SIGKILL);
    }
    sleep(1);
    read_many(self, pipe, 300, 4, false);
    raddr_t buffer = 0;
    RANK_EXPECT(rpipe_read(pipe, &buffer, nullptr, 10 * kSecond) == -EPIPE);
    RANK_EXPECT(strstr(rpipe_reason(pipe), "rank 0 (on ") != nullptr && strstr(rpipe_reason(pipe), "has ended") != nullptr);
    RANK_EXPECT(rpipe_alloc(pipe, 10, &buffer, 10 * kSecond) == -EPIPE);
  });
  EXPECT_EQ(-SIGKILL, end_of(0));
  EXPECT_EQ(0, end_of(1)) << said();
}

TEST_F(RpipeEnds, WhoeverWaitsForRoomHearsOfADeath) {
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
    RANK_EXPECT(rpipe_close(pipe, RPIPE_FOREVER) == -EPIPE);
  });
  EXPECT_EQ(0, end_of(0)) << said();
  EXPECT_EQ(-SIGKILL, end_of(1));
}

TEST_P(RpipeEndsOn, AWriterHearsThatTheReaderClosed) {
  start(2, [](int self) {
    rpipe_t pipe = nullptr;
    RANK_EXPECT(rpipe_open(&pipe, 1 - self, self == 0 ? RPIPE_WRITER : RPIPE_READER, nullptr) == 0);
    raddr_t buffer = 0;
    if (self == 0) {
      int error = 0;
      while ((error = rpipe_send(pipe, "x", 1, RPIPE_FOREVER)) == 0) {
      }
      RANK_EXPECT(error == -EPIPE && strstr(rpipe_reason(pipe), "closed") != nullptr);
    } else {
      RANK_EXPECT(rpipe_read(pipe, &buffer, nullptr, RPIPE_FOREVER) == 0);
      RANK_EXPECT(rpipe_close(pipe, RPIPE_FOREVER) == 0);
    }
  });
  expect_all_end_well(2);
}

TEST_P(RpipeEndsOn, AWriterIsToldThatTheReaderKeepsAllAndWaitsForMore) {
  for (const bool for_ever : {true, false}) {
    start(
        2,
        [for_ever](int self) {
          rpipe_t pipe = nullptr;
          const rpipe_options options = options_with(3);
          RANK_EXPECT(rpipe_open(&pipe, 1 - self, self == 0 ? RPIPE_WRITER : RPIPE_READER, &options) == 0);
          raddr_t buffers[3];
          for (int each = 0; each < 3; ++each) {
            RANK_EXPECT((self == 0 ? rpipe_send(pipe, "x", 1, RPIPE_FOREVER)
                                   : rpipe_read(pipe, &buffers[each], nullptr, RPIPE_FOREVER)) == 0);
          }
          raddr_t more = 0;
          if (self == 0) {
            RANK_EXPECT(rpipe_alloc(pipe, 1, &more, RPIPE_FOREVER) == (for_ever ? -EDEADLK : 0));
            RANK_EXPECT(for_ever || (rpipe_write(more, 1, RPIPE_FOREVER) == 0 && rpipe_close(pipe, RPIPE_FOREVER) == 0));
          } else if (for_ever) {
            RANK_EXPECT(rpipe_read(pipe, &more, nullptr, RPIPE_FOREVER) == -EPIPE);
          } else {
            RANK_EXPECT(rpipe_read(pipe, &more, nullptr, kSecond / 2) == -ETIMEDOUT);
            RANK_EXPECT(rpipe_free(buffers[1]) == 0 && rpipe_read(pipe, &more, nullptr, RPIPE_FOREVER) == 0);
          }
          if (self == 1 || for_ever) {
            (void)rpipe_close(pipe, RPIPE_NOWAIT);
          }
        },
        false);
    expect_all_end_well(2);
  }
}

TEST_P(RpipeEndsOn, TwoThatWaitForRoomTowardsEachOtherAreTold) {
  start(
      2,
      [this](int self) {
        rpipe_t pipe = nullptr;
        const rpipe_options options = options_with(3);
        RANK_EXPECT(rpipe_open(&pipe, 1 - self, RPIPE_BOTH, &options) == 0);
        int error = 0;
        while ((error = rpipe_send(pipe, "x", 1, RPIPE_FOREVER)) == 0) {
        }
        // The first to be told goes on and reads, after which there is room for the other, which hears of the end then.
        RANK_EXPECT(error == -EDEADLK || (error == -EPIPE && job->words[0] > 0));
        if (error == -EDEADLK) {
          ++job->words[0];
          for (int each = 0; each < 3; ++each) {
            char byte = 0;
            RANK_EXPECT(rpipe_receive(pipe, &byte, 1, nullptr, RPIPE_FOREVER) == 0 && byte == 'x');
          }
        }
        (void)rpipe_close(pipe, RPIPE_NOWAIT);
      },
      false);
  expect_all_end_well(2);
  EXPECT_GT(job->words[0].load(), 0U);
}

TEST_P(RpipeEndsOn, MemoryOfClosedPipesIsUsedAgain) {
  start(2, [](int self) {
    uint64_t first_pages = 0;
    for (int round = 0; round < 3000; ++round) {
      rpipe_t pipe = nullptr;
      RANK_EXPECT(rpipe_open(&pipe, 1 - self, self == 0 ? RPIPE_WRITER : RPIPE_READER, nullptr) == 0);
      std::vector<char> content(100'000, static_cast<char>(round));
      if (self == 0) {
        RANK_EXPECT(rpipe_send(pipe, content.data(), content.size(), RPIPE_FOREVER) == 0);
      } else {
        std::vector<char> got(100'000);
        RANK_EXPECT(rpipe_receive(pipe, got.data(), got.size(), nullptr, RPIPE_FOREVER) == 0 && got == content);
      }
      RANK_EXPECT(rpipe_close(pipe, RPIPE_FOREVER) == 0);
      unsigned long size = 0;
      unsigned long resident = 0;
      if (FILE* const file = fopen("/proc/self/statm", "r")) {
        RANK_EXPECT(fscanf(file, "%lu %lu", &size, &resident) == 2);
        fclose(file);
      }
      first_pages = round == 500 ? size : first_pages;
      RANK_EXPECT(round < 500 || size < first_pages + 100'000);  // of 4 KiB; a heap has addresses for 64 MiB
    }
  });
  expect_all_end_well(2);
}

TEST_P(RpipeEndsOn, WhatIsNotReadDisturbsNoLaterPipe) {
  start(2, [](int self) {
    std::vector<char> content(200'000);
    for (uint32_t round = 0; round < 60; ++round) {
      rpipe_t pipe = nullptr;
      RANK_EXPECT(rpipe_open(&pipe, 1 - self, self == 0 ? RPIPE_WRITER : RPIPE_READER, nullptr) == 0);
      const size_t bytes = 1 + round * 3001;
      if (self == 0) {
        fill(content.data(), bytes, round);
        RANK_EXPECT(rpipe_send(pipe, content.data(), bytes, RPIPE_FOREVER) == 0);
        for (int more = 0; more < 3; ++more) {
          fill(content.data(), content.size(), 99 + round);
          const int error = rpipe_send(pipe, content.data(), content.size(), RPIPE_FOREVER);
          RANK_EXPECT(error == 0 || error == -EPIPE);
        }
        const int closed = rpipe_close(pipe, RPIPE_FOREVER);
        RANK_EXPECT(closed == 0 || closed == -EPIPE);
      } else {
        raddr_t buffer = 0;
        size_t got = 0;
        RANK_EXPECT(rpipe_read(pipe, &buffer, &got, RPIPE_FOREVER) == 0);
        RANK_EXPECT(got == bytes && is_filled(rpipe_at(buffer), bytes, round));
        RANK_EXPECT(rpipe_close(pipe, RPIPE_FOREVER) == 0);
      }
    }
  });
  expect_all_end_well(2);
}

TEST_P(RpipeEndsOn, TwoThatCloseWithSomethingUnreadBothWaysAreTold) {
  start(2, [](int self) {
    rpipe_t pipe = nullptr;
    RANK_EXPECT(rpipe_open(&pipe, 1 - self, RPIPE_BOTH, nullptr) == 0);
    const int sent = rpipe_send(pipe, "unread", 6, RPIPE_FOREVER);
    RANK_EXPECT(sent == 0 || sent == -EPIPE);  // the other one may have closed already
    RANK_EXPECT(rpipe_close(pipe, RPIPE_FOREVER) == (sent == 0 ? -EPIPE : 0));
    rpipe_options options = options_with();
    rpipe_t writes = nullptr;
    rpipe_t reads = nullptr;
    options.channel = 1 + static_cast<uint32_t>(self);
    RANK_EXPECT(rpipe_open(&writes, 1 - self, RPIPE_WRITER, &options) == 0);
    options.channel = 2 - static_cast<uint32_t>(self);
    RANK_EXPECT(rpipe_open(&reads, 1 - self, RPIPE_READER, &options) == 0);
    const int error = rpipe_send(writes, "unread", 6, RPIPE_FOREVER);
    RANK_EXPECT(error == 0 || error == -EPIPE);
  });
  expect_all_end_well(2);  // rpipe_finalize(), too, does not wait for ever
}

TEST_P(RpipeEndsOn, RecordsOfPipesThatNeverMetAreUsedAgain) {
  start(2, [](int self) {
    rpipe_t pipe = nullptr;
    const int rounds = rpipe::peer_of(1 - self).is_on_node ? 70'000 : 5000;  // on a node more than a process may have at a time
    for (int round = 0; round < rounds; ++round) {
      RANK_EXPECT(rpipe_open(&pipe, 1 - self, self == 0 ? RPIPE_WRITER : RPIPE_READER, nullptr) == 0);
      RANK_EXPECT(rpipe_close(pipe, RPIPE_NOWAIT) == 0);
      if (round % 1000 == 0) {  // and now and then both wait for each other
        char byte = 'x';
        RANK_EXPECT(rpipe_open(&pipe, 1 - self, RPIPE_BOTH, nullptr) == 0);
        RANK_EXPECT(rpipe_send(pipe, &byte, 1, RPIPE_FOREVER) == 0);
        RANK_EXPECT(rpipe_receive(pipe, &byte, 1, nullptr, RPIPE_FOREVER) == 0);
        RANK_EXPECT(rpipe_close(pipe, RPIPE_FOREVER) == 0);
      }
    }
  });
  expect_all_end_well(2);
}

TEST_F(RpipeEnds, WhoOnlyLooksHearsOfADeath) {
  start(2, [](int self) {
    rpipe_t pipe = nullptr;
    RANK_EXPECT(rpipe_open(&pipe, 1 - self, RPIPE_BOTH, nullptr) == 0);
    raddr_t buffer = 0;
    RANK_EXPECT(rpipe_send(pipe, "x", 1, RPIPE_FOREVER) == 0);
    RANK_EXPECT(rpipe_read(pipe, &buffer, nullptr, RPIPE_FOREVER) == 0 && rpipe_free(buffer) == 0);
    if (self == 0) {
      raise(SIGKILL);
    }
    int which = -1;
    int error = 0;
    while ((error = rpipe_read(pipe, &buffer, nullptr, RPIPE_NOWAIT)) == -EAGAIN) {
    }
    RANK_EXPECT(error == -EPIPE);
    RANK_EXPECT(rpipe_wait_any(&pipe, nullptr, 1, &which, RPIPE_NOWAIT) == 0 && which == 0);
  });
  EXPECT_EQ(-SIGKILL, end_of(0));
  EXPECT_EQ(0, end_of(1)) << said();
}

TEST_P(RpipeEndsOn, HandlesMayBeUsedWronglyAfterTheEnd) {
  start(
      2,
      [](int self) {
        rpipe_t pipe = nullptr;
        raddr_t buffer = 0;
        RANK_EXPECT(rpipe_open(&pipe, 1 - self, RPIPE_BOTH, nullptr) == 0);
        const int error = rpipe_alloc(pipe, 10, &buffer, RPIPE_FOREVER);
        RANK_EXPECT(error == 0 || error == -EPIPE);  // the other one may have finished
        RANK_EXPECT(rpipe_finalize(RPIPE_FOREVER) == 0);
        RANK_EXPECT(rpipe_close(pipe, 0) == -EBADF && rpipe_alloc(pipe, 1, &buffer, 0) == -EBADF);
        RANK_EXPECT(rpipe_free(buffer) == -EBADF && rpipe_at(buffer) == nullptr && rpipe_reason(pipe) != nullptr);
      },
      false);
  expect_all_end_well(2);
}

/// Mappings of files of pipes, in this process.
int pipe_mappings() {
  int count = 0;
  FILE* const file = fopen("/proc/self/maps", "r");
  char line[512];
  while (file != nullptr && fgets(line, sizeof line, file) != nullptr) {
    count += strstr(line, "memfd:rpipe") != nullptr ? 1 : 0;
  }
  if (file != nullptr) {
    fclose(file);
  }
  return count;
}

TEST_F(RpipeEnds, NothingIsLeftAfterTheEnd) {
  start(
      2,
      [](int self) {
        rpipe_t pipes[3] = {};
        for (uint32_t each = 0; each < 3; ++each) {
          rpipe_options options = options_with();
          options.channel = each;
          RANK_EXPECT(rpipe_open(&pipes[each], 1 - self, RPIPE_BOTH, &options) == 0);
          write_many(self, pipes[each], 100, each);
        }
        for (uint32_t each = 0; each < 3; ++each) {
          read_many(self, pipes[each], 100, each, false);
        }
        RANK_EXPECT(pipe_mappings() > 6);
        RANK_EXPECT(rpipe_finalize(RPIPE_FOREVER) == 0);
        RANK_EXPECT(pipe_mappings() == 0);
        RANK_EXPECT(rpipe_finalize(RPIPE_FOREVER) == -EBADF);
      },
      false);
  expect_all_end_well(2);
}

}  // namespace
}  // namespace headroom::test
