// Accesses that wait for storage or for room, the oldest first.
//
// What a program's thread asks for by a request waits in that request; what userfaultfd has stopped, in one of a pool. They
// stand in one line, so that of many threads none waits much longer than the others. Private to src/pager; for the pager's
// thread alone unless a line says otherwise.
#pragma once

#include <atomic>
#include <cstdint>

namespace headroom::pager {

struct Request;

struct WaitingAccess {
  Request* request;  // nullptr: a thread stopped by userfaultfd
  uint64_t block;
  uint64_t started_ns;
  uint32_t page;      // of the block, or kWholeBlock
  int32_t thread;     // of a fault
  bool write;         // of a fault
  bool from_storage;  // a fault on what was not in memory
  bool is_fault;      // else all blocks of the request are to be brought
  WaitingAccess* older;
  WaitingAccess* newer;
};

class WaitingAccesses {
 public:
  /// Puts a copy at the end of the line: into its request, or into one of the pool. False if the pool is empty.
  bool add(const WaitingAccess& access);
  void remove(WaitingAccess& access);
  /// Any thread may ask.
  [[nodiscard]] int count() const { return count_.load(std::memory_order_relaxed); }
  /// Since when the oldest waits; there must be one.
  [[nodiscard]] uint64_t waits_since() const { return oldest_->started_ns; }

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

}  // namespace headroom::pager
