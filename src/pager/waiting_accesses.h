// Accesses that wait for storage or for room, the oldest first.
//
// They stand in one line, so that of many threads none waits much longer than the others. (Their places come from a pool, and
// not from the slots of requests: a thread that userfaultfd has stopped has none.) Private to src/pager; for the pager's thread
// alone unless a line says otherwise.
#pragma once

#include <atomic>
#include <cstdint>

namespace headroom::pager {

struct Request;

struct WaitingAccess {
  Request* request = nullptr;  // none: a thread stopped by userfaultfd
  uint64_t block = 0;
  uint64_t count = 0;  // of blocks
  uint64_t started_ns = 0;
  uint32_t page = 0;   // of the block, or kWholeBlock
  int32_t thread = 0;  // of a fault
  bool write = false;
  bool from_storage = false;  // a fault on content that was not in memory
  bool is_fault = false;      // else all blocks are to be brought for the request
  WaitingAccess* older = nullptr;
  WaitingAccess* newer = nullptr;
};

class WaitingAccesses {
 public:
  /// Puts a copy at the end of the line; or where that thread waits already, if userfaultfd has stopped it: a signal was
  /// handled meanwhile, and it has faulted again. False if there are too many.
  bool add(const WaitingAccess& access);
  void remove(WaitingAccess& access);
  /// Any thread may ask.
  [[nodiscard]] int count() const { return count_.load(std::memory_order_relaxed); }

  /// Calls `visit` with each, the oldest first, until it returns true. Meanwhile any may be removed.
  template <typename Visit>
  bool find(Visit visit) {
    Visitor visitor = {oldest_, visitors_};
    visitors_ = &visitor;
    bool found = false;
    while (!found && visitor.next != nullptr) {
      WaitingAccess& access = *visitor.next;
      visitor.next = access.newer;
      found = visit(access);
    }
    visitors_ = visitor.outer;
    return found;
  }

 private:
  struct Visitor {
    WaitingAccess* next;
    Visitor* outer;
  };
  WaitingAccess* oldest_ = nullptr;
  WaitingAccess* newest_ = nullptr;
  Visitor* visitors_ = nullptr;
  std::atomic<int> count_ = 0;
};

/// Whether a block with this word can be accessed so.
bool has_rights(uint64_t word, bool write);
/// Ends the fault: its thread goes on.
void end_fault(WaitingAccess& access);
/// Ends the faults that have got their rights with the blocks' content.
void end_satisfied(uint64_t first, uint64_t count);
/// Whether a thread waits for access to the block to write there.
bool has_waiting_writer(uint64_t block);
/// Whether room, if there is any, is for accesses that wait already. (Not for ever: a thread that needs less might hold the
/// memory that they need.)
bool older_ones_lack_room();

}  // namespace headroom::pager
