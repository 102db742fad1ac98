// The ends of members as the others notice them: what they had is given back once, and only what was theirs.
#include "node/session.h"

#include <gtest/gtest.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "environment.h"
#include "node/lost_claims.h"

namespace headroom::node {
namespace {

/// A process that has ended, and was waited for.
pid_t ended_process() {
  const pid_t process = fork();
  if (process == 0) {
    _exit(0);
  }
  waitpid(process, nullptr, 0);
  return process;
}

/// Takes the name of a member's doorbell before the member does; returns the socket, or -1.
int take_doorbell(int index) {
  struct stat names = {};
  (void)stat("/proc/self/ns/pid", &names);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const int length = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "headroom-%u-%llx-%s-%d", getuid(),
                              static_cast<unsigned long long>(names.st_ino), base::settings().job, index);
  const int file = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(length));
  return bind(file, reinterpret_cast<sockaddr*>(&address), bytes) == 0 ? file : -1;
}

TEST(Session, WhoCouldNotJoinHasNoPlaceToGiveUp) {
  test::set_environment("64M", "auto");
  const int doorbell = take_doorbell(0);
  ASSERT_GE(doorbell, 0);
  Session session;
  ASSERT_EQ(join_session(session), base::Status::kUnavailable);
  EXPECT_EQ(session.self, nullptr);
  EXPECT_EQ(session.index, -1);
  Member& member = session.ledger->members[0];
  ASSERT_EQ(state_of(member), MemberState::kEmpty);
  member.pid.store(getpid());
  member.state.store(static_cast<uint32_t>(MemberState::kAlive));  // another one's
  abandon_session(session);
  EXPECT_EQ(state_of(member), MemberState::kAlive);
  close(doorbell);
}

/// The test's process is a member, the others are made up.
class SessionOfOne : public ::testing::Test {
 protected:
  void SetUp() override {
    test::set_environment("64M", "auto");
    ASSERT_EQ(join_session(session), base::Status::kOk);
  }
  void TearDown() override { forget_session_in_child(session); }

  /// A member whose process has joined as others do.
  Member& add(int index, pid_t process) {
    Member& member = session.ledger->members[index];
    member.pid.store(process);
    session.ledger->alive.fetch_add(1);
    member.counted.store(1);
    member.state.store(in_state(member.state.load(), MemberState::kAlive));
    return member;
  }

  Session session;
};

TEST_F(SessionOfOne, WhoIsKilledWhileItLeavesIsNoLongerCounted) {
  const pid_t gone = ended_process();
  Member& member = add(1, gone);
  ASSERT_EQ(session.ledger->alive.load(), 2U);
  member.state.store(in_state(member.state.load(), MemberState::kLeaving));  // it came this far
  session.watched_index = 1;
  session.watched_pid = gone;
  watched_ended(session);
  EXPECT_EQ(state_of(member), MemberState::kLeft);
  EXPECT_EQ(session.ledger->alive.load(), 1U);
  EXPECT_EQ(leave_session(session), Leaving::kLast);
  return_to_session(session);
  EXPECT_EQ(session.ledger->alive.load(), 1U);
  EXPECT_EQ(leave_session(session), Leaving::kLeft);  // the report has been written
  EXPECT_EQ(session.ledger->alive.load(), 0U);
}

TEST_F(SessionOfOne, ClaimsOfWhoLeftInTheMiddleOfOneAreFound) {
  Ledger& ledger = *session.ledger;
  const pid_t gone = ended_process();
  Member& member = add(1, gone);
  ASSERT_TRUE(reserve(ledger, member, 4096));
  ledger.free_bytes.fetch_sub(8192);  // the other word of this one was never written
  member.state.store(in_state(member.state.load(), MemberState::kLeaving));
  session.watched_index = 1;
  session.watched_pid = gone;
  watched_ended(session);
  ASSERT_EQ(ledger.lost_at_ns.load(), 0U);
  ASSERT_FALSE(check_invariants(ledger));
  LostClaims claims;
  for (int look = 0; look < 5; ++look) {
    (void)claims.give_back(ledger, *session.self);
  }
  EXPECT_TRUE(check_invariants(ledger));
  EXPECT_EQ(ledger.free_bytes.load(), ledger.budget);
}

TEST_F(SessionOfOne, WhoTakesThePlaceOfOneThatHasLeftIsNotTakenForIt) {
  // So many are told of an end that there is time to take the place meanwhile.
  for (int index = 2; index < kMaxMembers; ++index) {
    (void)add(index, 0);
  }
  for (int round = 0; round < 20; ++round) {
    const pid_t gone = ended_process();
    Member& member = add(1, gone);
    member.state.store(in_state(member.state.load(), MemberState::kLeaving));
    session.watched_index = 1;
    session.watched_pid = gone;
    std::thread newcomer([&] {
      while (state_of(member) != MemberState::kLeft) {
      }
      member.state.store(in_state(member.state.load() + kOneUse, MemberState::kJoining));
      member.pid.store(getpid());
      member.reserved_bytes.store(4096);
      member.state.store(in_state(member.state.load(), MemberState::kAlive));
    });
    watched_ended(session);
    newcomer.join();
    ASSERT_EQ(state_of(member), MemberState::kAlive) << "in round " << round;
    ASSERT_EQ(member.reserved_bytes.load(), 4096);
    member.reserved_bytes.store(0);
  }
}

}  // namespace
}  // namespace headroom::node
