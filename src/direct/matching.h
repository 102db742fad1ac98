// Matching: finding the receive that a message belongs to.
//
// Each process matches for itself what arrives for it, in private memory: posted receives wait in one queue, messages that
// nobody has asked for yet in another. MPI's order holds because messages of one sender arrive in the order in which they were
// sent (channel.h), receives are numbered in the order in which they are posted, and of several that fit the earliest is taken.
//
// Ten thousand entries must not cost ten thousand comparisons, with wildcards or without. So entries are found by hash, in
// FIFO order within a bucket: receives lie in one of four indexes, by which of source and tag they leave open, and a message
// looks into those that are not empty; a message lies in up to four indexes, for the four kinds of receive that may ask for it.
// The exact one always exists; the others are built when a receive of their kind is first seen.
//
// Not thread-safe: the caller has a lock. Entries belong to the caller; tables are private memory that never pages.
#pragma once

#include <cstdint>

#include "base/system_calls.h"

namespace headroom::direct {

inline constexpr int32_t kAny = -1;

/// The values by which messages and receives are compared. `source` is a rank of the communicator, `context` stands for the
/// communicator.
struct Envelope {
  uint64_t context;
  int32_t source;  // kAny: a receive from anybody
  int32_t tag;     // kAny: any tag; tags themselves are not negative
};

/// The parts of source and tag that a receive leaves open; also the number of the index that serves it.
enum OpenParts : unsigned { kExact = 0, kAnySource = 1, kAnyTag = 2, kAnyBoth = 3 };
inline constexpr unsigned kIndexes = 4;

inline unsigned open_parts(const Envelope& wanted) {
  return (wanted.source == kAny ? kAnySource : 0U) | (wanted.tag == kAny ? kAnyTag : 0U);
}

template <typename Entry>
struct Hook {
  Entry* next = nullptr;
  Entry* previous = nullptr;
};

/// A hash table of entries by the parts of their envelopes that `open` does not leave open.
template <typename Entry>
class Index {
 public:
  ~Index() { drop(buckets_, room_); }
  Index() = default;
  Index(const Index&) = delete;
  Index& operator=(const Index&) = delete;

  void set_open(unsigned open) { open_ = open; }
  [[nodiscard]] uint64_t count() const { return count_; }

  void append(Entry* entry) {
    if (count_ >= room_) {
      grow();
    }
    Bucket& bucket = bucket_of(entry->envelope);
    Hook<Entry>& hook = entry->hooks[open_];
    hook = {nullptr, bucket.last};
    (bucket.last != nullptr ? bucket.last->hooks[open_].next : bucket.first) = entry;
    bucket.last = entry;
    ++count_;
  }

  void remove(Entry* entry) {
    Bucket& bucket = bucket_of(entry->envelope);
    const Hook<Entry>& hook = entry->hooks[open_];
    (hook.previous != nullptr ? hook.previous->hooks[open_].next : bucket.first) = hook.next;
    (hook.next != nullptr ? hook.next->hooks[open_].previous : bucket.last) = hook.previous;
    --count_;
  }

  /// The earliest entry whose parts are `wanted`'s, or nullptr. `comparisons` is counted up.
  Entry* find(const Envelope& wanted, uint64_t& comparisons) {
    if (count_ == 0) {
      return nullptr;
    }
    for (Entry* entry = bucket_of(wanted).first; entry != nullptr; entry = entry->hooks[open_].next) {
      ++comparisons;
      if (is_same(entry->envelope, wanted)) {
        return entry;
      }
    }
    return nullptr;
  }

 private:
  struct Bucket {
    Entry* first;
    Entry* last;
  };

  [[nodiscard]] bool is_same(const Envelope& one, const Envelope& other) const {
    return one.context == other.context && ((open_ & kAnySource) != 0 || one.source == other.source) &&
           ((open_ & kAnyTag) != 0 || one.tag == other.tag);
  }

