// What policies see of memory: a few figures, as they are now. A policy decides by these and by what it was told, and changes
// nothing but its own notes; so it can be tested, and replayed, without a pager.
//
// Private to src/pager; for the pager thread alone.
#pragma once

#include <cstdint>

namespace headroom::pager {

class MemoryView {
 public:
  MemoryView() = default;
  MemoryView(const MemoryView&) = delete;
  MemoryView& operator=(const MemoryView&) = delete;

  /// How much memory this process may expect to have for blocks while it computes, in bytes.
  [[nodiscard]] virtual uint64_t share() const = 0;
  /// How many bytes of blocks it can have if all other ranks wait.
  [[nodiscard]] virtual int64_t for_one() const = 0;
  /// How often in this turn blocks came back that had done so before (replacement.h).
  [[nodiscard]] virtual uint64_t came_back() const = 0;
  /// A rank that reads so many pages of a block alone had better read the block (store_speed.h).
  [[nodiscard]] virtual int pages_worth_a_block() const = 0;
  /// How many blocks have addresses.
  [[nodiscard]] virtual uint64_t blocks() const = 0;

 protected:
  ~MemoryView() = default;
};

/// That of this process.
const MemoryView& memory_view();

}  // namespace headroom::pager
