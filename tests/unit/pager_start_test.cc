// A pager that starts at an unusual moment: while another thread forks.
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

}  // namespace
}  // namespace headroom::pager
