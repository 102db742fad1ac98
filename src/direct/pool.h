// Pools: objects of one kind in private memory that never pages and is never given back, so that taking one is a few
// instructions and a stale pointer still points to an object of its kind.
#pragma once

#include <new>

#include "base/log.h"
#include "base/system_calls.h"

namespace headroom::direct {

/// Takes an object from a pool, which is a list linked by the member `next`. A fresh one is constructed.
template <typename T>
T* take_from(T*& pool) {
  if (pool == nullptr) {
    constexpr uint64_t kBytes = 64 << 10;
    auto* memory = static_cast<char*>(base::reserve_memory(kBytes));
    if (memory == nullptr) {
      base::die("no memory is left for messages (see `ulimit -v`)");
    }
    for (uint64_t at = 0; at + sizeof(T) <= kBytes; at += sizeof(T)) {
      auto* fresh = new (memory + at) T;
      fresh->next = pool;
      pool = fresh;
    }
  }
  T* object = pool;
  pool = object->next;
  object->next = nullptr;
  return object;
}

template <typename T>
void give_to(T*& pool, T* object) {
  object->next = pool;
  pool = object;
}

}  // namespace headroom::direct
