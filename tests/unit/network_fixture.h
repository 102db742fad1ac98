// Two endpoints in one process, each alone on a node of its own, and a network between them that delays what it carries at
// random, as an MPI library may: records between two come in order, pieces when their receiver has asked.
#pragma once

#include <deque>
#include <list>
#include <mutex>
#include <random>

#include "direct/between_nodes.h"
#include "endpoint_fixture.h"
#include "seed.h"

namespace headroom::direct {

/// The network's functions are told nothing of who calls: the thread knows.
inline thread_local int acting = 0;

class Network {
 public:
  struct Transfer {
    int from;
    int to;
    int tag;
    const char* source;
    char* target;
    uint64_t bytes;
    Transfer* partner;
    bool done;
  };

  static Network& instance() {
    static Network network;
    return network;
  }
  static NetworkFunctions functions() {
    return {[](int rank, const void* record, uint64_t bytes) { return instance().send(rank, 0, record, bytes); },
            [](int rank, int tag, const void* from, uint64_t bytes) { return instance().send(rank, tag, from, bytes); },
            [](int rank, int tag, void* into, uint64_t bytes) { return instance().receive(rank, tag, into, bytes); },
            [](NetworkTransfer* transfer) { return instance().test(transfer); },
            [](int& rank, uint64_t& bytes) { return instance().next_record(rank, bytes); }};
  }
  /// Records that nobody has taken yet.
  size_t records_under_way() {
    const std::lock_guard lock(mutex_);
    return records_[0].size() + records_[1].size();
  }
  size_t most_records = 0;  // at one time

 private:
  NetworkTransfer* send(int rank, int tag, const void* from, uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    auto* const one = new Transfer{acting, rank, tag, static_cast<const char*>(from), nullptr, bytes, nullptr, false};
    if (tag == 0) {
      records_[rank].push_back(one);
      most_records = std::max(most_records, records_[rank].size());
    } else {
      pair(one);
    }
    return reinterpret_cast<NetworkTransfer*>(one);
  }
  NetworkTransfer* receive(int rank, int tag, void* into, uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    auto* const one = new Transfer{rank, acting, tag, nullptr, static_cast<char*>(into), bytes, nullptr, false};
    pair(one);
    return reinterpret_cast<NetworkTransfer*>(one);
  }
  void pair(Transfer* one) {
    for (auto it = alone_.begin(); it != alone_.end(); ++it) {
      Transfer& other = **it;
      const bool fit = other.from == one->from && other.to == one->to && other.tag == one->tag;
      if (fit && (other.source == nullptr) != (one->source == nullptr)) {
        EXPECT_EQ(other.bytes, one->bytes);
        other.partner = one;
        one->partner = &other;
        alone_.erase(it);
        return;
      }
    }
    alone_.push_back(one);
  }
  bool test(NetworkTransfer* transfer) {
    const std::lock_guard lock(mutex_);
    auto* const one = reinterpret_cast<Transfer*>(transfer);
    if (!one->done && one->partner != nullptr && random_() % 2 == 0) {
      Transfer* const other = one->partner;
      const Transfer& source = one->source != nullptr ? *one : *other;
      memcpy((one->source != nullptr ? other : one)->target, source.source, source.bytes);
      one->done = other->done = true;
    }
    const bool done = one->done;
    if (done) {
      delete one;
    }
    return done;
  }
  const void* next_record(int& rank, uint64_t& bytes) {
    const std::lock_guard lock(mutex_);
    std::deque<Transfer*>& queue = records_[acting];
    if (queue.empty() || random_() % 3 == 0) {
      return nullptr;
    }
    Transfer* const one = queue.front();
    queue.pop_front();
    rank = one->from;
    bytes = one->bytes;
    memcpy(landed_[acting], one->source, bytes);
    one->done = true;
    return landed_[acting];
  }

  std::mutex mutex_;
  std::mt19937 random_{headroom::test::seed_of(11)};
  std::deque<Transfer*> records_[2];
  std::list<Transfer*> alone_;
  alignas(64) char landed_[2][kRecordBytes] = {};
};

class TwoNodes : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int rank = 0; rank < 2; ++rank) {
      Node& node = nodes[rank];
      node.file = memfd_create("messages", 0);
      node.ledger = static_cast<node::Ledger*>(
          mmap(nullptr, sizeof(node::Ledger), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
      node.ledger->budget = kBudget;
      node.ledger->places = node::kFewestPlaces;
      node::note_used_places(*node.ledger, 1);
      node.ledger->free_bytes.store(kBudget);
      constexpr uint64_t kAlignment = 1 << 20;
      void* const place = mmap(nullptr, kAreaBytes + kAlignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      ASSERT_NE(MAP_FAILED, place);
      node.mapped = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(place) + kAlignment) & ~(kAlignment - 1));
      ASSERT_EQ(0, ftruncate(node.file, kAreaBytes));
      constexpr int kProtection = PROT_READ | PROT_WRITE;
      ASSERT_NE(MAP_FAILED, mmap(node.mapped, kAreaBytes, kProtection, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, node.file, 0));
      node.ledger->members[0].pid.store(getpid());
      node.session.ledger = node.ledger;
      node.session.self = &node.ledger->members[0];
      node.session.index = 0;
      node.session.messages_descriptor = node.file;
      node.end = std::make_unique<Endpoint>();
      ASSERT_TRUE(node.end->open(node.session, nullptr, 0, node.mapped));
      node.end->begin_between_nodes(Network::functions(), 2);
    }
  }
  void TearDown() override {
    for (Node& node : nodes) {
      munmap(node.ledger, sizeof(node::Ledger));
      munmap(node.mapped, kAreaBytes);
      close(node.file);
    }
  }

  /// From now on this thread is of that rank.
  Endpoint& at(int rank) {
    acting = rank;
    return *nodes[rank].end;
  }
  SendOutcome send(int from, int32_t tag, const std::vector<char>& content, SendKind kind, Sending*& sending) {
    return at(from).send(member_of_rank(1 - from), {9, from, tag}, {const_cast<char*>(content.data()), content.size(), nullptr},
                         kind, 0, sending);
  }
  /// Until both need nothing more of each other.
  void settle() {
    for (int quiet = 0; quiet < 50; ++quiet) {
      for (int rank = 0; rank < 2; ++rank) {
        quiet = at(rank).progress() || !at(rank).is_drained() ? 0 : quiet;
      }
    }
  }
  /// The same where something is left for ever: so many rounds.
  void go_on(int rounds = 300) {
    for (int round = 0; round < rounds; ++round) {
      (void)at(round % 2).progress();
      (void)at(round % 2).is_drained();  // looks at the network, too
    }
  }

  struct Node {
    int file = -1;
    char* mapped = nullptr;
    node::Ledger* ledger = nullptr;
    node::Session session;
    std::unique_ptr<Endpoint> end;
  };
  static constexpr int64_t kBudget = int64_t{1} << 30;
  Node nodes[2];
};

}  // namespace headroom::direct
