// Frames and content on their way to and from ranks on other nodes.
//
// A frame is copied into a slot when it is sent, with the content behind it; longer content is sent from where it lies, in
// messages of its own right after the frame. Of each rank that is heard, receives for some frames are posted; a frame that
// says that content follows is answered by receives into the place that the handler names. Slots lie in memory that never goes
// to storage: the transport may hand it to the kernel.
//
// Nothing here waits. Not thread-safe: mirror.cc has the lock.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "rpipe/frames.h"
#include "rpipe/memory_file.h"
#include "rpipe/transport.h"

namespace headroom::rpipe {

/// Is told of frames and content that came.
class FrameHandler {
 public:
  FrameHandler() = default;
  virtual ~FrameHandler() = default;
  FrameHandler(const FrameHandler&) = delete;
  FrameHandler& operator=(const FrameHandler&) = delete;
  /// `content`: that behind the frame; nullptr: it follows, and this says where to; nullptr again: it is dropped.
  virtual char* handle_frame(int rank, const Frame& frame, const char* content) = 0;
  /// The content has arrived where handle_frame() said.
  virtual void handle_content(int rank, const Frame& frame) = 0;
  /// The transport has failed towards the rank.
  virtual void handle_failure(int rank) = 0;
};

class Messenger {
 public:
  Messenger(const rpipe_transport& transport, FrameHandler& handler) : transport_(transport), handler_(handler) {}
  /// The transport has ended, or nothing was sent.
  ~Messenger();
  Messenger(const Messenger&) = delete;
  Messenger& operator=(const Messenger&) = delete;

  [[nodiscard]] bool may_call(bool expects_it) const { return transport_.may_call(expects_it ? 1 : 0) != 0; }
  /// False if the system has no memory.
  bool open() { return memory_.open(); }

  /// From now on; asked again, nothing. -ENOMEM.
  int hear(int rank);
  /// `content` stays where it is until nothing is on its way.
  int send(int rank, const Frame& frame, const char* content);
  /// Goes on with all that is on its way.
  void move();
  [[nodiscard]] bool is_all_sent() const { return sends_.empty(); }
  /// Whether content of this record is being sent from where it lies.
  [[nodiscard]] bool is_sending_content_of(uint32_t record) const;
  /// Whether no content is on its way here that was announced.
  [[nodiscard]] bool is_all_received() const { return contents_.empty(); }
  /// Frames, ever.
  [[nodiscard]] uint64_t sent_to(int rank) const;
  [[nodiscard]] uint64_t received_from(int rank) const;
  /// Ends all receives.
  void stop();

 private:
  struct Send {
    uint64_t request;
    char* slot;  // nullptr: content
    uint64_t slot_bytes;
    int rank;
    uint32_t record;
  };
  struct Heard {
    std::vector<char*> slots;
    std::vector<uint64_t> requests;
    size_t next = 0;
    uint64_t received = 0;  // frames
    bool is_broken = false;
  };
  struct Content {
    int rank;
    Frame frame;
    std::vector<uint64_t> requests;  // of its parts, which end in any order
    char* dropped;                   // where it goes if nobody wants it
    bool has_failed;
  };

  char* take_slot(uint64_t bytes);
  std::vector<char*>& free_slots(uint64_t bytes);
  int post(int rank, Heard& heard, size_t each);
  bool hear_one(int rank, Heard& heard);
  void receive_content(int rank, const Frame& frame);
  void move_contents();
  void move_sends();
  void fail(int rank);

  const rpipe_transport& transport_;
  FrameHandler& handler_;
  MemoryFile memory_;
  uint64_t counted_ = 0;  // bytes of it in the budget
  std::vector<char*> free_slots_;
  std::vector<char*> free_small_slots_;
  std::deque<Send> sends_;
  std::map<int, uint64_t> sent_;  // frames, by rank
  std::map<int, Heard> heard_;
  std::deque<Content> contents_;
};

}  // namespace headroom::rpipe