  [[nodiscard]] uint64_t hash(const Envelope& envelope) const {
    uint64_t value = envelope.context;
    value ^= (open_ & kAnySource) != 0 ? 0 : uint64_t{static_cast<uint32_t>(envelope.source)} * 0x9e3779b97f4a7c15;
    value ^= (open_ & kAnyTag) != 0 ? 0 : (uint64_t{static_cast<uint32_t>(envelope.tag)} + 1) * 0xc2b2ae3d27d4eb4f;
    value *= 0xff51afd7ed558ccd;
    return value ^ (value >> 32);
  }

  Bucket& bucket_of(const Envelope& envelope) { return buckets_[hash(envelope) & (room_ - 1)]; }

  /// Doubles the table; where there are no addresses for that, the old one goes on serving, more slowly.
  void grow() {
    const uint64_t old_room = room_;
    Bucket* const old = buckets_;
    const uint64_t new_room = old_room != 0 ? 2 * old_room : kFirstRoom;
    auto* bigger = old_room != 0 ? static_cast<Bucket*>(base::reserve_memory(new_room * sizeof(Bucket))) : first_buckets_;
    if (bigger == nullptr) {
      return;
    }
    buckets_ = bigger;
    room_ = new_room;
    count_ = 0;
    for (uint64_t index = 0; index < old_room; ++index) {
      for (Entry* entry = old[index].first; entry != nullptr;) {
        Entry* const next = entry->hooks[open_].next;
        append(entry);
        entry = next;
      }
    }
    drop(old, old_room);
  }

  void drop(Bucket* buckets, uint64_t room) {
    if (buckets != nullptr && buckets != first_buckets_) {
      base::give_back_memory(buckets, room * sizeof(Bucket));
    }
  }

  static constexpr uint64_t kFirstRoom = 16;

  unsigned open_ = kExact;
  uint64_t count_ = 0;
  uint64_t room_ = 0;
  Bucket* buckets_ = nullptr;
  Bucket first_buckets_[kFirstRoom] = {};
};

/// Base of a receive that waits for a message.
struct PostedReceive {
  Envelope envelope = {};
  uint64_t order = 0;
  Hook<PostedReceive> hooks[kIndexes];  // only the one of its own kind is used
};

/// Base of a message that arrived before anybody asked for it.
struct UnexpectedMessage {
  Envelope envelope = {};
  uint64_t order = 0;
  Hook<UnexpectedMessage> hooks[kIndexes];
  Hook<UnexpectedMessage> arrival;
};

class PostedQueue {
 public:
  PostedQueue();
  void append(PostedReceive* receive);
  /// The earliest receive that a message with this envelope fits, or nullptr; it stays in the queue.
  PostedReceive* find(const Envelope& message);
  void remove(PostedReceive* receive);
  [[nodiscard]] uint64_t count() const { return count_; }
  [[nodiscard]] uint64_t comparisons() const { return comparisons_; }

 private:
  Index<PostedReceive> indexes_[kIndexes];
  uint64_t count_ = 0;  // in all of them: asked at each message
  uint64_t next_order_ = 0;
  uint64_t comparisons_ = 0;
};

class UnexpectedQueue {
 public:
  UnexpectedQueue();
  void append(UnexpectedMessage* message);
  /// The earliest message that a receive with this envelope takes, or nullptr; it stays in the queue.
  UnexpectedMessage* find(const Envelope& wanted);
  void remove(UnexpectedMessage* message);
  [[nodiscard]] uint64_t count() const { return indexes_[kExact].count(); }
  /// The first in the order of arrival, or nullptr; `arrival` leads on.
  [[nodiscard]] UnexpectedMessage* first() const { return first_; }
  [[nodiscard]] uint64_t comparisons() const { return comparisons_; }

 private:
  void build(unsigned open);

  Index<UnexpectedMessage> indexes_[kIndexes];
  bool built_[kIndexes] = {true, false, false, false};
  UnexpectedMessage* first_ = nullptr;  // in order of arrival
  UnexpectedMessage* last_ = nullptr;
  uint64_t comparisons_ = 0;
};

}  // namespace headroom::direct
