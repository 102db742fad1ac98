// What a process that was killed in the middle had claimed is given back by a pager of the node, and counted. (How it is found:
// Ledger.ClaimsOfWhoWasKilledInTheMiddleAreFound.)
#include <gtest/gtest.h>
#include <unistd.h>

#include "environment.h"
#include "heap/heap.h"
#include "pager/pager.h"
#include "trace/counters.h"

namespace headroom::pager {
namespace {

using trace::counted;
using trace::Counter;

constexpr int64_t kLost = 1 << 20;

TEST(LostClaims, ArePartOfTheBudgetAgain) {
  test::set_environment("24M", "auto");
  ASSERT_EQ(start(), base::Status::kOk);
  constexpr uint64_t kBytes = 48 << 20;
  auto* memory = static_cast<char*>(heap::allocate(kBytes, 1, false));
  for (uint64_t at = 0; at < kBytes; at += arena::kPageBytes) {
    memory[at] = 1;
  }
  ASSERT_TRUE(is_armed());
  node::Ledger& ledger = *session().ledger;
  ledger.free_bytes.fetch_sub(kLost);
  sleep(6);
  EXPECT_EQ(counted(Counter::kClaimsFoundLost), 0U);  // nobody was killed
  EXPECT_FALSE(check_invariants(ledger));
  ledger.ended.store(1);
  for (int looks = 0; looks < 300 && counted(Counter::kClaimsFoundLost) == 0; ++looks) {
    usleep(100'000);
  }
  EXPECT_EQ(counted(Counter::kClaimsFoundLost), 1U);
  EXPECT_TRUE(check_invariants(ledger));
}

}  // namespace
}  // namespace headroom::pager
