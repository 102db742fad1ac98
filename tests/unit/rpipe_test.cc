// Pipes between processes: content and order, errors as values, which ends fit, threads.
#include "headroom/rpipe.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <random>
#include <thread>
#include <vector>

#include "repeated.h"
#include "rpipe_messages.h"
#include "rpipe_ranks.h"

namespace headroom::test {
namespace {

using Rpipe = PipeRanks;
class RpipeOn : public PipesOnNodes {};
INSTANTIATE_TEST_SUITE_P(Nodes, RpipeOn, ::testing::ValuesIn(kAllNodes), name_of_nodes);

struct Case {
  const char* name;
  uint32_t width, policy, frees;
  uint64_t heap_bytes;
  bool in_order;
  Nodes nodes;
};

class RpipeWith : public PipeRanks, public ::testing::WithParamInterface<Case> {};

TEST_P(RpipeWith, ContentIsRightInBothDirections) {
  const Case& given = GetParam();
  nodes = given.nodes == Nodes::kOne ? 1 : kMostPipeRanks;
  by_ofi = given.nodes == Nodes::kByOfi;
  start(2, [&](int self) {
    const rpipe_options options = options_with(given.width, given.heap_bytes, given.policy, given.frees);
    rpipe_t to = nullptr;
    rpipe_t from = nullptr;
    const int peer = 1 - self;
    RANK_EXPECT(rpipe_open(self == 0 ? &to : &from, peer, self == 0 ? RPIPE_WRITER : RPIPE_READER, &options) == 0);
    RANK_EXPECT(rpipe_open(self == 0 ? &from : &to, peer, self == 0 ? RPIPE_READER : RPIPE_WRITER, &options) == 0);
    constexpr int kMessages = repeated(3000);
    if (self == 0) {
      write_many(self, to, kMessages, 5);
      read_many(self, from, kMessages, 6, given.in_order);
    } else {
      read_many(self, from, kMessages, 5, given.in_order);
      write_many(self, to, kMessages, 6);
    }
    rpipe_state state = {};
    state.size = sizeof state;
    RANK_EXPECT(rpipe_read_state(to, &state) == 0);
    RANK_EXPECT(state.backend == backend() && state.written == kMessages && state.heap_bytes <= given.heap_bytes);
    RANK_EXPECT(rpipe_close(to, RPIPE_FOREVER) == 0);
    RANK_EXPECT(rpipe_close(from, RPIPE_FOREVER) == 0);
  });
  expect_all_end_well(2);
}

constexpr Case kCases[] = {
    {"first", 0, RPIPE_FIRST_FIT, RPIPE_FREES_BY_POLICY, 8 << 20, false, Nodes::kOne},
    {"first_at_once", 0, RPIPE_FIRST_FIT, RPIPE_IMMEDIATE, 8 << 20, false, Nodes::kOne},
    {"next", 0, RPIPE_NEXT_FIT, RPIPE_FREES_BY_POLICY, 8 << 20, true, Nodes::kOne},
    {"best", 0, RPIPE_BEST_FIT, RPIPE_FREES_BY_POLICY, 8 << 20, false, Nodes::kOne},
    {"best_deferred", 0, RPIPE_BEST_FIT, RPIPE_DEFERRED, 8 << 20, false, Nodes::kOne},
    {"worst", 0, RPIPE_WORST_FIT, RPIPE_FREES_BY_POLICY, 8 << 20, false, Nodes::kOne},
    {"narrow", 25, RPIPE_FIRST_FIT, RPIPE_FREES_BY_POLICY, 8 << 20, false, Nodes::kOne},
    {"one", 1, RPIPE_FIRST_FIT, RPIPE_FREES_BY_POLICY, 1 << 20, true, Nodes::kOne},
    {"first_apart", 0, RPIPE_FIRST_FIT, RPIPE_FREES_BY_POLICY, 8 << 20, false, Nodes::kSeveral},
    {"next_apart", 0, RPIPE_NEXT_FIT, RPIPE_FREES_BY_POLICY, 8 << 20, true, Nodes::kSeveral},
    {"best_apart", 0, RPIPE_BEST_FIT, RPIPE_FREES_BY_POLICY, 8 << 20, false, Nodes::kSeveral},
    {"narrow_apart", 25, RPIPE_FIRST_FIT, RPIPE_FREES_BY_POLICY, 8 << 20, false, Nodes::kSeveral},
    {"one_apart", 1, RPIPE_FIRST_FIT, RPIPE_FREES_BY_POLICY, 1 << 20, true, Nodes::kSeveral},
#if defined(HEADROOM_OFI) && !defined(__SANITIZE_THREAD__)
    {"first_by_ofi", 0, RPIPE_FIRST_FIT, RPIPE_FREES_BY_POLICY, 8 << 20, false, Nodes::kByOfi},
    {"next_by_ofi", 0, RPIPE_NEXT_FIT, RPIPE_FREES_BY_POLICY, 8 << 20, true, Nodes::kByOfi},
    {"narrow_by_ofi", 25, RPIPE_FIRST_FIT, RPIPE_FREES_BY_POLICY, 8 << 20, false, Nodes::kByOfi},
    {"one_by_ofi", 1, RPIPE_FIRST_FIT, RPIPE_FREES_BY_POLICY, 1 << 20, true, Nodes::kByOfi},
#endif
};
INSTANTIATE_TEST_SUITE_P(Cases, RpipeWith, ::testing::ValuesIn(kCases),
                         [](const auto& each) { return std::string(each.param.name); });

TEST_P(RpipeOn, FullDuplexWhereBothWriteBeforeTheyRead) {
  start(2, [](int self) {
    rpipe_t pipe = nullptr;
    RANK_EXPECT(rpipe_open(&pipe, 1 - self, RPIPE_BOTH, nullptr) == 0);
    constexpr int kMessages = repeated(4000);
    std::thread reading([&] { read_many(self, pipe, kMessages, static_cast<uint32_t>(1 - self), false); });
    write_many(self, pipe, kMessages, static_cast<uint32_t>(self));
    reading.join();
  });
  expect_all_end_well(2);
}

TEST_P(RpipeOn, ContentMayBeLong) {
  start(2, [](int self) {
    const rpipe_options options = options_with(0, 64 << 20);
    rpipe_t pipe = nullptr;
    RANK_EXPECT(rpipe_open(&pipe, 1 - self, self == 0 ? RPIPE_WRITER : RPIPE_READER, &options) == 0);
    for (const size_t bytes :
         {size_t{40'000'001}, size_t{16} << 20, (size_t{16} << 20) + 1}) {  // in parts of 16 MiB, if in parts
      raddr_t buffer = 0;
      size_t got = bytes;
      RANK_EXPECT(
          (self == 0 ? rpipe_alloc(pipe, bytes, &buffer, RPIPE_FOREVER) : rpipe_read(pipe, &buffer, &got, RPIPE_FOREVER)) == 0);
      auto* const words = static_cast<uint32_t*>(rpipe_at(buffer));
      for (uint32_t each = 0; each < bytes / sizeof(uint32_t); ++each) {
        words[each] = self == 0 ? each : words[each];
        RANK_EXPECT(words[each] == each);
      }
      RANK_EXPECT(got == bytes && (self == 0 ? rpipe_write(buffer, RPIPE_ALL, RPIPE_FOREVER) : rpipe_free(buffer)) == 0);
    }
  });
  expect_all_end_well(2);
}

constexpr int kEveryRank = 6;
void exchange_with_every_rank(int self) {
  rpipe_t to[kEveryRank];
  rpipe_t from[kEveryRank];
  rpipe_options options = options_with();
  for (int peer = 0; peer < kEveryRank; ++peer) {  // the channel is the writer; to itself the second opening meets the first
    options.channel = static_cast<uint32_t>(self);
    RANK_EXPECT(rpipe_open(&to[peer], peer, RPIPE_WRITER, &options) == 0);
    options.channel = static_cast<uint32_t>(peer);
    RANK_EXPECT(rpipe_open(&from[peer], peer, RPIPE_READER, &options) == 0);
  }
  for (uint64_t round = 0; round < 50; ++round) {
    for (int peer = 0; peer < kEveryRank; ++peer) {
      const uint64_t words[] = {round, static_cast<uint64_t>(self)};
      RANK_EXPECT(rpipe_send(to[peer], words, sizeof words, RPIPE_FOREVER) == 0);
    }
    std::vector<uint64_t> seen(kEveryRank);
    for (int each = 0; each < kEveryRank; ++each) {
      int which = -1;
      std::vector<rpipe_t> open;
      std::vector<int> peers;
      for (int peer = 0; peer < kEveryRank; ++peer) {
        if (seen[static_cast<size_t>(peer)] == 0) {
          open.push_back(from[peer]);
          peers.push_back(peer);
        }
      }
      RANK_EXPECT(rpipe_wait_any(open.data(), nullptr, static_cast<int>(open.size()), &which, RPIPE_FOREVER) == 0);
      const int peer = peers[static_cast<size_t>(which)];
      uint64_t words[2] = {};
      size_t bytes = 0;
      RANK_EXPECT(rpipe_receive(from[peer], words, sizeof words, &bytes, RPIPE_NOWAIT) == 0);
      RANK_EXPECT(bytes == sizeof words && words[0] == round && words[1] == static_cast<uint64_t>(peer));
      ++seen[static_cast<size_t>(peer)];
    }
  }
}

TEST_P(RpipeOn, EveryRankToEveryRankAndToItself) {
  start(kEveryRank, exchange_with_every_rank);
  expect_all_end_well(kEveryRank);
}

TEST_F(Rpipe, EveryRankToEveryRankOnTwoNodes) {
  nodes = 2;
  start(kEveryRank, exchange_with_every_rank);
  expect_all_end_well(kEveryRank);
}

TEST_P(RpipeOn, ErrorsAreValues) {
  start(
      2,
      [](int self) {
        rpipe_t pipe = nullptr;
        RANK_EXPECT(rpipe_init_with(nullptr) == -EINVAL);
        RANK_EXPECT(rpipe_open(&pipe, 2, RPIPE_WRITER, nullptr) == -EINVAL);
        rpipe_options options = options_with(0, 1 << 20);
        options.policy = 9;
        RANK_EXPECT(rpipe_open(&pipe, 1 - self, RPIPE_WRITER, &options) == -EINVAL);
        options = options_with(0, 1 << 20);
        RANK_EXPECT(rpipe_open(&pipe, 1 - self, self == 0 ? RPIPE_WRITER : RPIPE_READER, &options) == 0);
        raddr_t buffer = 0;
        if (self == 0) {
          RANK_EXPECT(rpipe_read(pipe, &buffer, nullptr, RPIPE_NOWAIT) == -EPERM);
          RANK_EXPECT(rpipe_alloc(pipe, (1 << 20) + 1, &buffer, RPIPE_FOREVER) == -EMSGSIZE);
          RANK_EXPECT(rpipe_alloc(pipe, 1 << 20, &buffer, RPIPE_FOREVER) == 0);
          raddr_t more = 0;
          RANK_EXPECT(rpipe_alloc(pipe, 100, &more, RPIPE_NOWAIT) == -EAGAIN);
          RANK_EXPECT(rpipe_alloc(pipe, 100, &more, 1'000'000) == -ETIMEDOUT);
          RANK_EXPECT(rpipe_write(buffer, (1 << 20) + 1, RPIPE_FOREVER) == -EINVAL);
          RANK_EXPECT(rpipe_write(buffer, 1000, RPIPE_FOREVER) == 0);
          RANK_EXPECT(rpipe_write(buffer, 1000, RPIPE_FOREVER) != 0);
          RANK_EXPECT(rpipe_free(buffer) != 0);
        } else {
          RANK_EXPECT(rpipe_alloc(pipe, 1, &buffer, RPIPE_NOWAIT) == -EPERM);
          char content[10];
          size_t bytes = 0;
          RANK_EXPECT(rpipe_receive(pipe, content, sizeof content, &bytes, RPIPE_FOREVER) == -EMSGSIZE);
          RANK_EXPECT(bytes == 1000);
          RANK_EXPECT(rpipe_read(pipe, &buffer, &bytes, RPIPE_FOREVER) == 0);
          RANK_EXPECT(bytes == 1000 && rpipe_at(buffer) != nullptr);
          RANK_EXPECT(rpipe_write(buffer, 10, RPIPE_FOREVER) == -EPERM);
          const int nothing = rpipe_read(pipe, &buffer, nullptr, RPIPE_NOWAIT);
          RANK_EXPECT(nothing == -EAGAIN || nothing == -EPIPE);  // the other one may have closed its end
          RANK_EXPECT(rpipe_finalize(RPIPE_FOREVER) == -EBUSY);
          return;
        }
        RANK_EXPECT(rpipe_free(0) == -EFAULT && rpipe_free(17) == -EFAULT && rpipe_at(17) == nullptr);
        RANK_EXPECT(rpipe_free(buffer + (uint64_t{1} << 11)) == -EFAULT);
        RANK_EXPECT(rpipe_close(pipe, RPIPE_FOREVER) == 0);
        RANK_EXPECT(rpipe_close(pipe, RPIPE_FOREVER) == -EBADF);
        RANK_EXPECT(rpipe_alloc(pipe, 1, &buffer, RPIPE_NOWAIT) == -EBADF);
        RANK_EXPECT(rpipe_finalize(RPIPE_FOREVER) == 0);
      },
      false);
  expect_all_end_well(2);
}

TEST_P(RpipeOn, TwoWritersDoNotFit) {
  start(2, [](int self) {
    rpipe_t pipe = nullptr;
    raddr_t buffer = 0;
    RANK_EXPECT(rpipe_open(&pipe, 1 - self, RPIPE_WRITER, nullptr) == 0);
    RANK_EXPECT(rpipe_alloc(pipe, 1, &buffer, RPIPE_FOREVER) == -EPROTO);
    RANK_EXPECT(strstr(rpipe_reason(pipe), self == 0 ? "rank 0 writes, rank 1 writes" : "rank 1 writes, rank 0 writes") !=
                nullptr);
  });
  expect_all_end_well(2);
}

TEST_P(RpipeOn, PipesOfAParentAreNotItsChilds) {
  start(2, [](int self) {
    rpipe_t pipe = nullptr;
    RANK_EXPECT(rpipe_open(&pipe, 1 - self, RPIPE_BOTH, nullptr) == 0);
    raddr_t buffer = 0;
    RANK_EXPECT(rpipe_alloc(pipe, 100, &buffer, RPIPE_FOREVER) == 0);
    const pid_t child = fork();
    if (child == 0) {
      raddr_t other = 0;
      _exit(rpipe_alloc(pipe, 1, &other, RPIPE_NOWAIT) == -EBADF && rpipe_free(buffer) == -EBADF &&
                    rpipe_at(buffer) == nullptr && rpipe_finalize(0) == -EBADF && rpipe_close(pipe, 0) == -EBADF
                ? 0
                : 1);
    }
    int status = 1;
    waitpid(child, &status, 0);
    RANK_EXPECT(status == 0);
    fill(rpipe_at(buffer), 100, 3);
    RANK_EXPECT(rpipe_write(buffer, RPIPE_ALL, RPIPE_FOREVER) == 0);
    RANK_EXPECT(rpipe_read(pipe, &buffer, nullptr, RPIPE_FOREVER) == 0);
    RANK_EXPECT(is_filled(rpipe_at(buffer), 100, 3) && rpipe_free(buffer) == 0);
  });
  expect_all_end_well(2);
}

TEST_P(RpipeOn, AnyThreadMayCallWhereThatWasAskedFor) {
  start(2, [this](int self) {
    rpipe_t pipe = nullptr;
    const rpipe_options options = options_with(0, 4 << 20, RPIPE_FIRST_FIT, RPIPE_FREES_BY_POLICY, RPIPE_THREADS);
    RANK_EXPECT(rpipe_open(&pipe, 1 - self, self == 0 ? RPIPE_WRITER : RPIPE_READER, &options) == 0);
    constexpr int kThreads = 4;
    constexpr uint64_t kEach = 5000;
    std::vector<std::thread> threads;
    threads.reserve(kThreads);
    for (uint64_t thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        for (uint64_t each = 0; each < kEach; ++each) {
          uint64_t words[40] = {thread, each};
          words[39] = thread ^ each;
          if (self == 0) {
            RANK_EXPECT(rpipe_send(pipe, words, each % 3 == 0 ? sizeof words : 16, RPIPE_FOREVER) == 0);
          } else {
            raddr_t buffer = 0;
            size_t bytes = 0;
            RANK_EXPECT(rpipe_read(pipe, &buffer, &bytes, RPIPE_FOREVER) == 0);
            const auto* const got = static_cast<uint64_t*>(rpipe_at(buffer));
            RANK_EXPECT(bytes == 16 || got[39] == (got[0] ^ got[1]));
            job->words[got[0]].fetch_add(got[1] + 1);
            RANK_EXPECT(rpipe_free(buffer) == 0);
          }
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  });
  expect_all_end_well(2);
  for (int thread = 0; thread < 4; ++thread) {
    EXPECT_EQ(5000U * 5001 / 2, job->words[thread].load());
  }
}

}  // namespace
}  // namespace headroom::test
