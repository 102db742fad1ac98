// The trace's ring: events of several threads arrive whole, each once, in the order of each thread; what does not fit is
// counted.
#include "trace/recorder.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>
#include <vector>

namespace headroom::trace {
namespace {

constexpr int kThreads = 4;
constexpr int64_t kEach = 20'000;

std::vector<Event> events_in(const std::string& folder) {
  std::vector<Event> events;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    uint64_t mark = 0;
    file.read(reinterpret_cast<char*>(&mark), sizeof mark);
    EXPECT_EQ(kTraceMagic, mark);
    for (Event event = {}; file.read(reinterpret_cast<char*>(&event), sizeof event);) {
      events.push_back(event);
    }
  }
  return events;
}

TEST(Recorder, EventsArriveWholeAndOnceOrAreCountedAsLost) {
  char folder[] = "/tmp/headroom-recorder-XXXXXX";
  ASSERT_NE(nullptr, mkdtemp(folder));
  record({1, EventKind::kSite, 0, 0, {}});  // no trace yet: nothing happens
  ASSERT_TRUE(open_trace(folder));
  std::atomic<int> ended{0};
  std::vector<std::thread> threads;
  for (uint32_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int64_t index = 1; index <= kEach; ++index) {
        record({static_cast<uint64_t>(index), EventKind::kSample, 7, thread, {index, -index, index * 3, 0, 0, index ^ thread}});
      }
      ended.fetch_add(1);
    });
  }
  while (ended.load() < kThreads) {
    write_recorded();
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  write_recorded();

  int64_t seen = 0;
  int64_t lost = 0;
  std::map<uint32_t, int64_t> last;
  for (const Event& event : events_in(folder)) {
    if (event.kind == EventKind::kLost) {
      lost += event.values[0];
      continue;
    }
    ++seen;
    const int64_t index = event.values[0];
    ASSERT_EQ(EventKind::kSample, event.kind);
    ASSERT_TRUE(event.values[1] == -index && event.values[2] == index * 3 && event.values[5] == (index ^ event.label));
    ASSERT_LT(last[event.label], index);
    last[event.label] = index;
  }
  EXPECT_EQ(kThreads * kEach, seen + lost);
  EXPECT_GT(seen, 0);
  std::filesystem::remove_all(folder);
}

TEST(Recorder, AFolderThatIsNotThereIsSaid) {
  EXPECT_FALSE(open_trace("/nonexistent/folder"));
  EXPECT_FALSE(is_recording());
}

TEST(Recorder, ATraceThatFindsNoRoomEndsWithAWholeEvent) {
  char folder[] = "/tmp/headroom-recorder-XXXXXX";
  ASSERT_NE(nullptr, mkdtemp(folder));
  ASSERT_TRUE(open_trace(folder));
  constexpr int kFit = 100;
  const rlimit limit = {sizeof kTraceMagic + kFit * sizeof(Event) + sizeof(Event) / 2, RLIM_INFINITY};
  ASSERT_EQ(0, setrlimit(RLIMIT_FSIZE, &limit));
  for (int64_t index = 0; index < 10 * kFit; ++index) {
    record({static_cast<uint64_t>(index), EventKind::kSample, 0, 0, {index}});
  }
  testing::internal::CaptureStderr();
  write_recorded();
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_FALSE(is_recording());
  EXPECT_EQ(1, std::count(said.begin(), said.end(), '\n')) << said;
  const std::vector<Event> events = events_in(folder);
  ASSERT_EQ(kFit, static_cast<int>(events.size()));
  EXPECT_EQ(kFit - 1, events.back().values[0]);
  const auto file = std::filesystem::directory_iterator(folder)->path();
  EXPECT_EQ(sizeof kTraceMagic + kFit * sizeof(Event), std::filesystem::file_size(file));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace headroom::trace
