// Content in a rank's part of a window, a piece at a time, each while it may be used; see peer_hold.h.
//
// A piece whose blocks are all there is held and used as it is, if this process's own side of it cannot fault meanwhile. Else
// it goes by way of memory that never pages, within one block at a time: own memory is touched while nothing is held, and a
// block is held while nothing is waited for. So ranks that are all short of memory never keep from each other what each of them
// waits for.
#pragma once

#include "arena/arena.h"
#include "direct/endpoint.h"
#include "direct/layout.h"
#include "direct/window.h"

namespace headroom::direct {

/// This process's side of a transfer.
struct OwnSide {
  const Content* content;  // nullptr: there is none
  bool written;            // else it is read
};

/// The work on each piece of `bytes` bytes, in order.
class PieceAction {
 public:
  /// The piece is held, and this process's side is there.
  virtual void straight(uint64_t bytes) = 0;
  /// The three steps by way of a bounce, as large as a piece within a block: only `held` is called while the piece is held.
  virtual void before_hold(char* bounce, uint64_t bytes) = 0;
  virtual void held(char* bounce, uint64_t bytes) = 0;
  virtual void after_hold(char* bounce, uint64_t bytes) = 0;

 protected:
  ~PieceAction() = default;
};

/// Does `action` for all of `there`, which lies in `part`; pieces are multiples of `grain` bytes. `write`: it is written.
void for_each_held_piece(Endpoint& endpoint, const WindowPart& part, const Content& there, uint64_t grain, bool write,
                         const OwnSide (&own)[2], PieceAction& action);

/// How large the bounce is: a block, and an element that reaches beyond it.
inline constexpr uint64_t kBounceBytes = 2 * arena::kBlockBytes;

}  // namespace headroom::direct
