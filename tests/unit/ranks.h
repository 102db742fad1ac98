// Processes of a test that are ranks of one node, as in a job without MPI: each joins the node session, and has a pager with
// its thread, evictable memory, and an endpoint, the process's own. The test's process is none of them.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>

#include "direct/endpoint.h"
#include "direct/waiting.h"
#include "direct/window.h"
#include "environment.h"
#include "heap/heap.h"
#include "pager/pager.h"

namespace headroom::test {

constexpr int kMostRanks = 3;
constexpr int kWrong = 77;
constexpr int kCannotBegin = 78;
constexpr int kEndedByHeadroom = 2;
constexpr unsigned kHangsAfterSeconds = 20;

/// What the ranks share; zeroed at the beginning.
struct Job {
  std::atomic<int> members[kMostRanks];  // of each rank, + 1
  std::atomic<int> arrived;              // at all meetings
  std::atomic<int> done;                 // what a rank has counted for the others
  direct::WindowPart parts[kMostRanks];
};

/// A rank, in its process.
class Rank {
 public:
  Rank(Job& job, int self, int count) : job_(job), self_(self), count_(count) {}

  [[nodiscard]] int self() const { return self_; }
  [[nodiscard]] int count() const { return count_; }
  [[nodiscard]] int member(int rank) const { return job_.members[rank].load() - 1; }
  [[nodiscard]] const direct::WindowPart& part(int rank) const { return job_.parts[rank]; }
  [[nodiscard]] direct::WindowControl& control(int rank) const {
    return *direct::endpoint().memory().at<direct::WindowControl>(part(rank).control);
  }

  void begin() {
    alarm(kHangsAfterSeconds);
    if (pager::start() != base::Status::kOk) {
      _exit(kCannotBegin);
    }
    pager::session().self->rank.store(self_);
    job_.members[self_].store(pager::session().index + 1);
    std::array<int, kMostRanks> others = {};
    for (int rank = 0; rank < count_; ++rank) {
      while (job_.members[rank].load() == 0) {
        sched_yield();
      }
      others[static_cast<size_t>(rank)] = member(rank);
    }
    if (!direct::endpoint().open(pager::session(), others.data(), count_)) {
      _exit(kCannotBegin);
    }
    meet();
  }

  /// Waits as calls of MPI do. Ends this process if another has died, and not after seconds as in a job, but once what that one
  /// had published has been looked at.
  template <typename Done>
  static void wait_until(Done done) {
    direct::Waiting waiting(make_loss_old);
    while (!done()) {
      (void)direct::endpoint().progress();
      waiting.pause();
    }
  }
  static bool is_lost() { return pager::session().ledger->lost_at_ns.load() != 0; }

  /// Waits for the others, unless one has died.
  void meet() {
    const int all = ++meetings_ * count_;
    ++job_.arrived;
    direct::Waiting waiting([] { return sched_yield() != 0; });
    while (job_.arrived.load() < all && !is_lost()) {
      (void)direct::endpoint().progress();
      waiting.pause();
    }
  }

  void count_done() { ++job_.done; }
  [[nodiscard]] int done() const { return job_.done.load(); }

  static char* allocate(uint64_t bytes) { return static_cast<char*>(heap::allocate(bytes, arena::kPageBytes, true)); }

  /// Makes a window of so many bytes of each rank, together with the others.
  char* make_window(uint64_t bytes) {
    char* const place = allocate(bytes);
    job_.parts[self_] = direct::make_window_part(direct::endpoint(), place, bytes, 1, count_);
    meet();
    for (int rank = 0; rank < count_; ++rank) {
      if (!direct::open_window_part(part(rank))) {
        _exit(kCannotBegin);
      }
    }
    return place;
  }
  /// So many bytes of a rank's part, from there on.
  [[nodiscard]] direct::Content place_in(int rank, uint64_t offset, uint64_t bytes) const {
    return {direct::address_in_part(part(rank), static_cast<int64_t>(offset)), bytes, nullptr};
  }

  [[noreturn]] void leave() {
    meet();
    (void)node::leave_session(pager::session());
    _exit(0);
  }

 private:
  static bool make_loss_old() {
    static int looks = 0;
    sched_yield();
    if (is_lost() && ++looks > 3) {
      pager::session().ledger->lost_at_ns.store(1);
    }
    return false;
  }

  Job& job_;
  int self_;
  int count_;
  int meetings_ = 0;
};

class Ranks : public ::testing::Test {
 protected:
  void SetUp() override {
    job = static_cast<Job*>(mmap(nullptr, sizeof(Job), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    said_file = memfd_create("said", MFD_CLOEXEC);
    ASSERT_EQ(0, fcntl(said_file, F_SETFL, O_APPEND));  // threads write at the same time
  }
  void TearDown() override {
    munmap(job, sizeof(Job));
    close(said_file);
  }

  /// Starts the ranks, each of which does `work` and leaves.
  template <typename Work>
  void start(int count, const char* memory, const char* mode, Work work, const char* engine = "auto") {
    setenv("HEADROOM_MODE", mode, 1);
    set_environment(memory, engine);
    memset(static_cast<void*>(job), 0, sizeof(Job));
    ASSERT_EQ(0, ftruncate(said_file, 0));
    for (int rank = 0; rank < count; ++rank) {
      processes[rank] = fork();
      ASSERT_GE(processes[rank], 0);
      if (processes[rank] == 0) {
        dup2(said_file, STDERR_FILENO);
        Rank self(*job, rank, count);
        self.begin();
        work(self);
        self.leave();
      }
    }
  }
  /// How the rank ended: its exit status, or minus the signal.
  int end_of(int rank) {
    int status = 0;
    waitpid(processes[rank], &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  /// What the ranks said.
  std::string said() const {
    std::string text(4096, 0);
    const ssize_t bytes = pread(said_file, text.data(), text.size(), 0);
    text.resize(bytes > 0 ? static_cast<size_t>(bytes) : 0);
    return text;
  }

  Job* job = nullptr;
  int said_file = -1;
  pid_t processes[kMostRanks] = {};
};

}  // namespace headroom::test
