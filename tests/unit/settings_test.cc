// Sizes as users write them, and settings read from the environment.
#include "base/settings.h"

#include <gtest/gtest.h>

#include "base/log.h"
#include "environment.h"

namespace headroom {

TEST(ParseBytes, AcceptsBinaryUnits) {
  EXPECT_EQ(base::parse_bytes("512M").value, 512U << 20);
  EXPECT_EQ(base::parse_bytes("4G").value, uint64_t{4} << 30);
  EXPECT_EQ(base::parse_bytes("1.5G").value, uint64_t{3} << 29);
  EXPECT_EQ(base::parse_bytes("64KiB").value, 65536U);
  EXPECT_EQ(base::parse_bytes("10mb").value, 10U << 20);
  EXPECT_EQ(base::parse_bytes("4096").value, 4096U);
}

TEST(ParseBytes, RefusesWhatIsNoSize) {
  for (const char* text : {"", "lots", "4X", "-1G", "1G2", "nan", "1e30"}) {
    EXPECT_FALSE(base::parse_bytes(text).ok()) << text;
  }
}

TEST(Settings, ComeFromTheEnvironment) {
  test::set_environment("64M", "sigsegv", "threads");
  EXPECT_EQ(base::settings().memory, 64U << 20);
  EXPECT_EQ(base::settings().engine, base::EngineChoice::kSigsegv);
  EXPECT_EQ(base::settings().store, base::StoreChoice::kThreads);
  EXPECT_EQ(base::settings().large, 0U);  // chosen by the heap
}

TEST(SettingsDeathTest, ABadChoiceNamesTheVariable) {
  setenv("HEADROOM_ENGINE", "steam", 1);
  EXPECT_EXIT(base::load_settings(), testing::ExitedWithCode(2), "HEADROOM_ENGINE=steam is unknown.*sigsegv");
}

TEST(SettingsDeathTest, ABadSizeNamesTheVariable) {
  setenv("HEADROOM_MEMORY", "plenty", 1);
  EXPECT_EXIT(base::load_settings(), testing::ExitedWithCode(2), "HEADROOM_MEMORY=plenty is not a size");
}

TEST(Settings, ChoiceNamesAreTheUsersWords) {
  char word[32];
  EXPECT_STREQ(base::choice_name("engine", 2, word, sizeof word), "userfaultfd-user");
  EXPECT_STREQ(base::choice_name("mode", 3, word, sizeof word), "turns");
}

TEST(LogLevels, AreForAllOrForOneFolder) {
  using base::does_log;
  using base::Level;
  using base::Part;
  ASSERT_TRUE(base::set_log_levels("debug"));
  EXPECT_TRUE(does_log(Part::kMpi, Level::kDebug));
  EXPECT_FALSE(does_log(Part::kMpi, Level::kTrace));
  ASSERT_TRUE(base::set_log_levels("info,pager:trace,direct:debug"));
  EXPECT_TRUE(does_log(Part::kPager, Level::kTrace));
  EXPECT_FALSE(does_log(Part::kDirect, Level::kTrace));
  EXPECT_TRUE(does_log(Part::kHeap, Level::kInfo));
  EXPECT_FALSE(does_log(Part::kHeap, Level::kDebug));
  for (const char* wrong :
       {"loud", "pager", "pager:", ":debug", "kitchen:debug", "pager:debug;direct:trace", "direct:error", "direct:warn"}) {
    EXPECT_FALSE(base::set_log_levels(wrong)) << wrong;
    EXPECT_TRUE(does_log(Part::kPager, Level::kTrace)) << "it stays as it was";
  }
  ASSERT_TRUE(base::set_log_levels("warn"));
}

}  // namespace headroom
