// Room on storage: who has it, and what happens when there is none left.
//
// Room is set aside stripe by stripe before anything is written, so that a full file system is noticed while the content is
// still in memory. A stripe that does not fit where it belongs goes to another storage directory that has room. If none has,
// the rank waits (--storage-wait): somebody may free room, or add a directory to the running job (`headroom storage add`),
// which puts its name into the ledger. The thread of the pager waits, so the rank's memory stands still meanwhile, and so do,
// in the end, the ranks that want memory of it.
//
// Private to src/pager; for the pager thread alone.
#pragma once

#include <cstdint>

namespace headroom::pager {

/// Sets room aside for what is going to be written at these bytes of the store, which lie in one stripe. Ends the process, with
/// a message, if there is none and none comes.
void ensure_store_room(uint64_t offset);

}  // namespace headroom::pager
