// What a peer does to a block of a rank while that rank's pager writes it out, which the disk takes its time for: it holds the
// block and reads it, or writes to it by its own mapping, of which the owner's pager sees nothing but the hold. Nothing is
// lost, and nothing that is old is read. (What the owner itself does meanwhile: during_write_out_test.cc.)
#include <sys/mman.h>

#include <array>
#include <tuple>

#include "direct/peer_hold.h"
#include "direct/peer_memory.h"
#include "pager/state.h"
#include "ranks.h"
#include "trace/counters.h"

namespace headroom::direct {
namespace {

using arena::kBlockBytes;
using test::Rank;
using trace::Counter;

constexpr uint64_t kBlocks = 256;  // 64 MiB in 24 MiB; a peer uses the first half
constexpr uint64_t kWords = kBlockBytes / 8;
constexpr uint64_t kPageWords = arena::kPageBytes / 8;
constexpr int kTimes = 60;
constexpr int kLateUs = 2000;
constexpr int kUnlike = 80;  // the exit status of who reads something else than was written
constexpr int kNeverGivenUp = 81;

enum class Deed : uint8_t { kRead, kWrite };

/// What the owner tells the peer, and what the first word of each block of the first half must be.
struct Told {
  std::atomic<char*> memory;
  std::atomic<uint64_t> first_block;
  std::array<std::atomic<uint64_t>, kBlocks / 2> first_words;
};

volatile uint64_t* words_of(char* memory, uint64_t number) {
  return reinterpret_cast<volatile uint64_t*>(memory + number * kBlockBytes);
}

/// Writes to the last word of each page again and again, so that blocks leave; and looks at everything in the end.
void own(Rank& rank, Told& told) {
  auto* memory = static_cast<char*>(heap::allocate((kBlocks + 1) * kBlockBytes, 1, false));
  uint64_t offset = 0;
  if (!arena::find_offset(pager::partition(), reinterpret_cast<uintptr_t>(memory), offset)) {
    _exit(test::kCannotBegin);
  }
  told.first_block = arena::block_of(offset + kBlockBytes - 1);
  memory += told.first_block * kBlockBytes - offset;
  for (uint64_t number = 0; number < kBlocks / 2; ++number) {
    words_of(memory, number)[0] = number + 1;
    told.first_words[number] = number + 1;
  }
  told.memory = memory;
  rank.meet();
  uint64_t round = 0;
  while (rank.done() < kTimes && !Rank::is_lost()) {
    ++round;
    for (uint64_t number = 0; number < kBlocks; ++number) {
      for (uint64_t last = kPageWords - 1; last < kWords; last += kPageWords) {  // all of it, or single pages would be moved
        words_of(memory, number)[last] = number + round;
      }
    }
  }
  rank.meet();
  for (uint64_t number = 0; number < kBlocks; ++number) {
    const volatile uint64_t* words = words_of(memory, number);
    const uint64_t first = number < kBlocks / 2 ? told.first_words[number].load() : 0;
    if (words[0] != first || words[kWords - 1] != number + round) {
      _exit(kUnlike);
    }
  }
  if (!test::invariants_hold()) {
    _exit(test::kWrong);
  }
  if (trace::counted(Counter::kEvictionsGivenUp) < kTimes / 6) {  // many were over by then where the machine is busy
    fprintf(stderr, "%llu evictions were given up\n",
            static_cast<unsigned long long>(trace::counted(Counter::kEvictionsGivenUp)));
    _exit(kNeverGivenUp);
  }
}

/// Waits for blocks to be written out, and does the deed to each then.
void meddle(Rank& rank, Told& told, Deed deed) {
  rank.meet();
  const node::Session& session = pager::session();
  arena::BlockWord* blocks = open_peer_blocks(session, rank.member(0));
  if (blocks == nullptr || !open_peer_memory(session, rank.member(0))) {
    _exit(test::kCannotBegin);
  }
  char* const memory = told.memory;
  const uint64_t first_block = told.first_block;
  uint64_t next = kBlocks;
  for (uint64_t number = 0; rank.done() < kTimes; number = (number + 1) % (kBlocks / 2)) {
    const uint64_t word = blocks[first_block + number].load();
    if (arena::state_of(word) != arena::kWriting) {
      continue;
    }
    const PeerRange range = {rank.member(0), (first_block + number) * kBlockBytes, 8, deed == Deed::kWrite};
    if (!take_peer_hold(session, range, 0)) {
      _exit(test::kWrong);
    }
    // While the block is being written out, when that is over, or both.
    volatile uint64_t* words = words_of(memory, number);
    const int done = rank.done();
    for (int moment = 0; moment < 2; ++moment) {
      if (words[0] != told.first_words[number].load()) {
        _exit(kUnlike);
      }
      if (deed == Deed::kWrite && done % 3 != moment) {
        words[0] = ++next;
        told.first_words[number] = next;
      }
      usleep(moment == 0 ? 2 * kLateUs : 0);
    }
    drop_peer_hold(session, range);
    rank.count_done();
  }
  rank.meet();
}

class PeerDuringWriteOut : public test::Ranks, public testing::WithParamInterface<std::tuple<const char*, Deed>> {};

TEST_P(PeerDuringWriteOut, NothingIsLost) {
  const auto [engine, deed] = GetParam();
  const bool user_mode = strcmp(engine, "userfaultfd-user") == 0;
  if (strcmp(engine, "sigsegv") != 0 && pager::make_userfaultfd_engine(user_mode) == nullptr) {
    GTEST_SKIP() << "the kernel refuses this engine here";
  }
  setenv("HEADROOM_STORE_FAULT", ("late:" + std::to_string(kLateUs)).c_str(), 1);
  auto& told = *static_cast<Told*>(mmap(nullptr, sizeof(Told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  start(
      2, "24M", "auto", [&told, deed = deed](Rank& rank) { rank.self() == 0 ? own(rank, told) : meddle(rank, told, deed); },
      engine);
  EXPECT_EQ(end_of(0), 0) << said();
  EXPECT_EQ(end_of(1), 0) << said();
  munmap(&told, sizeof told);
}

INSTANTIATE_TEST_SUITE_P(Deeds, PeerDuringWriteOut,
                         testing::Combine(testing::Values("userfaultfd", "userfaultfd-user", "sigsegv"),
                                          testing::Values(Deed::kRead, Deed::kWrite)),
                         [](const auto& instance) {
                           std::string engine = std::get<0>(instance.param);
                           std::erase(engine, '-');
                           return engine + (std::get<1>(instance.param) == Deed::kRead ? "Read" : "Written");
                         });

}  // namespace
}  // namespace headroom::direct
