// The traffic of pipes between two nodes: frames of 64 bytes with up to 4 KiB of content behind them, in order; longer content
// follows in messages of its own.
#pragma once

#include <cstdint>

namespace headroom::rpipe {

enum class FrameKind : uint16_t {
  kOpen = 1,  // the sender has opened an end
  kNotice,    // and has written; `content` bytes are behind the frame, or follow
  kState,     // and has closed it
  kBack,      // of a direction of the receiver's: what was taken; numbers of buffers that were freed are behind the frame
  kWaits,     // the sender waits for the receiver for ever, or does no longer
};

struct Frame {
  FrameKind kind;
  uint16_t life;    // of the ranks' pipes, from rpipe_init() to rpipe_finalize(): a frame that comes too late is dropped
  uint32_t record;  // the writer's record, by its index
  union {
    struct {
      uint64_t key;
      uint16_t role;
      uint16_t flags;
      uint32_t width;
    } open;
    struct {
      uint64_t number;
      uint64_t place;  // in the heap; of kNextRing: its lines
      uint64_t heap_limit;
      uint16_t buffer;
      uint16_t generation;
      uint8_t kind;  // Notice
    } notice;
    struct {
      uint64_t taken;
      uint32_t is_closed;  // and nothing is on its way: the record may be used anew
    } back;
    struct {
      uint64_t received;   // frames from the receiver, but for those of this kind; all that they said of is here
      uint32_t waits_for;  // WaitsFor
    } waits;
  };
  uint64_t content;  // bytes
  uint64_t number;   // of the sender's frames to this rank, from 1 on: none may be missing
};
inline Frame frame_of(FrameKind kind, uint16_t life, uint32_t record) {
  Frame frame = {};
  frame.kind = kind;
  frame.life = life;
  frame.record = record;
  return frame;
}
inline constexpr uint64_t kFrameBytes = 64;
static_assert(sizeof(Frame) <= kFrameBytes);
inline constexpr uint64_t kContentWithFrame = 4096;
inline constexpr uint64_t kMostFreedInFrame = kContentWithFrame / sizeof(uint16_t);

}  // namespace headroom::rpipe
