// Finds the end that has the direction that an address names: in a hash table that is looked into without a lock.
//
// Keys are the writer's rank and record. A direction of this process to itself has two ends here. Entries are put and removed
// under a lock; a table that is full is replaced by one of twice the size, and the old one is kept until all pipes are gone: a
// thread may be looking into it.
//
// Thread-safe.
#pragma once

#include <cstdint>

namespace headroom::rpipe {

class End;

struct Ends {
  End* writing = nullptr;
  End* reading = nullptr;
};

/// The ends of this process that write and read the direction; nullptr if there is none.
Ends ends_of(uint32_t rank, uint32_t record);
void add_end(uint32_t rank, uint32_t record, End& end, bool writing);
void remove_end(uint32_t rank, uint32_t record, bool writing);
void forget_ends();

}  // namespace headroom::rpipe
