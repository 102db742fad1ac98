// Counts and displacements of a collective call, one for each rank: as the caller has them, which is as int or, where its name
// ends in _c, as wide integers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace headroom::mpi {

class Numbers {
 public:
  template <typename Number>
  Numbers(const Number* numbers)  // NOLINT(google-explicit-constructor): stands for what the caller has
      : numbers_(numbers), wide_(sizeof(Number) == sizeof(int64_t)) {
    static_assert(sizeof(Number) == sizeof(int64_t) || sizeof(Number) == sizeof(int32_t));
  }
  Numbers(std::nullptr_t) {}  // NOLINT(google-explicit-constructor): none

  [[nodiscard]] bool are_given() const { return numbers_ != nullptr; }
  int64_t operator[](int rank) const {
    const char* const place = static_cast<const char*>(numbers_) + static_cast<ptrdiff_t>(rank) * (wide_ ? 8 : 4);
    int64_t wide = 0;
    int32_t narrow = 0;
    if (wide_) {
      memcpy(&wide, place, sizeof wide);
      return wide;
    }
    memcpy(&narrow, place, sizeof narrow);
    return narrow;
  }

 private:
  const void* numbers_ = nullptr;
  bool wide_ = false;
};

}  // namespace headroom::mpi
