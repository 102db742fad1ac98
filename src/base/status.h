// Errors as values. Status says what kind of thing went wrong; the function that first decides that something is an error
// logs it (base/log.h), callers pass the Status on silently. Result<T> carries a value or a Status.
#pragma once

#include <cstdint>

namespace headroom::base {

enum class [[nodiscard]] Status : int {
  kOk = 0,
  kInvalid,      // the caller or the user asked for something that makes no sense
  kUnavailable,  // this machine or this process may not have it
  kNoMemory,     // address space, descriptors or budget are exhausted
  kStorage,      // the backing store failed or is full
  kPeer,         // another process of the node went away
};

template <typename T>
struct [[nodiscard]] Result {
  Result(T v) : value(v) {}                 // NOLINT(google-explicit-constructor): reads as the value it carries
  Result(Status s) : value(), status(s) {}  // NOLINT(google-explicit-constructor): likewise
  [[nodiscard]] bool ok() const { return status == Status::kOk; }
  T value;
  Status status = Status::kOk;
};

}  // namespace headroom::base
