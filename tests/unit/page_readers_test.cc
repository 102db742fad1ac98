// Readers of single pages that go on by the same distance: what is read ahead of them, and that others are left alone.
#include "pager/page_readers.h"
#include "seed.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace headroom::pager {
namespace {

/// A program that uses pages, of which those that were read ahead are mapped but for markers.
class Pages {
 public:
  void use(uint64_t page) {
    const bool is_mapped = mapped_.count(page) != 0;
    if (is_mapped) {
      return;
    }
    ++faults_;
    const PagesAhead ahead = readers_.note_use(page);
    for (int64_t each = 0; each < ahead.count; ++each) {
      const auto next = static_cast<uint64_t>(ahead.first + each * ahead.step);
      ++read_ahead_;
      if (!readers_.is_marker(next)) {
        mapped_.insert(next);
      }
    }
  }
  [[nodiscard]] uint64_t faults() const { return faults_; }
  [[nodiscard]] uint64_t read_ahead() const { return read_ahead_; }

 private:
  PageReaders readers_;
  std::set<uint64_t> mapped_;
  uint64_t faults_ = 0;
  uint64_t read_ahead_ = 0;
};

TEST(PageReaders, ReadAheadOfWhoWalksDownAColumn) {
  for (const int64_t step : {2, 16, 300, -2, -300}) {
    Pages pages;
    const int64_t begin = step > 0 ? 0 : 1000 * 300;
    for (int64_t row = 0; row < 1000; ++row) {
      pages.use(static_cast<uint64_t>(begin + row * step));
    }
    EXPECT_LT(pages.faults(), 1000 / 8) << step;
    EXPECT_LE(pages.read_ahead(), 1000 + 32) << step;
    EXPECT_GT(pages.read_ahead(), 1000 * 9 / 10) << step;
  }
}

TEST(PageReaders, ServeSeveralSideBySide) {
  Pages pages;
  for (uint64_t row = 0; row < 1000; ++row) {
    for (uint64_t matrix = 0; matrix < 4; ++matrix) {
      pages.use(matrix * 1'000'000 + row * (16 + matrix));
    }
  }
  EXPECT_LT(pages.faults(), 4 * 1000 / 8);
}

TEST(PageReaders, BeginAnewWithEachColumn) {
  Pages pages;
  for (uint64_t column = 0; column < 10; ++column) {
    for (uint64_t row = 0; row < 500; ++row) {
      pages.use(row * 16 + column);
    }
  }
  EXPECT_LT(pages.faults(), 10 * 500 / 4);
}

TEST(PageReaders, LeaveJumpsAlone) {
  Pages pages;
  std::mt19937 random(headroom::test::seed_of(1));
  for (int access = 0; access < 100'000; ++access) {
    pages.use(random() % 200'000);
  }
  EXPECT_LT(pages.read_ahead(), 100'000 / 1000);
}

TEST(PageReaders, NameAgainWhatWasNotRead) {
  PageReaders readers;
  PagesAhead ahead = {};
  uint64_t page = 0;
  for (; ahead.count == 0; page += 16) {
    ahead = readers.note_use(page);
  }
  EXPECT_EQ(ahead.first, static_cast<int64_t>(page));
  readers.not_read_from(ahead.first + ahead.step);  // one was read, and the next one is asked for
  ahead = readers.note_use(page + 16);
  EXPECT_EQ(ahead.first, static_cast<int64_t>(page + 32));
}

TEST(PageReaders, TakeTheSamePageAgainForOneUse) {
  PageReaders readers;
  for (uint64_t row = 0; row < 100; ++row) {
    (void)readers.note_use(row * 16);
    EXPECT_EQ(readers.note_use(row * 16).count, 0);
  }
}

}  // namespace
}  // namespace headroom::pager
