// The connections by which ranks on other nodes are seen to end (rpipe/death_watch.h), without any messages beside them.
#include "rpipe/death_watch.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace headroom::test {
namespace {

using rpipe::DeathWatch;

constexpr uint64_t kNonce = 0x1234;

sockaddr_in6 loopback(uint16_t port = 0) {
  sockaddr_in6 address = {};
  auto& in = reinterpret_cast<sockaddr_in&>(address);
  in.sin_family = AF_INET;
  in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  in.sin_port = port;
  return address;
}

/// The ranks of which `watch` hears, until there is one or a while has passed.
struct Heard {
  std::vector<int> ended, refused;
};
Heard hear(DeathWatch& watch, DeathWatch* other = nullptr, int tries = 200) {
  Heard heard;
  Heard of_other;
  while (heard.ended.empty() && heard.refused.empty() && tries-- > 0) {
    watch.move(heard.ended, heard.refused);
    if (other != nullptr) {
      other->move(of_other.ended, of_other.refused);
    }
    usleep(1000);
  }
  EXPECT_TRUE(of_other.ended.empty() && of_other.refused.empty());
  return heard;
}

/// A port at which nobody listens.
uint16_t free_port() {
  DeathWatch watch;
  EXPECT_EQ(0, watch.begin(loopback(), kNonce));
  return watch.port();
}

int connect_to(uint16_t port) {
  const int made = socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in6 address = loopback(port);
  EXPECT_EQ(0, connect(made, reinterpret_cast<const sockaddr*>(&address), sizeof(sockaddr_in)));
  return made;
}

TEST(RpipeDeathWatch, BothSidesHearOfAnEnd) {
  for (const bool connecting_one_ends : {false, true}) {
    auto listens = std::make_unique<DeathWatch>();
    auto connects = std::make_unique<DeathWatch>();
    ASSERT_EQ(0, listens->begin(loopback(), kNonce));
    ASSERT_EQ(0, connects->begin(loopback(), kNonce + 1));
    EXPECT_TRUE(connects->watch(3, 5, loopback(listens->port()), kNonce));
    const Heard before = hear(*listens, connects.get());
    EXPECT_TRUE(before.ended.empty() && before.refused.empty());
    (connecting_one_ends ? connects : listens).reset();
    const Heard heard = hear(connecting_one_ends ? *listens : *connects);
    EXPECT_EQ(std::vector{connecting_one_ends ? 3 : 5}, heard.ended);
    EXPECT_TRUE(heard.refused.empty());
  }
}

TEST(RpipeDeathWatch, ARefusalIsHeard) {
  DeathWatch connects;
  ASSERT_EQ(0, connects.begin(loopback(), kNonce));
  EXPECT_TRUE(connects.watch(0, 7, loopback(free_port()), kNonce));
  const Heard heard = hear(connects);
  EXPECT_EQ(std::vector{7}, heard.refused);
  EXPECT_TRUE(heard.ended.empty());
}

TEST(RpipeDeathWatch, StrangersAreNobody) {
  DeathWatch listens;
  DeathWatch stranger;
  ASSERT_EQ(0, listens.begin(loopback(), kNonce));
  ASSERT_EQ(0, stranger.begin(loopback(), kNonce));
  EXPECT_TRUE(stranger.watch(3, 5, loopback(listens.port()), kNonce + 1));  // of another job
  const int silent = connect_to(listens.port());
  const int short_of_words = connect_to(listens.port());
  EXPECT_EQ(5, write(short_of_words, "hello", 5));
  Heard of_stranger;
  for (int tries = 0; tries < 50; ++tries) {  // its greeting is sent, and refused
    stranger.move(of_stranger.ended, of_stranger.refused);
    EXPECT_TRUE(hear(listens, nullptr, 1).ended.empty());
  }
  EXPECT_EQ(std::vector{5}, of_stranger.ended);
  stranger.close_copies();
  close(silent);
  close(short_of_words);
  const Heard heard = hear(listens, nullptr, 50);
  EXPECT_TRUE(heard.ended.empty() && heard.refused.empty());
}

TEST(RpipeDeathWatch, AChildThatClosesItsCopiesDoesNotHideAnEnd) {
  auto listens = std::make_unique<DeathWatch>();
  DeathWatch connects;
  ASSERT_EQ(0, listens->begin(loopback(), kNonce));
  ASSERT_EQ(0, connects.begin(loopback(), kNonce));
  EXPECT_TRUE(connects.watch(3, 5, loopback(listens->port()), kNonce));
  (void)hear(*listens, &connects, 50);
  int closed[2];
  int may_end[2];
  ASSERT_TRUE(pipe(closed) == 0 && pipe(may_end) == 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  char word = 'x';
  if (child == 0) {
    listens->close_copies();
    (void)!write(closed[1], &word, 1);
    close(may_end[1]);
    (void)!read(may_end[0], &word, 1);
    _exit(0);
  }
  ASSERT_EQ(1, read(closed[0], &word, 1));
  listens.reset();
  EXPECT_EQ(std::vector{5}, hear(connects).ended);
  close(may_end[1]);
  EXPECT_EQ(child, waitpid(child, nullptr, 0));
}

/// Those of libfabric's variables, which say what a firewall lets through; if all are taken, any other.
TEST(RpipeDeathWatch, PortsAreOfTheRangeThatLibfabricIsTold) {
  for (int tries = 0; tries < 100; ++tries) {
    const int first = 20000 + (getpid() + tries * 17) % 10000;
    setenv("FI_TCP_PORT_LOW_RANGE", std::to_string(first).c_str(), 1);
    setenv("FI_TCP_PORT_HIGH_RANGE", std::to_string(first + 1).c_str(), 1);
    DeathWatch watches[3];
    for (DeathWatch& watch : watches) {
      ASSERT_EQ(0, watch.begin(loopback(), kNonce));
      ASSERT_NE(0, watch.port());
    }
    EXPECT_TRUE(ntohs(watches[2].port()) != first && ntohs(watches[2].port()) != first + 1);
    unsetenv("FI_TCP_PORT_LOW_RANGE");
    unsetenv("FI_TCP_PORT_HIGH_RANGE");
    if (ntohs(watches[0].port()) == first && ntohs(watches[1].port()) == first + 1) {
      return;
    }
  }  // another process had one of the two each time
  FAIL();
}

}  // namespace
}  // namespace headroom::test
