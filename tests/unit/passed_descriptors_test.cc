// Descriptors that are passed through sockets: all that were expected, or none, and then none stays open.
#include "base/passed_descriptors.h"

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace headroom {
namespace {

int open_descriptors() {
  int count = 0;
  DIR* folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) {
    ++count;
  }
  closedir(folder);
  return count;
}

class PassedDescriptors : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends_), 0);
    for (int& file : files_) {
      file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    }
    before_ = open_descriptors();
  }
  void TearDown() override {
    for (const int descriptor : {ends_[0], ends_[1], files_[0], files_[1], files_[2]}) {
      close(descriptor);
    }
  }
  int ends_[2] = {};
  int files_[3] = {};
  int before_ = 0;
};

TEST_F(PassedDescriptors, ComeAllTogether) {
  ASSERT_TRUE(base::send_descriptors(ends_[0], 'x', files_));
  int received[3] = {-1, -1, -1};
  const base::ReceivedDescriptors result = base::receive_descriptors(ends_[1], 0, received);
  EXPECT_EQ(result.result, 1);
  EXPECT_EQ(result.byte, 'x');
  ASSERT_TRUE(result.has_all);
  EXPECT_EQ(open_descriptors(), before_ + 3);
  for (const int descriptor : received) {
    EXPECT_EQ(fcntl(descriptor, F_GETFD), FD_CLOEXEC);
    close(descriptor);
  }
}

TEST_F(PassedDescriptors, FewerThanExpectedAreClosed) {
  ASSERT_TRUE(base::send_descriptors(ends_[0], 'x', {files_[0], files_[1]}));
  int received[3] = {-1, -1, -1};
  const base::ReceivedDescriptors result = base::receive_descriptors(ends_[1], 0, received);
  EXPECT_EQ(result.result, 1);
  EXPECT_FALSE(result.has_all);
  EXPECT_EQ(received[0], -1);
  EXPECT_EQ(open_descriptors(), before_);
}

TEST_F(PassedDescriptors, MoreThanExpectedAreClosed) {
  ASSERT_TRUE(base::send_descriptors(ends_[0], 'x', files_));
  int received[1] = {-1};
  const base::ReceivedDescriptors result = base::receive_descriptors(ends_[1], 0, received);
  EXPECT_FALSE(result.has_all);
  EXPECT_EQ(open_descriptors(), before_);
}

TEST_F(PassedDescriptors, AnotherWordComesWithNone) {
  ASSERT_EQ(write(ends_[0], "S", 1), 1);
  int received[1] = {-1};
  const base::ReceivedDescriptors result = base::receive_descriptors(ends_[1], 0, received);
  EXPECT_EQ(result.result, 1);
  EXPECT_EQ(result.byte, 'S');
  EXPECT_FALSE(result.has_all);
  close(ends_[0]);
  EXPECT_EQ(base::receive_descriptors(ends_[1], MSG_DONTWAIT, received).result, 0);
  ends_[0] = dup(ends_[1]);
}

}  // namespace
}  // namespace headroom
