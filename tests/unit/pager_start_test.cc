// A pager that starts at an unusual moment: while another thread forks, or when the node's memory is short already.
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "environment.h"
#include "heap/heap.h"
#include "pager/pager.h"

namespace headroom::pager {
namespace {

TEST(PagerStart, AStartInTheMiddleOfAForkLeavesNoTrace) {
  test::set_environment("256M", "auto");
  sigset_t wanted;
  sigset_t found;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGUSR1);
  ASSERT_EQ(pthread_sigmask(SIG_SETMASK, &wanted, nullptr), 0);
  before_fork();
  ASSERT_EQ(start(), base::Status::kOk);  // another thread does
  ASSERT_NE(heap::allocate(64 << 20, 1, false), nullptr);
  const pid_t child = fork();
  if (child == 0) {
    after_fork_in_child();
    pthread_sigmask(SIG_SETMASK, nullptr, &found);
    _exit(sigismember(&found, SIGUSR1) == 1 && !is_running() && !is_forked_child() ? 0 : 1);
  }
  after_fork_in_parent();
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ASSERT_EQ(pthread_sigmask(SIG_SETMASK, nullptr, &found), 0);
  EXPECT_EQ(sigismember(&found, SIGUSR1), 1);
  before_fork();
  after_fork_in_parent();
  ASSERT_EQ(pthread_sigmask(SIG_SETMASK, nullptr, &found), 0);
  EXPECT_EQ(sigismember(&found, SIGUSR1), 1);
  EXPECT_EQ(sigismember(&found, SIGUSR2), 0);
}

/// In a process of its own, which then stays until `go_on` is closed.
template <typename Work>
pid_t start_rank(const int (&go_on)[2], Work work) {
  const pid_t process = fork();
  if (process == 0) {
    close(go_on[1]);
    const bool is_right = start() == base::Status::kOk && work();
    char byte = 0;
    (void)!read(go_on[0], &byte, 1);
    (void)node::leave_session(session());
    _exit(is_right ? 0 : 1);
  }
  return process;
}

TEST(PagerStart, WhoJoinsWhenMemoryIsShortIsArmed) {
  test::set_environment("24M", "auto");
  int go_on[2];
  int is_short[2];
  ASSERT_EQ(pipe(go_on) + pipe(is_short), 0);
  const pid_t first = start_rank(go_on, [&] {
    const bool armed = heap::allocate(64 << 20, 1, false) != nullptr && is_armed();
    return write(is_short[1], "x", 1) == 1 && armed;
  });
  char byte = 0;
  ASSERT_EQ(read(is_short[0], &byte, 1), 1);
  const pid_t second = start_rank(go_on, [&] {
    for (int look = 0; look < 200 && !is_armed(); ++look) {
      usleep(10'000);
    }
    return write(is_short[1], "x", 1) == 1 && is_armed();
  });
  ASSERT_EQ(read(is_short[0], &byte, 1), 1);
  close(go_on[1]);
  for (const pid_t rank : {first, second}) {
    int status = 0;
    ASSERT_EQ(waitpid(rank, &status, 0), rank);
    EXPECT_EQ(status, 0);
  }
}

}  // namespace
}  // namespace headroom::pager
