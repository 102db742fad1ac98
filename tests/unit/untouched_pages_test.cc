// What is known of the pages of hollow blocks.
#include "pager/untouched_pages.h"

#include <gtest/gtest.h>

#include "arena/arena.h"

namespace headroom::pager {
namespace {

constexpr uint64_t kAll = UINT64_MAX;
constexpr uint64_t kPage = arena::kPageBytes;

class UntouchedPages : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(open_untouched_pages(64));
    set_untouched(5, ~uint64_t{3});  // two pages were touched
  }
};

TEST_F(UntouchedPages, AllOfAHollowBlockIsZeroOnStorage) {
  EXPECT_TRUE(are_zero_on_storage(5, kAll));
  EXPECT_FALSE(are_zero_on_storage(4, 1));
  EXPECT_EQ(untouched_bytes(), 62 * kPage);
  EXPECT_TRUE(is_mostly_untouched(5));
}

TEST_F(UntouchedPages, WhatIsTouchedStaysZeroOnStorageUntilItIsWritten) {
  note_touched_pages(0, 64, 0xff);
  EXPECT_TRUE(are_zero_on_storage(5, kAll));
  EXPECT_EQ(untouched_bytes(), 56 * kPage);
  note_written_pages(5, 1, 0x0f);
  EXPECT_FALSE(are_zero_on_storage(5, 0x10 | 1));
  EXPECT_EQ(zero_pages_on_storage(5, kAll), ~uint64_t{0x0f});
  note_touched_pages(5, 1, ~uint64_t{0} << 32);
  EXPECT_FALSE(is_mostly_untouched(5));
}

TEST_F(UntouchedPages, WhatIsZeroIsNotReadFromTheDisk) {
  note_written_pages(5, 1, 0x0f);
  note_read_pages(4, 2, kAll);
  const uint64_t read = 2 * arena::kBlockBytes;
  EXPECT_EQ(take_bytes_from_disk(read), read - 60 * kPage);
  EXPECT_EQ(take_bytes_from_disk(read), read);
  EXPECT_EQ(untouched_bytes(), 0U);
}

TEST_F(UntouchedPages, NothingIsKnownOfContentThatIsGivenUp) {
  forget_untouched_pages(0, 64);
  EXPECT_EQ(zero_pages_on_storage(5, kAll), 0U);
  EXPECT_EQ(untouched_bytes(), 0U);
}

}  // namespace
}  // namespace headroom::pager
