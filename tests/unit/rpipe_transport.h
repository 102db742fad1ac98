// A way for content between ranks of a test that are apart: for each pair, direction and tag a stream of bytes in memory that
// both have, of 64 KiB, so that long messages go in many steps.
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <tuple>

#include "headroom/rpipe.h"
#include "rpipe/transport.h"

namespace headroom::test {

struct ByteStream {
  static constexpr uint64_t kBytes = 64 << 10;
  std::atomic<uint64_t> written, read;
  char bytes[kBytes];

  uint64_t put(const char* from, uint64_t count) {
    const uint64_t at = written.load();
    count = std::min(count, kBytes - (at - read.load()));
    const uint64_t first = std::min(count, kBytes - at % kBytes);
    memcpy(bytes + at % kBytes, from, first);
    memcpy(bytes, from + first, count - first);
    written.store(at + count);
    return count;
  }
  uint64_t get(char* into, uint64_t count) {
    const uint64_t at = read.load();
    count = std::min(count, written.load() - at);
    const uint64_t first = std::min(count, kBytes - at % kBytes);
    memcpy(into, bytes + at % kBytes, first);
    memcpy(into + first, bytes, count - first);
    read.store(at + count);
    return count;
  }
};

constexpr int kMostApart = 8;
constexpr int kTags = 3;

/// What the ranks share.
struct Mail {
  ByteStream streams[kMostApart][kMostApart][kTags];
  std::atomic<int> at_end;
  uint64_t sent[kMostApart][kMostApart];  // frames, by receiver and sender
};

/// The transport of this process.
class TestTransport {
 public:
  static void begin(Mail& mail, int self) {
    box = &mail;
    own = self;
  }
  static const rpipe_transport* table() {
    static const rpipe_transport transport = {.backend = RPIPE_MPI,
                                              .name = "the test",
                                              .failure = "cannot be reached any more: MPI has ended, or failed",
                                              .moves_by_itself = nullptr,
                                              .move = nullptr,
                                              .may_call = may_call,
                                              .send = send,
                                              .receive = receive,
                                              .test = test,
                                              .cancel = cancel,
                                              .at_end = at_end,
                                              .end = nullptr,
                                              .leave_to_parent = nullptr};
    return &transport;
  }
  /// From now on nothing can be sent.
  static void fail() { fails = true; }
  /// The next frame never arrives, and nobody is told.
  static void lose_next_frame() { loses_frame = true; }
  /// As MPI_Finalize() does.
  static void end(int ranks) {
    if (calls == nullptr) {
      return;
    }
    while (calls->move(1) == 0) {
    }
    for (int rank = 0; rank < ranks; ++rank) {
      box->sent[rank][own] = calls->sent_to(rank);
    }
    for (++box->at_end; box->at_end.load() < ranks;) {
      (void)calls->move(0);
    }
    while (calls->look_for_received(box->sent[own]) == 0) {
      (void)calls->move(0);
    }
    calls->stop();
  }

 private:
  struct Message {
    uint64_t request;
    char* at;
    uint64_t room, length, moved;
    bool has_length;
  };
  struct Queue {
    int rank, tag;
    bool sends;
    bool operator<(const Queue& other) const {
      return std::tie(rank, tag, sends) < std::tie(other.rank, other.tag, other.sends);
    }
  };

  /// Content comes in the order of its frames here.
  static int stream_of(int tag) { return tag % 4; }
  static int may_call(int /*expects_it*/) { return 1; }
  static int send(int rank, int tag, const void* from, size_t bytes, uint64_t* request) {
    if (fails) {
      return -EIO;
    }
    if (loses_frame && tag == RPIPE_TAG_OF_FRAMES) {
      loses_frame = false;
      *request = 0;
      return 0;
    }
    return add({rank, stream_of(tag), true}, {0, const_cast<char*>(static_cast<const char*>(from)), bytes, bytes, 0, false},
               request);
  }
  static int receive(int rank, int tag, void* into, size_t bytes, uint64_t* request) {
    return add({rank, stream_of(tag), false}, {0, static_cast<char*>(into), bytes, 0, 0, false}, request);
  }
  static int add(Queue queue, Message message, uint64_t* request) {
    static uint64_t last = 0;
    *request = message.request = ++last;
    queues[queue].push_back(message);
    pending[last] = queue;
    return 0;
  }
  static int test(uint64_t* request) {
    const auto found = pending.find(*request);
    if (found == pending.end()) {
      return 1;
    }
    const Queue queue = found->second;
    while (!queues[queue].empty() && step(queue, queues[queue].front())) {
      pending.erase(queues[queue].front().request);
      queues[queue].pop_front();
    }
    return pending.contains(*request) ? 0 : 1;
  }
  /// True: the message is over.
  static bool step(const Queue& queue, Message& message) {
    ByteStream& stream = queue.sends ? box->streams[own][queue.rank][queue.tag] : box->streams[queue.rank][own][queue.tag];
    auto* const length = reinterpret_cast<char*>(&message.length);
    if (!message.has_length) {
      message.moved += queue.sends ? stream.put(length + message.moved, 8 - message.moved)
                                   : stream.get(length + message.moved, 8 - message.moved);
      message.has_length = message.moved == 8;
      message.moved = message.has_length ? 0 : message.moved;
      if (message.has_length && message.length > message.room) {
        abort();
      }
    }
    if (message.has_length) {
      const uint64_t left = message.length - message.moved;
      message.moved +=
          queue.sends ? stream.put(message.at + message.moved, left) : stream.get(message.at + message.moved, left);
    }
    return message.has_length && message.moved == message.length;
  }
  static void cancel(uint64_t* request) { pending.erase(*request); }
  static void at_end(const rpipe_at_end* given) { calls = given; }

  static inline Mail* box = nullptr;
  static inline int own = 0;
  static inline bool fails = false;
  static inline bool loses_frame = false;
  static inline std::map<Queue, std::deque<Message>> queues;
  static inline std::map<uint64_t, Queue> pending;
  static inline const rpipe_at_end* calls = nullptr;
};

}  // namespace headroom::test
