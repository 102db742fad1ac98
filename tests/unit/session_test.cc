// The ends of members as the others notice them: what they had is given back once, and only what was theirs.
#include "node/session.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
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
    note_used_places(*session.ledger, static_cast<uint32_t>(index) + 1);
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

TEST_F(SessionOfOne, WhoFindsNoPlaceDoesNotJoinAndAPlaceThatIsFreeAgainIsTaken) {
  const auto places = static_cast<int>(session.ledger->places);
  EXPECT_EQ(places, kFewestPlaces);
  EXPECT_EQ(session.ledger->used_members().size(), 1U);
  for (int index = 1; index < places; ++index) {
    (void)add(index, getppid());
  }
  std::atomic<bool> serves = true;
  std::thread server([&] {
    while (serves.load()) {
      serve_newcomer(session);
    }
  });
  for (const bool is_free : {false, true}) {
    if (is_free) {
      Member& member = session.ledger->members[7];
      member.state.store(in_state(member.state.load(), MemberState::kLeft));
    }
    const pid_t newcomer = fork();
    if (newcomer == 0) {
      forget_session_in_child(session);
      Session its;
      const bool has_joined = join_session(its) == base::Status::kOk;
      _exit(has_joined && its.index == 7 ? 7 : has_joined ? 1 : 2);
    }
    int status = 0;
    waitpid(newcomer, &status, 0);
    EXPECT_EQ(WEXITSTATUS(status), is_free ? 7 : 2);
  }
  serves.store(false);
  server.join();
  EXPECT_EQ(session.ledger->used_members().size(), session.ledger->places);
}

TEST_F(SessionOfOne, WhoIsKilledWhileItRetiresAnotherOneLeavesNothingUndone) {
  Ledger& ledger = *session.ledger;
  const pid_t gone = ended_process();
  for (const int index : {1, 2, 3}) {
    (void)add(index, gone);
    ASSERT_TRUE(reserve(ledger, ledger.members[index], 4096));
  }
  // The last one died over the second, and that one over the first.
  ledger.members[1].state.store(in_retirement(ledger.members[1].state.load(), MemberState::kDied, 2));
  ledger.members[2].state.store(in_retirement(ledger.members[2].state.load(), MemberState::kLeft, 3));
  ledger.members[3].in_mpi.store(static_cast<uint32_t>(MpiState::kFinalized));
  session.watched_index = 3;
  session.watched_pid = gone;
  watched_ended(session);
  EXPECT_EQ(state_of(ledger.members[1]), MemberState::kDied);
  EXPECT_EQ(state_of(ledger.members[2]), MemberState::kLeft);
  EXPECT_EQ(state_of(ledger.members[3]), MemberState::kLeft);
  EXPECT_EQ(ledger.alive.load(), 1U);
  EXPECT_EQ(ledger.free_bytes.load(), ledger.budget);
  EXPECT_NE(ledger.lost_at_ns.load(), 0U);
}

TEST_F(SessionOfOne, WhoGoesToAnotherNetworkTakesNobodyForGone) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t other = fork();
  if (other == 0) {
    Session its;
    const bool has_joined = join_session(its) == base::Status::kOk;
    (void)!write(ready[1], has_joined ? "y" : "n", 1);
    pause();
    _exit(0);
  }
  while (session.ledger->alive.load() < 2) {
    serve_newcomer(session);
  }
  char joined = 0;
  ASSERT_EQ(read(ready[0], &joined, 1), 1);
  ASSERT_EQ(joined, 'y');
  const bool is_elsewhere = unshare(CLONE_NEWNET) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0;
  const Leaving leaving = leave_session(session);
  const MemberState state = state_of(session.ledger->members[1]);
  kill(other, SIGKILL);
  waitpid(other, nullptr, 0);
  if (!is_elsewhere) {
    GTEST_SKIP() << "no namespaces for networks here";
  }
  EXPECT_EQ(state, MemberState::kAlive);
  EXPECT_EQ(leaving, Leaving::kLeft);
}

TEST_F(SessionOfOne, WhoHasEndedUnseenIsNotedByWhoLeaves) {
  for (const bool is_waited_for : {true, false}) {
    const pid_t gone = fork();
    if (gone == 0) {
      _exit(0);
    }
    siginfo_t ended = {};
    ASSERT_EQ(waitid(P_PID, static_cast<id_t>(gone), &ended, WEXITED | (is_waited_for ? 0 : WNOWAIT)), 0);
    (void)add(is_waited_for ? 1 : 2, gone).in_mpi.store(static_cast<uint32_t>(MpiState::kFinalized));
  }
  EXPECT_EQ(leave_session(session), Leaving::kLast);
}

TEST_F(SessionOfOne, WhoTakesThePlaceOfOneThatHasLeftIsNotTakenForIt) {
  // So many are told of an end that there is time to take the place meanwhile.
  for (int index = 2; index < static_cast<int>(session.ledger->places); ++index) {
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
      member.memory.reserved_bytes.store(4096);
      member.state.store(in_state(member.state.load(), MemberState::kAlive));
    });
    watched_ended(session);
    newcomer.join();
    ASSERT_EQ(state_of(member), MemberState::kAlive) << "in round " << round;
    ASSERT_EQ(member.memory.reserved_bytes.load(), 4096);
    member.memory.reserved_bytes.store(0);
  }
}

}  // namespace
}  // namespace headroom::node
