// Pipes between processes: content and order, errors as values, what closes and what breaks.
#include "headroom/rpipe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include "rpipe/peers.h"
#include "rpipe_ranks.h"

namespace headroom::test {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

rpipe_options options_with(uint32_t width = 0, uint64_t heap_bytes = 0, uint32_t policy = RPIPE_FIRST_FIT,
                           uint32_t frees = RPIPE_FREES_BY_POLICY, uint32_t flags = 0) {
  rpipe_options options = {};
  options.size = sizeof options;
  options.width = width;
  options.heap_bytes = heap_bytes;
  options.policy = policy;
  options.frees = frees;
  options.flags = flags;
  return options;
}

size_t random_bytes(std::mt19937& random) {
  switch (random() % 8) {
    case 0:
      return 0;
    case 1:
      return 47 + random() % 3;
    case 2:
      return random() % 200'000;
    case 3:
      return 63 + random() % 3;
    default:
      return random() % 600;
  }
}

void fill(void* at, size_t bytes, uint32_t seed) {
  for (size_t each = 0; each < bytes; ++each) {
    static_cast<unsigned char*>(at)[each] = static_cast<unsigned char>(seed * 31 + each * 7);
  }
}

bool is_filled(const void* at, size_t bytes, uint32_t seed) {
  for (size_t each = 0; each < bytes; ++each) {
    if (static_cast<const unsigned char*>(at)[each] != static_cast<unsigned char>(seed * 31 + each * 7)) {
      return false;
    }
  }
  return true;
}

using Rpipe = PipeRanks;

/// On one node, and with each rank on another one.
class RpipeOn : public PipeRanks, public ::testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    PipeRanks::SetUp();
    nodes = GetParam() ? kMostPipeRanks : 1;
  }
};
INSTANTIATE_TEST_SUITE_P(Nodes, RpipeOn, ::testing::Bool(), [](const auto& each) { return each.param ? "several" : "one"; });

/// Messages of many lengths, which the reader frees in random order, keeping some for long.
void write_many(int self, rpipe_t pipe, int count, uint32_t seed) {
  std::mt19937 random(seed);
  for (int each = 0; each < count; ++each) {
    const size_t bytes = random_bytes(random);
    raddr_t buffer = 0;
    RANK_EXPECT(rpipe_alloc(pipe, bytes, &buffer, RPIPE_FOREVER) == 0);
    RANK_EXPECT(rpipe_of(buffer) == pipe);
    auto* const at = static_cast<char*>(rpipe_at(buffer));
    RANK_EXPECT(at != nullptr && reinterpret_cast<uintptr_t>(at) % (bytes >= 64 ? 64 : 16) == 0);
    if (random() % 7 == 0) {
      RANK_EXPECT(rpipe_free(buffer) == 0);
      RANK_EXPECT(rpipe_free(buffer) == -EALREADY);
      --each;
      continue;
    }
    fill(at, bytes, seed + static_cast<uint32_t>(each));
    RANK_EXPECT(rpipe_write(buffer, RPIPE_ALL, RPIPE_FOREVER) == 0);
    RANK_EXPECT(rpipe_at(buffer) == nullptr);
  }
}

void read_many(int self, rpipe_t pipe, int count, uint32_t seed, bool in_order) {
  std::mt19937 random(seed);
  std::mt19937 own(seed + 1);
  struct Held {
    raddr_t buffer;
    size_t bytes;
    uint32_t seed;
  };
  std::vector<Held> held;
  for (int each = 0; each < count; ++each) {
    size_t expected = random_bytes(random);
    while (random() % 7 == 0) {  // was taken back
      expected = random_bytes(random);
    }
    Held one = {0, 0, seed + static_cast<uint32_t>(each)};
    RANK_EXPECT(rpipe_read(pipe, &one.buffer, &one.bytes, RPIPE_FOREVER) == 0);
    RANK_EXPECT(one.bytes == expected);
    RANK_EXPECT(is_filled(rpipe_at(one.buffer), one.bytes, one.seed));
    held.push_back(one);
    while (held.size() > (in_order ? 0 : own() % 20)) {
      const auto which = static_cast<ptrdiff_t>(in_order ? 0 : own() % held.size());
      Held& gone = held[static_cast<size_t>(which)];
      RANK_EXPECT(is_filled(rpipe_at(gone.buffer), gone.bytes, gone.seed));
      fill(rpipe_at(gone.buffer), gone.bytes, 99);  // it is the reader's
      RANK_EXPECT(rpipe_free(gone.buffer) == 0);
      RANK_EXPECT(rpipe_free(gone.buffer) == -EALREADY);
      RANK_EXPECT(rpipe_at(gone.buffer) == nullptr);
      held.erase(held.begin() + which);
    }
  }
  for (const Held& one : held) {
    RANK_EXPECT(rpipe_free(one.buffer) == 0);
  }
}

struct Case {
  const char* name;
  uint32_t width, policy, frees;
  uint64_t heap_bytes;
  bool in_order;
  bool apart;
};

class RpipeWith : public PipeRanks, public ::testing::WithParamInterface<Case> {};

