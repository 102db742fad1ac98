// See handles.h.
#include "rpipe/handles.h"

#include <atomic>
#include <memory>
#include <vector>

#include "base/system_calls.h"

namespace headroom::rpipe {

namespace {

/// A key, once there, stays: its ends come and go.
struct Entry {
  std::atomic<uint64_t> key{0};
  std::atomic<End*> writing{nullptr};
  std::atomic<End*> reading{nullptr};
};

struct Table {
  explicit Table(size_t count) : size(count), entries(std::make_unique<Entry[]>(count)) {}
  const size_t size;  // a power of two
  size_t used = 0;
  std::unique_ptr<Entry[]> entries;
};

std::atomic<Table*> current{nullptr};
std::vector<std::unique_ptr<Table>> tables;
base::FutexLock lock;

uint64_t key_of(uint32_t rank, uint32_t record) { return (uint64_t{rank} << 32 | record) + 1; }

/// Where the key is, or would be; there is always a free entry.
Entry& find(const Table& table, uint64_t key) {
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15U;
  for (size_t at = (key * kGolden) >> 32;; ++at) {
    Entry& entry = table.entries[at & (table.size - 1)];
    const uint64_t there = entry.key.load(std::memory_order_acquire);
    if (there == key || there == 0) {
      return entry;
    }
  }
}

void replace() {
  const Table* const before = current.load(std::memory_order_relaxed);
  auto next = std::make_unique<Table>(before == nullptr ? 64 : 2 * before->size);
  for (size_t at = 0; before != nullptr && at < before->size; ++at) {
    const Entry& old = before->entries[at];
    End* const writing = old.writing.load(std::memory_order_relaxed);
    End* const reading = old.reading.load(std::memory_order_relaxed);
    if (writing != nullptr || reading != nullptr) {
      const uint64_t key = old.key.load(std::memory_order_relaxed);
      Entry& entry = find(*next, key);
      entry.writing.store(writing, std::memory_order_relaxed);
      entry.reading.store(reading, std::memory_order_relaxed);
      entry.key.store(key, std::memory_order_relaxed);
      ++next->used;
    }
  }
  current.store(next.get(), std::memory_order_release);
  tables.push_back(std::move(next));
}

}  // namespace

Ends ends_of(uint32_t rank, uint32_t record) {
  const Table* const table = current.load(std::memory_order_acquire);
  if (table == nullptr) {
    return {};
  }
  const uint64_t key = key_of(rank, record);
  const Entry& entry = find(*table, key);
  if (entry.key.load(std::memory_order_acquire) != key) {
    return {};
  }
  return {entry.writing.load(std::memory_order_acquire), entry.reading.load(std::memory_order_acquire)};
}

void add_end(uint32_t rank, uint32_t record, End& end, bool writing) {
  const base::LockHolder holder(lock);
  Table* table = current.load(std::memory_order_relaxed);
  if (table == nullptr || 2 * (table->used + 1) > table->size) {
    replace();
    table = current.load(std::memory_order_relaxed);
  }
  const uint64_t key = key_of(rank, record);
  Entry& entry = find(*table, key);
  table->used += entry.key.load(std::memory_order_relaxed) == 0 ? 1 : 0;
  (writing ? entry.writing : entry.reading).store(&end, std::memory_order_release);
  entry.key.store(key, std::memory_order_release);
}

void remove_end(uint32_t rank, uint32_t record, bool writing) {
  const base::LockHolder holder(lock);
  Entry& entry = find(*current.load(std::memory_order_relaxed), key_of(rank, record));
  (writing ? entry.writing : entry.reading).store(nullptr, std::memory_order_release);
}

void forget_ends() {
  const base::LockHolder holder(lock);
  current.store(nullptr, std::memory_order_release);
  tables.clear();
}

}  // namespace headroom::rpipe
