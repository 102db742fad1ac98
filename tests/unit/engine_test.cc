// Each fault engine by itself is what it says, and a forced one that cannot be had ends the process.
#include "pager/engine.h"

#include <gtest/gtest.h>

#include "environment.h"

namespace headroom::pager {
namespace {

TEST(Engine, TheSignalEngineIsAlwaysThere) {
  test::set_environment("64M", "sigsegv");
  FaultEngine* engine = make_engine();
  EXPECT_EQ(engine->kind(), base::EngineChoice::kSigsegv);
  EXPECT_FALSE(engine->serves_kernel());
  EXPECT_EQ(engine->descriptor(), -1);
}

TEST(Engine, UserModeUserfaultfdServesTheProgramOnly) {
  test::set_environment("64M", "userfaultfd-user");
  FaultEngine* engine = make_userfaultfd_engine(true);
  if (engine == nullptr) {
    GTEST_SKIP() << "the kernel refuses userfaultfd here";
  }
  EXPECT_EQ(engine->kind(), base::EngineChoice::kUserfaultfdUser);
  EXPECT_FALSE(engine->serves_kernel());
}

TEST(Engine, FullUserfaultfdServesTheKernel) {
  test::set_environment("64M", "auto");
  FaultEngine* engine = make_userfaultfd_engine(false);
  if (engine == nullptr) {
    GTEST_SKIP() << "the kernel refuses unrestricted userfaultfd to this user";
  }
  EXPECT_TRUE(engine->serves_kernel());
}

}  // namespace
}  // namespace headroom::pager