TEST_P(RpipeWith, ContentIsRightInBothDirections) {
  const Case& given = GetParam();
  nodes = given.apart ? kMostPipeRanks : 1;
  start(2, [&](int self) {
    const rpipe_options options = options_with(given.width, given.heap_bytes, given.policy, given.frees);
    rpipe_t to = nullptr;
    rpipe_t from = nullptr;
    const int peer = 1 - self;
    RANK_EXPECT(rpipe_open(self == 0 ? &to : &from, peer, self == 0 ? RPIPE_WRITER : RPIPE_READER, &options) == 0);
    RANK_EXPECT(rpipe_open(self == 0 ? &from : &to, peer, self == 0 ? RPIPE_READER : RPIPE_WRITER, &options) == 0);
    constexpr int kMessages = 3000;
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
    RANK_EXPECT(state.backend == (given.apart ? RPIPE_MPI : RPIPE_NODE) && state.written == kMessages &&
                state.heap_bytes <= given.heap_bytes);
    RANK_EXPECT(rpipe_close(to, RPIPE_FOREVER) == 0);
    RANK_EXPECT(rpipe_close(from, RPIPE_FOREVER) == 0);
  });
  expect_all_end_well(2);
}

INSTANTIATE_TEST_SUITE_P(Cases, RpipeWith,
                         ::testing::Values(Case{"first", 0, RPIPE_FIRST_FIT, RPIPE_FREES_BY_POLICY, 8 << 20, false, false},
                                           Case{"first_at_once", 0, RPIPE_FIRST_FIT, RPIPE_IMMEDIATE, 8 << 20, false, false},
                                           Case{"next", 0, RPIPE_NEXT_FIT, RPIPE_FREES_BY_POLICY, 8 << 20, true, false},
                                           Case{"best", 0, RPIPE_BEST_FIT, RPIPE_FREES_BY_POLICY, 8 << 20, false, false},
                                           Case{"best_deferred", 0, RPIPE_BEST_FIT, RPIPE_DEFERRED, 8 << 20, false, false},
                                           Case{"worst", 0, RPIPE_WORST_FIT, RPIPE_FREES_BY_POLICY, 8 << 20, false, false},
                                           Case{"narrow", 25, RPIPE_FIRST_FIT, RPIPE_FREES_BY_POLICY, 8 << 20, false, false},
                                           Case{"one", 1, RPIPE_FIRST_FIT, RPIPE_FREES_BY_POLICY, 1 << 20, true, false},
                                           Case{"first_apart", 0, RPIPE_FIRST_FIT, RPIPE_FREES_BY_POLICY, 8 << 20, false, true},
                                           Case{"next_apart", 0, RPIPE_NEXT_FIT, RPIPE_FREES_BY_POLICY, 8 << 20, true, true},
                                           Case{"best_apart", 0, RPIPE_BEST_FIT, RPIPE_FREES_BY_POLICY, 8 << 20, false, true},
                                           Case{"narrow_apart", 25, RPIPE_FIRST_FIT, RPIPE_FREES_BY_POLICY, 8 << 20, false,
                                                true},
                                           Case{"one_apart", 1, RPIPE_FIRST_FIT, RPIPE_FREES_BY_POLICY, 1 << 20, true, true}),
                         [](const auto& each) { return std::string(each.param.name); });

TEST_P(RpipeOn, FullDuplexWhereBothWriteBeforeTheyRead) {
  start(2, [](int self) {
    rpipe_t pipe = nullptr;
    RANK_EXPECT(rpipe_open(&pipe, 1 - self, RPIPE_BOTH, nullptr) == 0);
    std::thread reading([&] { read_many(self, pipe, 4000, static_cast<uint32_t>(1 - self), false); });
    write_many(self, pipe, 4000, static_cast<uint32_t>(self));
    reading.join();
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

TEST_F(Rpipe, WhereMessagesFailThePeerIsGone) {
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

TEST_F(Rpipe, WhatAPeerHadWrittenIsReadAfterItDied) {
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

TEST_F(Rpipe, WhoeverWaitsForRoomHearsOfADeath) {
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

TEST_P(RpipeOn, AWriterHearsThatTheReaderClosed) {
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

TEST_F(Rpipe, TwoThatWaitForRoomTowardsEachOtherAreTold) {
  start(
      2,
      [](int self) {
        rpipe_t pipe = nullptr;
        const rpipe_options options = options_with(3);
        RANK_EXPECT(rpipe_open(&pipe, 1 - self, RPIPE_BOTH, &options) == 0);
        int error = 0;
        while ((error = rpipe_send(pipe, "x", 1, RPIPE_FOREVER)) == 0) {
        }
        RANK_EXPECT(error == -EDEADLK);
        for (int each = 0; each < 3; ++each) {
          char byte = 0;
          RANK_EXPECT(rpipe_receive(pipe, &byte, 1, nullptr, RPIPE_FOREVER) == 0 && byte == 'x');
        }
      },
      false);
  // The first to be told goes on and reads, after which there is room for the other.
  const int first = end_of(0);
  const int second = end_of(1);
  EXPECT_TRUE(first == 0 || second == 0) << said();
}

TEST_P(RpipeOn, MemoryOfClosedPipesIsUsedAgain) {
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

TEST_P(RpipeOn, WhatIsNotReadDisturbsNoLaterPipe) {
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

TEST_P(RpipeOn, TwoThatCloseWithSomethingUnreadBothWaysAreTold) {
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

TEST_P(RpipeOn, RecordsOfPipesThatNeverMetAreUsedAgain) {
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

TEST_F(Rpipe, WhoOnlyLooksHearsOfADeath) {
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

TEST_P(RpipeOn, HandlesMayBeUsedWronglyAfterTheEnd) {
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

TEST_F(Rpipe, NothingIsLeftAfterTheEnd) {
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
