// Objects that another thread may still be looking at when they are given back.
//
// A cache's place is shared by many handles: a thread that looks another handle up has loaded the object that lies there and
// reads whose it is. So the memory is used again, but for objects of its kind alone; their handles, which come first, say whose
// they are.
#pragma once

#include <atomic>
#include <cstring>

#include "base/system_calls.h"
#include "mpi/backend/memory.h"

namespace headroom::mpi {

template <typename T>
class ReusedObjects {
 public:
  /// All zero.
  T* take() {
    const base::LockHolder lock(lock_);
    if (unused_ == nullptr) {
      return static_cast<T*>(memory_or_abort(sizeof(T)));
    }
    T* object = unused_;
    unused_ = object->next_unused;
    static_assert(__builtin_offsetof(T, handle) == 0);
    memset(reinterpret_cast<char*>(object) + sizeof object->handle, 0, sizeof(T) - sizeof object->handle);
    return object;
  }
  /// `null`: the handle of nothing.
  template <typename Handle>
  void give_back(T* object, Handle null) {
    object->handle.store(null, std::memory_order_relaxed);
    const base::LockHolder lock(lock_);
    object->next_unused = unused_;
    unused_ = object;
  }

 private:
  base::FutexLock lock_;
  T* unused_ = nullptr;
};

}  // namespace headroom::mpi
