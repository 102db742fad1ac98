// A rank's part for the aggregators of its bytes: it answers what they ask, in the order in which each asks.
//
// There is a link to each aggregator whose part of the file has some of this rank's bytes. Their number is known, so the link
// ends when they have all been asked for; the next question is expected only until then, and none is left over. Content that
// has gaps in memory, and batches of lists, go through buffers, of which there are a few.
#pragma once

#include "collio/call.h"
#include "collio/user_memory.h"

namespace headroom::collio {

class Source {
 public:
  static int slots_needed(const CallDescription& call);

  /// Slots from `first_slot` on are its own. False if there is no memory.
  bool begin(const CallDescription& call, int first_slot);
  void end();
  bool step();
  [[nodiscard]] bool is_done() const { return open_links_ == 0 && active_ == 0; }

 private:
  static constexpr int kLanes = 4;    // answers on their way, of each link
  static constexpr int kBuffers = 8;  // of kChunkBytes, of all links
  static constexpr int kSlotsOfLink = 2 + kLanes;

  struct Lane {
    bool active;
    int buffer;     // -1: none
    int64_t begin;  // in this rank's memory, of what is received into a buffer
  };
  struct Link {
    int rank;
    bool asked;       // a question is expected,
    bool held;        // or has come, and could not be answered yet
    bool tells_list;  // pieces of a list are on their way to an aggregator that reads
    int list_buffer;
    int64_t next;  // byte of the access that is asked for next, of a list
    int64_t left;  // bytes that have not been asked for
    Ask ask;
    Lane lanes[kLanes];
    UserStream user;
  };

  void expect(int link);
  bool finish_transfers(int link);
  bool answer(int link);
  bool answer_of_nest(int link, int lane);
  bool answer_of_list(int link, int lane);
  Batch write_batch(Link& link, char* code, char* data);
  void asked_for(Link& link, int64_t bytes);
  int take_buffer();
  [[nodiscard]] int slot_of(int link) const { return first_slot_ + link * kSlotsOfLink; }
  [[nodiscard]] int slot_of_list(int link) const { return slot_of(link) + 1; }
  [[nodiscard]] int slot_of(int link, int lane) const { return slot_of(link) + 2 + lane; }
  [[nodiscard]] bool is_list() const;
  char* buffer(int index) { return buffers_ + index * kChunkBytes; }

  const CallDescription* call_ = nullptr;
  int first_slot_ = 0;
  Link* links_ = nullptr;
  int link_count_ = 0;
  int open_links_ = 0;  // that have something left
  int active_ = 0;      // transfers of content or lists
  char* buffers_ = nullptr;
  int64_t buffer_bytes_ = 0;
  bool buffer_used_[kBuffers] = {};
};

}  // namespace headroom::collio
