// Both stores give back what they were given, in any order of completion, and report injected errors.
#include "pager/store.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <iterator>
#include <thread>
#include <vector>

#include "environment.h"
#include "pager/pager.h"
#include "pager/state.h"
#include "pager/store_speed.h"

namespace headroom::pager {
namespace {

constexpr uint64_t kPiece = 64 << 10;

struct Memory {
  explicit Memory(uint64_t bytes) : address(static_cast<char*>(aligned_alloc(4096, bytes))) {}
  ~Memory() { free(address); }
  char* address;
};

/// Waits for `wanted` completions; returns the number that failed.
int wait_for(Store& store, int wanted) {
  int failed = 0;
  while (wanted > 0) {
    pollfd waiting = {store.descriptor(), POLLIN, 0};
    poll(&waiting, 1, 1000);
    Completion done[8];
    const int found = store.collect(done, 8);
    for (int index = 0; index < found; ++index) {
      failed += done[index].error != 0 ? 1 : 0;
    }
    wanted -= found;
  }
  return failed;
}

/// One is collected at a time, as the pager does: as long as there are more, the descriptor says so.
void collect_one_by_one(Store& store) {
  constexpr int kCount = 32;
  Memory memory(kCount * kPiece);
  memset(memory.address, 1, kCount * kPiece);
  store.begin_batch();
  for (uint64_t index = 0; index < kCount; ++index) {
    store.submit({true, index * kPiece, memory.address + index * kPiece, kPiece, index});
  }
  store.end_batch();
  for (int left = kCount; left > 0; --left) {
    pollfd waiting = {store.descriptor(), POLLIN, 0};
    ASSERT_EQ(poll(&waiting, 1, 10'000), 1) << left << " are under way";
    Completion done = {};
    while (store.collect(&done, 1) == 0) {  // the descriptor may say so too early, but not for ever
      ASSERT_EQ(poll(&waiting, 1, 10'000), 1) << left << " are under way";
    }
    EXPECT_EQ(done.error, 0);
  }
  Completion done = {};
  EXPECT_FALSE(store.has_completions());
  EXPECT_EQ(store.collect(&done, 1), 0);
  EXPECT_EQ(store.in_flight(), 0);
}

void round_trip(Store& store) {
  collect_one_by_one(store);
  constexpr int kCount = 48;
  Memory out(kCount * kPiece);
  Memory in(kCount * kPiece);
  for (uint64_t index = 0; index < kCount * kPiece; ++index) {
    out.address[index] = static_cast<char>(index * 2654435761U >> 13);
  }
  for (uint64_t index = 0; index < kCount; ++index) {
    store.submit({true, (kCount - 1 - index) * kPiece, out.address + index * kPiece, kPiece, index});
  }
  EXPECT_EQ(wait_for(store, kCount), 0);
  for (uint64_t index = 0; index < kCount; ++index) {
    store.submit({false, (kCount - 1 - index) * kPiece, in.address + index * kPiece, kPiece, index});
  }
  EXPECT_EQ(wait_for(store, kCount), 0);
  EXPECT_EQ(memcmp(out.address, in.address, kCount * kPiece), 0);
  EXPECT_EQ(store.in_flight(), 0);
}

TEST(Store, IoUringGivesBackWhatItWasGiven) {
  test::set_environment("64M", "auto", "auto");
  const auto file = open_store_files();
  ASSERT_TRUE(file.ok());
  Store* store = make_io_uring_store(file.value);
  if (store == nullptr) {
    GTEST_SKIP() << "the kernel refuses io_uring here";
  }
  EXPECT_EQ(store->kind(), base::StoreChoice::kIoUring);
  round_trip(*store);
}

TEST(Store, ThreadsGiveBackWhatTheyWereGiven) {
  test::set_environment("64M", "auto", "threads");
  const auto file = open_store_files();
  ASSERT_TRUE(file.ok());
  Store* store = make_store(file.value);
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(store->kind(), base::StoreChoice::kThreads);
  round_trip(*store);
}

TEST(Store, SeveralFilesTakeStripesInTurn) {
  test::set_environment("64M", "auto");
  setenv("HEADROOM_STORAGE", "/var/tmp:/var/tmp:/var/tmp", 1);
  base::load_settings();
  const auto files = open_store_files();
  ASSERT_TRUE(files.ok());
  ASSERT_EQ(files.value.count, 3);
  constexpr uint64_t kStripes = 7;
  Store* store = make_store(files.value);
  Memory out(kStripes * kStripeBytes);
  for (uint64_t stripe = 0; stripe < kStripes; ++stripe) {
    memset(out.address + stripe * kStripeBytes, static_cast<int>('a' + stripe), kStripeBytes);
    store->submit({true, stripe * kStripeBytes, out.address + stripe * kStripeBytes, kStripeBytes, stripe});
  }
  EXPECT_EQ(wait_for(*store, kStripes), 0);
  Memory in(kPiece);
  for (uint64_t stripe = 0; stripe < kStripes; ++stripe) {
    const StorePlace place = place_of(files.value, stripe * kStripeBytes + kPiece);
    EXPECT_EQ(place.descriptor, files.value.descriptors[stripe % 3]);
    EXPECT_EQ(place.offset, stripe / 3 * kStripeBytes + kPiece);
    ASSERT_EQ(pread(place.descriptor, in.address, kPiece, static_cast<off_t>(place.offset)), static_cast<ssize_t>(kPiece));
    EXPECT_EQ(memcmp(in.address, out.address + stripe * kStripeBytes + kPiece, kPiece), 0);
  }
}

void goes_elsewhere(Store* (*make)(const StoreFiles&)) {
  test::set_environment("64M", "auto");
  setenv("HEADROOM_STORAGE", "/var/tmp:/var/tmp", 1);
  base::load_settings();
  auto files = open_store_files();
  ASSERT_TRUE(files.ok());
  Store* store = make(files.value);
  if (store == nullptr) {
    GTEST_SKIP() << "the kernel refuses io_uring here";
  }
  constexpr uint64_t kStripes = 6;
  ASSERT_TRUE(add_store_file(files.value, "/var/tmp"));  // while the store is there
  ASSERT_FALSE(add_store_file(files.value, "/var/tmp/there is no such directory"));
  ASSERT_EQ(files.value.count, 3);
  ASSERT_EQ(files.value.striped, 2);
  files.value.placed[1] = 1;  // of the second file, to the first
  files.value.placed[2] = 3;
  files.value.placed[3] = 2;  // where it belongs
  Memory out(kStripes * kStripeBytes);
  for (uint64_t stripe = 0; stripe < kStripes; ++stripe) {
    memset(out.address + stripe * kStripeBytes, static_cast<int>('a' + stripe), kStripeBytes);
    store->submit({true, stripe * kStripeBytes, out.address + stripe * kStripeBytes, kStripeBytes, stripe});
  }
  EXPECT_EQ(wait_for(*store, kStripes), 0);
  const int expected[kStripes] = {0, 0, 2, 1, 0, 1};
  Memory in(kStripes * kStripeBytes);
  for (uint64_t stripe = 0; stripe < kStripes; ++stripe) {
    EXPECT_EQ(place_of(files.value, stripe * kStripeBytes).descriptor, files.value.descriptors[expected[stripe]]) << stripe;
    store->submit({false, stripe * kStripeBytes, in.address + stripe * kStripeBytes, kStripeBytes, stripe});
  }
  EXPECT_EQ(wait_for(*store, kStripes), 0);
  EXPECT_EQ(memcmp(in.address, out.address, kStripes * kStripeBytes), 0);
}

TEST(Store, StripesThatWentElsewhereComeBackFromThere) {
  goes_elsewhere(make_io_uring_store);
  goes_elsewhere(make_thread_store);
}

TEST(Store, OfTransfersByThreadsNoneWaitsForThoseThatWereBegunLater) {
  test::set_environment("64M", "auto", "threads");
  const auto file = open_store_files();
  ASSERT_TRUE(file.ok());
  Store* store = make_store(file.value);
  constexpr uint64_t kFirst = 8;
  Memory memory(kPiece);
  memset(memory.address, 1, kPiece);
  uint64_t next = 0;
  for (; next < kFirst; ++next) {
    store->submit({true, next * kPiece, memory.address, kPiece, next});
  }
  constexpr uint64_t kAll = (uint64_t{1} << kFirst) - 1;
  uint64_t seen = 0;
  for (int round = 0; round < 2000 && seen != kAll; ++round) {  // the disk may take long for one of them
    usleep(2000);                                               // so that several have ended
    Completion done = {};
    while (store->collect(&done, 1) == 0) {
      usleep(100);
    }
    seen |= done.tag < kFirst ? uint64_t{1} << done.tag : 0;
    store->submit({true, next % 64 * kPiece, memory.address, kPiece, next});
    ++next;
  }
  EXPECT_EQ(seen, kAll) << "which of the first ones were collected";
  EXPECT_EQ(wait_for(*store, kFirst), 0);
}

TEST(Store, SignalsDoNotMakeIoUringLookRefused) {
  test::set_environment("64M", "auto");
  auto file = open_store_files();
  ASSERT_TRUE(file.ok());
  if (make_io_uring_store(file.value) == nullptr) {
    GTEST_SKIP() << "the kernel refuses io_uring here";
  }
  // What is written ends only when somebody reads: a signal comes first.
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const int capacity = fcntl(ends[1], F_SETPIPE_SZ, 4096);
  std::vector<char> full(static_cast<size_t>(capacity));
  ASSERT_EQ(write(ends[1], full.data(), full.size()), capacity);
  file.value.descriptors[0] = ends[1];
  static std::atomic<int> signals{0};
  signals = 0;
  struct sigaction action = {};
  action.sa_handler = [](int) { ++signals; };
  sigaction(SIGALRM, &action, nullptr);
  std::thread reader([&] {
    sigset_t alarms;
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarms, nullptr);
    while (signals.load() < 5) {
      usleep(1000);
    }
    EXPECT_EQ(read(ends[0], full.data(), full.size()), capacity);
  });
  const itimerval often = {{0, 5000}, {0, 5000}};
  setitimer(ITIMER_REAL, &often, nullptr);
  EXPECT_NE(make_io_uring_store(file.value), nullptr);
  const itimerval never = {};
  setitimer(ITIMER_REAL, &never, nullptr);
  signals = 5;
  reader.join();
}

TEST(Store, ATransferThatFellShortWithinAPageGoesOn) {
  test::set_environment("64M", "auto");
  const int descriptor = memfd_create("short", MFD_CLOEXEC);
  StoreFiles files = {};
  files.descriptors[0] = descriptor;
  files.striped = files.count = 1;
  uint8_t placed[1] = {};
  files.placed = placed;
  Store* store = make_io_uring_store(files);
  if (store == nullptr) {
    GTEST_SKIP() << "the kernel refuses io_uring here";
  }
  Memory out(kPiece);
  Memory in(kPiece);
  memset(out.address, 7, kPiece);
  const auto read_with = [&](off_t bytes_then, off_t bytes_later) {
    EXPECT_EQ(ftruncate(descriptor, 0), 0);
    EXPECT_EQ(pwrite(descriptor, out.address, static_cast<size_t>(bytes_then), 0), bytes_then);
    store->submit({false, 0, in.address, kPiece, 1});
    while (!store->has_completions()) {
      usleep(100);
    }
    EXPECT_EQ(pwrite(descriptor, out.address, static_cast<size_t>(bytes_later), 0), bytes_later);
    return wait_for(*store, 1);
  };
  constexpr off_t kAll = kPiece;
  EXPECT_EQ(read_with(kAll - 1000, kAll), 0);
  EXPECT_EQ(memcmp(in.address, out.address, kPiece), 0);
  memset(in.address, 0, kPiece);
  EXPECT_EQ(read_with(1000, kAll), 0);
  EXPECT_EQ(memcmp(in.address, out.address, kPiece), 0);
  EXPECT_EQ(read_with(kAll - 1000, kAll - 1000), 1) << "what never comes is not waited for for ever";
  EXPECT_EQ(read_with(8192, 8192), 1);
}

TEST(Store, AMedianOfReadTimesDoesNotFallBelowZero) {
  static node::Ledger ledger = {};
  static node::Session session = {};
  session.ledger = &ledger;
  state.session = &session;
  constexpr uint32_t kLong = 1'000'000'000;
  ledger.read_page.median_ns.store(kLong);  // another rank's first sample, which is not counted yet
  note_read_begun(1, arena::kPageBytes);
  note_read_ended(1);
  EXPECT_LE(ledger.read_page.median_ns.load(), kLong);
  EXPECT_EQ(ledger.read_page.samples.load(), 1U);
}

TEST(Store, TheFileHasNoName) {
  test::set_environment("64M", "auto");
  const auto file = open_store_files();
  ASSERT_TRUE(file.ok());
  char link[64];
  char target[4096] = {};
  snprintf(link, sizeof link, "/proc/self/fd/%d", file.value.descriptors[0]);
  ASSERT_GT(readlink(link, target, sizeof target - 1), 0);
  EXPECT_NE(strstr(target, "(deleted)"), nullptr) << target;
}

TEST(Store, TheNthTransferFailsAsAsked) {
  test::set_environment("64M", "auto");
  const auto file = open_store_files();
  ASSERT_TRUE(file.ok());
  Store* store = make_faulty_store(make_thread_store(file.value), file.value, "write:EIO:2");
  ASSERT_NE(store, nullptr);
  Memory memory(kPiece);
  memset(memory.address, 1, kPiece);
  for (uint64_t index = 0; index < 3; ++index) {
    store->submit({true, index * kPiece, memory.address, kPiece, index});
  }
  EXPECT_EQ(wait_for(*store, 3), 1);
}

TEST(Store, AWriteMayFailLate) {
  test::set_environment("64M", "auto");
  const auto file = open_store_files();
  ASSERT_TRUE(file.ok());
  Store* store = make_faulty_store(make_thread_store(file.value), file.value, "late:200000:write:EIO:2+@0-3");
  ASSERT_NE(store, nullptr);
  Memory memory(kPiece);
  memset(memory.address, 1, kPiece);
  const uint64_t since = base::monotonic_ns();
  for (uint64_t index = 0; index < 3; ++index) {
    store->submit({true, index * kPiece, memory.address, kPiece, index});
  }
  EXPECT_EQ(wait_for(*store, 1), 0);
  EXPECT_EQ(wait_for(*store, 2), 2);
  EXPECT_GE(base::monotonic_ns() - since, 200'000'000U);
}

TEST(Store, ABadFaultIsRefused) {
  for (const char* text : {"write", "write:EIO", "write:EWHAT:1", "sometimes:EIO:1", "read:EIO:0", "read:EIO:1@16",
                           "read:EIO:1@1-0", "late:5:sometimes", "late:0:write:EIO:1"}) {
    EXPECT_EQ(make_faulty_store(nullptr, {}, text), nullptr) << text;
  }
}

TEST(StoreDeathTest, AllFaultsThatThereAreAreNamed) {
  setenv("HEADROOM_STORE_FAULT", "never", 1);
  test::set_environment("64M", "auto");
  const auto files = open_store_files();
  ASSERT_TRUE(files.ok());
  EXPECT_EXIT((void)make_store(files.value), testing::ExitedWithCode(2),
              "read\\|write:ERRNO:N.*slow:EACH_US:BLOCK_US.*late:US");
  unsetenv("HEADROOM_STORE_FAULT");
}

template <size_t kLength>
bool filter_calls(sock_filter (&program)[kLength]) {
  const sock_fprog filter = {kLength, program};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

/// From now on the kernel refuses this call, as a container's profile would.
bool refuse(uint32_t call) {
  sock_filter program[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                           BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
                           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  return filter_calls(program);
}

/// From now on no file can be opened for direct I/O, as on file systems without it. (Which of these there are differs between
/// kernels: a tmpfs takes it since Linux 6.6.)
bool refuse_direct_io() {
  sock_filter program[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                           BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 3),
                           BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[2])),
                           BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_DIRECT, 0, 1),
                           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
                           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  return filter_calls(program);
}

TEST(StoreDeathTest, DirectIoThatIsAskedForAndCannotBeHadEndsTheRun) {
  setenv("HEADROOM_STORE_DIRECT", "on", 1);
  EXPECT_EXIT(
      {
        test::set_environment("64M", "auto");
        if (refuse_direct_io()) {
          (void)start();
        }
        _exit(0);
      },
      testing::ExitedWithCode(2),
      "--store-direct on: .*/var/tmp refuses direct I/O.*--store-direct auto.*cannot use the storage");
}

TEST(StoreDeathTest, WithoutDirectIoStorageGoesThroughThePageCacheAndThatIsSaid) {
  unsetenv("HEADROOM_STORE_DIRECT");
  EXPECT_EXIT(
      {
        test::set_environment("64M", "auto");
        if (refuse_direct_io()) {
          const auto files = open_store_files();
          _exit(files.ok() && !files.value.direct ? 3 : 0);
        }
      },
      testing::ExitedWithCode(3), "/var/tmp refuses direct I/O; .*page cache.*choose a local disk");
}

TEST(StoreDeathTest, IoUringThatIsRefusedLaterNamesCauseAndRemedy) {
  test::set_environment("64M", "auto");
  const auto files = open_store_files();
  ASSERT_TRUE(files.ok());
  if (make_io_uring_store(files.value) == nullptr) {
    GTEST_SKIP() << "the kernel refuses io_uring here";
  }
  Memory memory(kPiece);
  EXPECT_EXIT(
      {
        Store* store = make_io_uring_store(files.value);
        if (refuse(SYS_io_uring_enter)) {
          store->submit({true, 0, memory.address, kPiece, 0});
        }
        _exit(0);
      },
      testing::ExitedWithCode(2), "io_uring_enter failed: Operation not permitted.*seccomp.*--store threads");
}

TEST(StoreDeathTest, ADirectoryThatDoesNotExistIsNamed) {
  test::set_environment("64M", "auto");
  setenv("HEADROOM_STORAGE", "/no/such/directory", 1);
  base::load_settings();
  EXPECT_EXIT(
      {
        if (!open_store_files().ok()) {
          _exit(3);
        }
      },
      testing::ExitedWithCode(3), "/no/such/directory.*--storage");
}

}  // namespace
}  // namespace headroom::pager
