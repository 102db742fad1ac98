// Which blocks stay, judged by what real programs and the benchmark's did: their recorded accesses (traces/record.py) against
// memories of several sizes, beside the least recently used and the best that there is (Belady's: the block that is used again
// last leaves). Blocks read are counted; those that are new cost none.
//
//   unit_tests --gtest_filter='Replay.*'    prints the table
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <list>
#include <set>
#include <unordered_map>
#include <vector>

#include "replaced_memory.h"

namespace headroom::pager {
namespace {

struct Access {
  uint32_t block;
  bool fresh;  // its content before is given up
};

std::vector<Access> read_trace(const char* name) {
  char path[512];
  (void)snprintf(path, sizeof path, "%s/%s.trace", HEADROOM_TRACES, name);
  std::ifstream file(path, std::ios::binary);
  std::vector<Access> accesses;
  std::set<uint32_t> seen;
  int64_t block = 0;
  uint64_t value = 0;
  int shift = 0;
  for (auto at = std::istreambuf_iterator<char>(file); at != std::istreambuf_iterator<char>(); ++at) {
    const auto byte = static_cast<uint8_t>(*at);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    shift += 7;
    if ((byte & 0x80) != 0) {
      continue;
    }
    const uint64_t folded = value >> 1;
    block += (folded & 1) == 0 ? static_cast<int64_t>(folded / 2) : -static_cast<int64_t>(folded / 2) - 1;
    const auto number = static_cast<uint32_t>(block);
    if (number >= kBlocks) {
      ADD_FAILURE() << name << " has a block " << number;
      return {};
    }
    const bool first = seen.insert(number).second;
    accesses.push_back({number, first || (value & 1) != 0});
    value = 0;
    shift = 0;
  }
  return accesses;
}

uint32_t blocks_of(const std::vector<Access>& accesses) {
  std::set<uint32_t> blocks;
  for (const Access& access : accesses) {
    blocks.insert(access.block);
  }
  return static_cast<uint32_t>(blocks.size());
}

uint64_t reads_of_ours(const std::vector<Access>& accesses, uint64_t room) {
  Memory memory(room);
  uint64_t reads = 0;
  for (const auto [block, fresh] : accesses) {
    if (fresh) {
      memory.discard(block);
    }
    memory.touch(block);
    const uint64_t loads = memory.take_loads();
    reads += fresh ? 0 : loads;
  }
  return reads;
}

uint64_t reads_of_least_recently_used(const std::vector<Access>& accesses, uint64_t room) {
  std::list<uint32_t> order;
  std::unordered_map<uint32_t, std::list<uint32_t>::iterator> here;
  uint64_t reads = 0;
  for (const auto [block, fresh] : accesses) {
    const auto known = here.find(block);
    if (known != here.end()) {
      order.splice(order.end(), order, known->second);
      continue;
    }
    if (here.size() >= room) {
      here.erase(order.front());
      order.pop_front();
    }
    here[block] = order.insert(order.end(), block);
    reads += fresh ? 0 : 1;
  }
  return reads;
}

uint64_t reads_of_the_best(const std::vector<Access>& accesses, uint64_t room) {
  std::vector<size_t> next(accesses.size());
  std::unordered_map<uint32_t, size_t> later;
  for (size_t index = accesses.size(); index-- > 0;) {
    const auto known = later.find(accesses[index].block);
    const bool content_is_used = known != later.end() && !accesses[known->second].fresh;
    next[index] = content_is_used ? known->second : accesses.size() + accesses[index].block;
    later[accesses[index].block] = index;
  }
  std::set<std::pair<size_t, uint32_t>> by_next;
  std::unordered_map<uint32_t, size_t> here;
  uint64_t reads = 0;
  for (size_t index = 0; index < accesses.size(); ++index) {
    const auto [block, fresh] = accesses[index];
    const auto known = here.find(block);
    if (known != here.end()) {
      by_next.erase({known->second, block});
    } else {
      reads += fresh ? 0 : 1;
      if (here.size() >= room) {
        const auto last = *by_next.rbegin();
        by_next.erase(last);
        here.erase(last.second);
      }
    }
    here[block] = next[index];
    by_next.insert({next[index], block});
  }
  return reads;
}

struct Reads {
  uint64_t ours = 0;
  uint64_t recent = 0;
  uint64_t best = 0;
};

/// With memory for 90, 80, 70 and 60 % of what the program touches, in all.
Reads replay(const char* name) {
  const std::vector<Access> accesses = read_trace(name);
  EXPECT_GT(accesses.size(), 5'000U) << name;
  const uint32_t blocks = blocks_of(accesses);
  Reads all;
  for (const uint64_t percent : {90, 80, 70, 60}) {
    const uint64_t room = blocks * percent / 100;
    const Reads reads = {reads_of_ours(accesses, room), reads_of_least_recently_used(accesses, room),
                         reads_of_the_best(accesses, room)};
    printf("%8s, %4u blocks, %2d %% here: reads %6llu, least recently used %6llu, best %6llu\n", name, blocks,
           static_cast<int>(percent), static_cast<unsigned long long>(reads.ours),
           static_cast<unsigned long long>(reads.recent), static_cast<unsigned long long>(reads.best));
    all.ours += reads.ours;
    all.recent += reads.recent;
    all.best += reads.best;
  }
  EXPECT_LE(all.best, all.recent);
  EXPECT_LE(all.best, all.ours);
  return all;
}

/// What the choice of today reads of these, so that a change of it is seen to be one for the better, or not. `reads`: as it is
/// now, and a twentieth.
void expect_about(const char* name, uint64_t reads) {
  const Reads all = replay(name);
  EXPECT_LE(all.ours, reads + reads / 20) << name;
  EXPECT_GT(all.ours, reads - reads / 20) << name << " reads less: write that down here";
}

TEST(Replay, FreeFem) { expect_about("freefem", 5644); }
TEST(Replay, Petsc) { expect_about("petsc", 16385); }
TEST(Replay, Gpaw) { expect_about("gpaw", 2155); }
TEST(Replay, Mpb) { expect_about("mpb", 9138); }
TEST(Replay, PageRankOfTheBench) { expect_about("pagerank", 2779); }
TEST(Replay, CoarseningOfTheBench) { expect_about("coarsen", 1297); }
TEST(Replay, TensorOfTheBench) { expect_about("mttkrp", 5034); }

}  // namespace
}  // namespace headroom::pager
