// Reserving from the shared budget, alone and from many threads, and the record of modes.
#include "node/ledger.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "node/lost_claims.h"

namespace headroom::node {
namespace {

std::unique_ptr<Ledger> make_ledger(int64_t budget) {
  auto ledger = std::make_unique<Ledger>();
  ledger->magic = kLedgerMagic;
  ledger->budget = budget;
  ledger->quota_cores = kMaxCores;
  ledger->free_bytes.store(budget);
  return ledger;
}

Member& alive(Ledger& ledger, int index) {
  note_used_places(ledger, static_cast<uint32_t>(index) + 1);
  ledger.members[index].state.store(static_cast<uint32_t>(MemberState::kAlive));
  return ledger.members[index];
}

TEST(Ledger, NeverGivesMoreThanTheBudget) {
  auto ledger = make_ledger(100);
  Member& member = alive(*ledger, 0);
  EXPECT_TRUE(reserve(*ledger, member, 60));
  EXPECT_FALSE(reserve(*ledger, member, 41));
  EXPECT_TRUE(reserve(*ledger, member, 40));
  EXPECT_FALSE(reserve(*ledger, member, 1));
  release(*ledger, member, 100);
  EXPECT_EQ(ledger->peak_reserved_bytes.load(), 100);
  EXPECT_TRUE(check_invariants(*ledger));
}

TEST(Ledger, BalancesUnderContention) {
  auto ledger = make_ledger(1000);
  std::vector<std::thread> threads;
  for (int index = 0; index < 4; ++index) {
    threads.emplace_back([&, index] {
      Member& member = alive(*ledger, index);
      for (int round = 0; round < 20000; ++round) {
        const int64_t bytes = 1 + (round * 37 + index) % 400;
        if (reserve(*ledger, member, bytes)) {
          ASSERT_GE(ledger->free_bytes.load(), 0);
          release(*ledger, member, bytes);
        }
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(ledger->free_bytes.load(), 1000);
  EXPECT_LE(ledger->peak_reserved_bytes.load(), 1000);
  EXPECT_TRUE(check_invariants(*ledger));
}

TEST(Ledger, AnInvariantThatIsBrokenIsSeen) {
  auto ledger = make_ledger(100);
  Member& member = alive(*ledger, 0);
  ASSERT_TRUE(reserve(*ledger, member, 10));
  ledger->free_bytes.fetch_add(1);
  EXPECT_FALSE(check_invariants(*ledger));
}

TEST(Ledger, ClaimsOfWhoWasKilledInTheMiddleAreFound) {
  auto ledger = make_ledger(100);
  Member& first = alive(*ledger, 0);
  Member& second = alive(*ledger, 1);
  ASSERT_TRUE(reserve(*ledger, first, 10));
  ASSERT_TRUE(reserve(*ledger, second, 20));
  second.turns.slots.store(1);
  ledger->held_slots.store(2);      // the other one took a slot and wrote down none
  ledger->free_bytes.fetch_sub(7);  // and memory
  LostClaims here;
  LostClaims there;
  for (int look = 0; look < 10; ++look) {
    EXPECT_FALSE(here.give_back(*ledger, first));  // nobody has ended, so somebody is at work on it
  }
  ledger->ended.store(1);
  for (int look = 0; look < 10; ++look) {
    EXPECT_FALSE(there.give_back(*ledger, second));  // one does it
  }
  for (int look = 1; look < 4; ++look) {
    EXPECT_FALSE(here.give_back(*ledger, first));
  }
  ASSERT_TRUE(reserve(*ledger, first, 5));  // this changes the words, not their difference
  EXPECT_FALSE(check_invariants(*ledger));
  EXPECT_TRUE(here.give_back(*ledger, first));
  EXPECT_TRUE(check_invariants(*ledger));
  for (int look = 0; look < 10; ++look) {
    EXPECT_FALSE(here.give_back(*ledger, first));
  }
  EXPECT_EQ(ledger->free_bytes.load(), 65);
  EXPECT_EQ(ledger->held_slots.load(), 1U);
}

TEST(Ledger, RecordsAModeOnlyWhenItChanges) {
  auto ledger = make_ledger(100);
  for (const uint32_t mode : {1U, 1U, 3U, 3U, 1U}) {
    record_mode(*ledger, mode);
  }
  ASSERT_EQ(ledger->mode_changes.load(), 3U);
  EXPECT_EQ(ledger->modes[1].mode.load(), 3U);
}

TEST(Ledger, SlotsAreCoresUnlessAsked) {
  auto ledger = make_ledger(100);
  ledger->cores_in_mask.store(3);
  EXPECT_EQ(ledger->slots(), 3U);
  ledger->quota_cores = 2;  // a container's processor quota
  EXPECT_EQ(ledger->slots(), 2U);
  ledger->asked_slots = 7;
  EXPECT_EQ(ledger->slots(), 7U);
}

}  // namespace
}  // namespace headroom::node
