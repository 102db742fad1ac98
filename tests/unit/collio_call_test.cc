// Collective calls: every byte goes where each rank's view says, whatever the views, windows, overlaps, holes, the end of the
// file and errors; every rank's part ends, and no message is left over.
#include <gtest/gtest.h>

#include "collio_ranks.h"
#include "repeated.h"
#include "seed.h"

namespace headroom::collio {
namespace {

unsigned char content(int rank, size_t offset) {
  return static_cast<unsigned char>(1 + (static_cast<size_t>(rank) * 41 + offset * 7 + offset / 250) % 255);
}

/// A tile that goes forwards, and its places.
std::vector<int64_t> random_tile(std::mt19937& random, Pattern& pattern, bool as_list, int64_t scale) {
  std::vector<int64_t> places;
  int64_t position = static_cast<int64_t>(random() % 20) * scale;
  const auto runs = static_cast<int>(1 + random() % (as_list ? 40 : 1));
  for (int run = 0; run < runs; ++run) {
    Pattern inner;
    const auto bytes = static_cast<int64_t>(1 + random() % 30) * scale / 4 + 1;
    add_run(inner, 0, bytes);
    const auto count = static_cast<int64_t>(1 + random() % 5);
    const int64_t stride = bytes + static_cast<int64_t>(random() % 10) * scale;
    add_elements(pattern, inner, position, count, stride);
    for (int64_t index = 0; index < count; ++index) {
      for (int64_t byte = 0; byte < bytes; ++byte) {
        places.push_back(position + index * stride + byte);
      }
    }
    position += (count - 1) * stride + bytes + static_cast<int64_t>(random() % 10) * scale;
  }
  return places;
}

void make_access(RankAccess& rank, std::mt19937& random, bool as_list, int64_t scale, int64_t most_bytes) {
  const std::vector<int64_t> tile = random_tile(random, rank.pattern, as_list, scale);
  const int64_t extent = tile.back() + 1 + static_cast<int64_t>(random() % 5) * scale;
  ASSERT_TRUE(end_pattern(rank.pattern, extent));
  const auto skip = static_cast<int64_t>(random() % (2 * tile.size()));
  const int64_t bytes = random() % 8 == 0 ? 0 : static_cast<int64_t>(random()) % most_bytes;
  const auto origin = static_cast<int64_t>(random() % 40) * scale;
  const auto tile_bytes = static_cast<int64_t>(tile.size());
  for (int64_t offset = skip; offset < skip + bytes; ++offset) {
    rank.places.push_back(origin + offset / tile_bytes * extent + tile[static_cast<size_t>(offset % tile_bytes)]);
  }
  Opening& opening = rank.opening;
  opening.bytes = bytes;
  opening.skip = skip;
  opening.first = bytes > 0 ? rank.places.front() : 0;
  opening.end = bytes > 0 ? rank.places.back() + 1 : 0;
  Nest nest = rank.pattern.nest;
  nest.first += origin;
  const int64_t tiles = (skip + bytes + tile_bytes - 1) / tile_bytes;
  if (rank.pattern.list == nullptr && repeat(nest, std::max<int64_t>(tiles, 1), extent)) {
    opening.nest = nest;
  } else {
    if (rank.pattern.list == nullptr) {
      rank.pattern.list = new (malloc(sizeof(PieceList))) PieceList;
      ASSERT_TRUE(rank.pattern.list->add(rank.pattern.nest) && rank.pattern.list->end_list());
    }
    opening.flags = kIsList;
    rank.view = {rank.pattern.list, origin, extent};
  }
}

struct Job {
  std::vector<RankAccess> ranks;
  std::vector<Opening> openings;
  std::vector<Domain> domains;
};

/// Random accesses of `size` ranks, and a random plan for them.
void make_job(Job& job, std::mt19937& random, int size, int64_t scale, int64_t most_bytes) {
  job.ranks = std::vector<RankAccess>(static_cast<size_t>(size));
  int64_t lowest = INT64_MAX;
  int64_t highest = 0;
  for (RankAccess& rank : job.ranks) {
    make_access(rank, random, random() % 2 == 0, scale, most_bytes);
    job.openings.push_back(rank.opening);
    if (rank.opening.bytes > 0) {
      lowest = std::min(lowest, rank.opening.first);
      highest = std::max(highest, rank.opening.end);
    }
  }
  const auto aggregators = static_cast<int>(1 + random() % static_cast<unsigned>(size));
  int64_t at = lowest;
  for (int rank = 0; rank < aggregators && at < highest; ++rank) {
    const int64_t end = rank + 1 == aggregators ? highest : at + static_cast<int64_t>(random()) % (highest - at + 1);
    if (end > at) {
      job.domains.push_back({rank, at, end, 1 + static_cast<int64_t>(random() % 40) * scale * 100});
      at = end;
    }
  }
}

/// Runs the call of all ranks, their steps in random order; false if it does not end.
bool run(Job& job, bool writes, std::mt19937& random, std::vector<Outcome>& outcomes, Mail& mail) {
  const auto size = static_cast<int>(job.ranks.size());
  std::vector<Mailbox> boxes;
  boxes.reserve(static_cast<size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    boxes.push_back({&mail, rank});
  }
  std::vector<std::unique_ptr<Call>> calls;
  for (int rank = 0; rank < size; ++rank) {
    RankAccess& own = job.ranks[static_cast<size_t>(rank)];
    CallDescription call;
    call.writes = writes;
    call.rank = rank;
    call.size = size;
    call.openings = job.openings.data();
    call.domains = job.domains.data();
    call.domain_count = static_cast<int>(job.domains.size());
    call.user = {own.memory.data(), static_cast<uint64_t>(own.memory.size()), nullptr};
    call.view = own.view;
    call.file = memory_file();
    call.messages = messages_of(boxes[static_cast<size_t>(rank)]);
    calls.push_back(std::make_unique<Call>());
    EXPECT_TRUE(calls.back()->begin(call));
  }
  int idle = 0;
  constexpr int kPatience = 2000000;
  bool all_done = false;
  while (!all_done && idle < kPatience) {
    const auto rank = static_cast<size_t>(random()) % calls.size();
    idle = calls[rank]->step() ? 0 : idle + 1;
    if (idle > 30) {
      sched_yield();  // a file's thread may want it
    }
    all_done = idle > 10 && std::all_of(calls.begin(), calls.end(), [](const auto& call) { return call->is_done(); });
  }
  for (const auto& call : calls) {
    outcomes.push_back(call->outcome());
  }
  return all_done;
}

class CollioCall : public ::testing::Test {
 protected:
  void SetUp() override {
    MemoryFile& file = the_file();
    file.bytes.clear();
    file.reads = file.writes = file.read_bytes = 0;
    file.failing_read = file.failing_write = -1;
  }
};

TEST_F(CollioCall, WritesEveryByteWhereItBelongsAndNoOther) {
  std::mt19937 random(headroom::test::seed_of(11));
  int64_t read_first = 0;
  for (int round = 0; round < test::repeated(60); ++round) {
    Job job;
    const int64_t scale = 1 << (random() % 8);
    make_job(job, random, static_cast<int>(1 + random() % 6), scale, 4000 * scale);
    MemoryFile& file = the_file();
    file.bytes.assign(random() % 3 == 0 ? 0 : random() % static_cast<unsigned>(6000 * scale), 0);
    const std::vector<unsigned char> before = file.bytes;
    size_t expected_size = before.size();
    for (size_t rank = 0; rank < job.ranks.size(); ++rank) {
      RankAccess& own = job.ranks[rank];
      own.memory.resize(own.places.size());
      for (size_t offset = 0; offset < own.places.size(); ++offset) {
        own.memory[offset] = static_cast<char>(content(static_cast<int>(rank), offset));
        expected_size = std::max(expected_size, static_cast<size_t>(own.places[offset]) + 1);
      }
    }
    Mail mail(static_cast<int>(job.ranks.size()));
    std::vector<Outcome> outcomes;
    ASSERT_TRUE(run(job, true, random, outcomes, mail)) << "round " << round;
    ASSERT_TRUE(mail.is_empty());
    ASSERT_EQ(expected_size, file.bytes.size()) << "round " << round;
    // Each byte is that of one of those who wrote it; where nobody did it is as before.
    std::vector<unsigned char> good(expected_size, 0);
    std::vector<unsigned char> written(expected_size, 0);
    for (size_t rank = 0; rank < job.ranks.size(); ++rank) {
      const RankAccess& own = job.ranks[rank];
      for (size_t offset = 0; offset < own.places.size(); ++offset) {
        const auto place = static_cast<size_t>(own.places[offset]);
        written[place] = 1;
        good[place] = good[place] != 0 || file.bytes[place] == content(static_cast<int>(rank), offset) ? 1 : 0;
      }
    }
    int64_t wrong = 0;
    for (size_t place = 0; place < expected_size; ++place) {
      const unsigned char old = place < before.size() ? before[place] : 0;
      wrong += (written[place] != 0 ? good[place] != 0 : file.bytes[place] == old) ? 0 : 1;
    }
    ASSERT_EQ(0, wrong) << "round " << round;
    for (const Outcome& outcome : outcomes) {
      ASSERT_EQ(0, outcome.error);
      read_first += outcome.rounds_read_first;
    }
  }
  EXPECT_GT(read_first, 8) << "windows with holes were there";
}

TEST_F(CollioCall, ReadsWhatIsThereAndTouchesNothingBehindTheEnd) {
  std::mt19937 random(headroom::test::seed_of(12));
  int met_end = 0;
  for (int round = 0; round < 60; ++round) {
    Job job;
    const int64_t scale = 1 << (random() % 8);
    make_job(job, random, static_cast<int>(1 + random() % 6), scale, 4000 * scale);
    MemoryFile& file = the_file();
    file.bytes.resize(random() % static_cast<unsigned>(30000 * scale));
    for (size_t place = 0; place < file.bytes.size(); ++place) {
      file.bytes[place] = content(1, place);
    }
    for (RankAccess& own : job.ranks) {
      own.memory.assign(own.places.size(), 0);
    }
    Mail mail(static_cast<int>(job.ranks.size()));
    std::vector<Outcome> outcomes;
    ASSERT_TRUE(run(job, false, random, outcomes, mail)) << "round " << round;
    ASSERT_TRUE(mail.is_empty());
    int64_t end = INT64_MAX;
    for (const Outcome& outcome : outcomes) {
      ASSERT_EQ(0, outcome.error);
      end = std::min(end, outcome.end_of_file);
    }
    met_end += end != INT64_MAX ? 1 : 0;
    int64_t wrong = 0;
    int64_t miscounted = 0;
    for (const RankAccess& own : job.ranks) {
      for (size_t offset = 0; offset < own.places.size(); ++offset) {
        const auto place = static_cast<size_t>(own.places[offset]);
        const unsigned char expected = place < file.bytes.size() ? file.bytes[place] : 0;
        wrong += expected == static_cast<unsigned char>(own.memory[offset]) ? 0 : 1;
        // The bytes that count as read are those before the end that was met.
        miscounted += (place < file.bytes.size()) == (own.places[offset] < end) ? 0 : 1;
      }
    }
    ASSERT_EQ(0, wrong) << "round " << round;
    ASSERT_EQ(0, miscounted) << "round " << round;
  }
  EXPECT_GT(met_end, 4);
}

TEST_F(CollioCall, AnErrorAtAnyJobEndsTheCallOfAllRanks) {
  std::mt19937 random(headroom::test::seed_of(13));
  int failed = 0;
  for (int round = 0; round < 100; ++round) {
    Job job;
    const bool writes = round % 2 == 0;
    make_job(job, random, static_cast<int>(2 + random() % 5), 16, 60000);
    MemoryFile& file = the_file();
    file.bytes.assign(500000, 1);
    file.reads = file.writes = 0;
    (writes && random() % 4 != 0 ? file.failing_write : file.failing_read) = static_cast<int64_t>(random() % 8);
    for (RankAccess& own : job.ranks) {
      own.memory.assign(own.places.size(), 5);
    }
    Mail mail(static_cast<int>(job.ranks.size()));
    std::vector<Outcome> outcomes;
    ASSERT_TRUE(run(job, writes, random, outcomes, mail)) << "round " << round;
    ASSERT_TRUE(mail.is_empty()) << "round " << round;
    const bool met = file.writes > file.failing_write && file.failing_write >= 0;
    const bool met_read = file.reads > file.failing_read && file.failing_read >= 0;
    const auto with_error =
        std::count_if(outcomes.begin(), outcomes.end(), [](const Outcome& each) { return each.error != 0; });
    ASSERT_EQ(met || met_read, with_error > 0) << "round " << round;
    failed += with_error > 0 ? 1 : 0;
    file.failing_read = file.failing_write = -1;
  }
  EXPECT_GT(failed, 30);
}

TEST_F(CollioCall, AloneIsTheSame) {
  std::mt19937 random(headroom::test::seed_of(14));
  for (int round = 0; round < 300; ++round) {
    RankAccess own;
    make_access(own, random, random() % 2 == 0, 4, 20000);
    MemoryFile& file = the_file();
    file.bytes.assign(random() % 100000, 9);
    std::vector<unsigned char> expected = file.bytes;
    own.memory.resize(own.places.size());
    for (size_t offset = 0; offset < own.places.size(); ++offset) {
      own.memory[offset] = static_cast<char>(content(0, offset));
      expected.resize(std::max(expected.size(), static_cast<size_t>(own.places[offset]) + 1));
      expected[static_cast<size_t>(own.places[offset])] = content(0, offset);
    }
    CallDescription call;
    call.writes = true;
    call.size = 1;
    call.openings = &own.opening;
    call.user = {own.memory.data(), static_cast<uint64_t>(own.memory.size()), nullptr};
    call.view = own.view;
    call.file = memory_file();
    EXPECT_EQ(0, access_alone(call).error);
    ASSERT_EQ(expected, file.bytes) << "round " << round;
    std::vector<char> back(own.memory.size());
    call.writes = false;
    call.user.address = back.data();
    EXPECT_EQ(0, access_alone(call).error);
    ASSERT_EQ(own.memory, back) << "round " << round;
  }
}

TEST_F(CollioCall, WindowsShrinkInMidCall) {
  std::mt19937 random(headroom::test::seed_of(15));
  Job job;
  job.ranks = std::vector<RankAccess>(2);
  for (size_t rank = 0; rank < 2; ++rank) {
    RankAccess& own = job.ranks[rank];
    own.opening.nest = {.first = static_cast<int64_t>(rank) * 1024, .piece = 1024, .levels = 1, .level = {{8192, 2048}}};
    own.opening.bytes = 8 << 20;
    own.opening.first = own.opening.nest.first;
    own.opening.end = own.opening.first + span_of(own.opening.nest);
    own.memory.assign(8 << 20, static_cast<char>(rank + 1));
    job.openings.push_back(own.opening);
  }
  job.domains.push_back({0, 0, 16 << 20, kLargestWindow});
  // Half of the node's memory is used by somebody else after the third window.
  static int asked;
  asked = 0;
  Mail mail(2);
  Mailbox boxes[2] = {{&mail, 0}, {&mail, 1}};
  Call calls[2];
  for (int rank = 0; rank < 2; ++rank) {
    CallDescription call;
    call.writes = true;
    call.rank = rank;
    call.size = 2;
    call.openings = job.openings.data();
    call.domains = job.domains.data();
    call.domain_count = 1;
    call.user = {job.ranks[static_cast<size_t>(rank)].memory.data(), 8 << 20, nullptr};
    call.file = memory_file();
    call.messages = messages_of(boxes[rank]);
    call.room = [] { return ++asked < 3 ? int64_t{1} << 30 : int64_t{0} - (8 << 20); };
    ASSERT_TRUE(calls[rank].begin(call));
  }
  while (!calls[0].is_done() || !calls[1].is_done()) {
    calls[0].step();
    calls[1].step();
  }
  const Outcome outcome = calls[0].outcome();
  EXPECT_EQ(0, outcome.error);
  EXPECT_EQ(kLargestWindow, outcome.window_bytes);
  EXPECT_EQ(3 + (10 << 20) / kSmallestWindow, outcome.windows) << "three of 2 MiB, the rest in small ones";
  int64_t wrong = 0;
  for (size_t place = 0; place < the_file().bytes.size(); ++place) {
    wrong += the_file().bytes[place] == 1 + place / 1024 % 2 ? 0 : 1;
  }
  EXPECT_EQ(0, wrong);
}

}  // namespace
}  // namespace headroom::collio
