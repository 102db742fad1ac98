// Ranks of a collective call in one process: each is a Call, messages are copies, and the file is memory that can be made to
// fail.
#pragma once

#include <gtest/gtest.h>
#include <string.h>

#include <algorithm>
#include <list>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

#include "collio/call.h"
#include "collio/pattern.h"

namespace headroom::collio {

/// Messages between ranks: those of a pair with one tag are matched in order, as MPI says.
class Mail {
 public:
  explicit Mail(int ranks) : slots_(static_cast<size_t>(ranks)) {}

  void post(int from, int to, int tag, const void* out, void* into, int64_t bytes, int owner, int slot) {
    auto& slots = slots_[static_cast<size_t>(owner)];
    if (slots.size() <= static_cast<size_t>(slot)) {
      slots.resize(static_cast<size_t>(slot) + 1);
    }
    ASSERT_TRUE(slots[static_cast<size_t>(slot)].done) << "a slot has one transfer at a time";
    slots[static_cast<size_t>(slot)] = {false, 0};
    auto& others = out != nullptr ? receives_ : sends_;
    for (auto other = others.begin(); other != others.end(); ++other) {
      if (other->from == from && other->to == to && other->tag == tag) {
        const int64_t room = out != nullptr ? other->bytes : bytes;
        const int64_t length = out != nullptr ? bytes : other->bytes;
        ASSERT_LE(length, room) << "truncated";
        memcpy(out != nullptr ? other->into : into, out != nullptr ? out : other->out, static_cast<size_t>(length));
        slots[static_cast<size_t>(slot)] = {true, length};
        slots_[static_cast<size_t>(other->owner)][static_cast<size_t>(other->slot)] = {true, length};
        others.erase(other);
        ++messages;
        return;
      }
    }
    (out != nullptr ? sends_ : receives_).push_back({from, to, tag, out, into, bytes, owner, slot});
  }
  bool test(int owner, int slot, int64_t* bytes) {
    auto& slots = slots_[static_cast<size_t>(owner)];
    if (slots.size() <= static_cast<size_t>(slot)) {
      return true;
    }
    if (bytes != nullptr) {
      *bytes = slots[static_cast<size_t>(slot)].bytes;
    }
    return slots[static_cast<size_t>(slot)].done;
  }
  [[nodiscard]] bool is_empty() const { return sends_.empty() && receives_.empty(); }

  int64_t messages = 0;

 private:
  struct Posted {
    int from, to, tag;
    const void* out;
    void* into;
    int64_t bytes;
    int owner, slot;
  };
  struct Slot {
    bool done = true;
    int64_t bytes = 0;
  };
  std::list<Posted> sends_;
  std::list<Posted> receives_;
  std::vector<std::vector<Slot>> slots_;
};

struct Mailbox {
  Mail* mail;
  int rank;
};

inline Messages messages_of(Mailbox& box) {
  Messages messages = {};
  messages.context = &box;
  messages.send = [](void* context, int slot, int rank, int tag, const void* from, int64_t bytes) {
    auto& own = *static_cast<Mailbox*>(context);
    own.mail->post(own.rank, rank, tag, from, nullptr, bytes, own.rank, slot);
  };
  messages.receive = [](void* context, int slot, int rank, int tag, void* into, int64_t bytes) {
    auto& own = *static_cast<Mailbox*>(context);
    own.mail->post(rank, own.rank, tag, nullptr, into, bytes, own.rank, slot);
  };
  messages.test = [](void* context, int slot, int64_t* bytes) {
    auto& own = *static_cast<Mailbox*>(context);
    return own.mail->test(own.rank, slot, bytes);
  };
  return messages;
}

/// A file in memory, whose n-th job may fail.
struct MemoryFile {
  std::mutex lock;
  std::vector<unsigned char> bytes;
  int64_t reads = 0;
  int64_t writes = 0;
  int64_t failing_read = -1;
  int64_t failing_write = -1;
  int64_t read_bytes = 0;
};

/// The file that accesses are about: FileAccess has no room for more than a number.
inline MemoryFile& the_file() {
  static MemoryFile file;
  return file;
}

inline FileAccess memory_file() {
  FileAccess access = {};
  access.read = [](const FileAccess&, char* to, int64_t bytes, int64_t position) -> int64_t {
    MemoryFile& file = the_file();
    const std::lock_guard<std::mutex> guard(file.lock);
    if (file.reads++ == file.failing_read) {
      return -EIO;
    }
    const auto size = static_cast<int64_t>(file.bytes.size());
    const int64_t got = std::clamp<int64_t>(size - position, 0, bytes);
    memcpy(to, file.bytes.data() + (got > 0 ? position : 0), static_cast<size_t>(got));
    file.read_bytes += got;
    return got;
  };
  access.write = [](const FileAccess&, const char* from, int64_t bytes, int64_t position) -> int {
    MemoryFile& file = the_file();
    const std::lock_guard<std::mutex> guard(file.lock);
    if (file.writes++ == file.failing_write) {
      return ENOSPC;
    }
    if (static_cast<int64_t>(file.bytes.size()) < position + bytes) {
      file.bytes.resize(static_cast<size_t>(position + bytes));
    }
    memcpy(file.bytes.data() + position, from, static_cast<size_t>(bytes));
    return 0;
  };
  access.push = [](const FileAccess&, int64_t, int64_t) {};
  access.drop = [](const FileAccess&, int64_t, int64_t) -> int { return 0; };
  access.lock = [](const FileAccess&, int64_t, int64_t) {};
  access.unlock = access.lock;
  return access;
}

/// One rank's access, and the places of its bytes in the file.
struct RankAccess {
  Pattern pattern;
  ViewOfPieces view;
  Opening opening;
  std::vector<int64_t> places;
  std::vector<char> memory;

  ~RankAccess() { clear(pattern); }
};

}  // namespace headroom::collio
