// Room on storage: who has it, and what happens when there is none left.
//
// Room is set aside stripe by stripe before anything is written, so that a full file system is noticed while the content is
// still in memory. A stripe that does not fit where it belongs goes to another storage directory that has room. If none has,
// what need not leave stays. If it must, since somebody waits for its room, the rank waits (--storage-wait): somebody may free
// room, or add a directory to the running job (`headroom storage add`), which puts its name into the ledger. The thread of the
// pager waits, so the rank's memory stands still meanwhile, and so do, in the end, the ranks that want memory of it; but it
// lets processes join, and notices those that die. File systems that cannot set room aside (NFS, FUSE) are asked how much they
// have, and may have less when it is written: such a write waits in the same way and is tried again.
//
// Private to src/pager; for the pager thread alone.
#pragma once

#include <cstdint>

namespace headroom::pager {

/// Whether an errno value says that a file system is full.
bool is_lack_of_room(int error);

/// Sets room aside for what may be written at these bytes of the store, which lie in one stripe; false if there is none now.
bool has_store_room(uint64_t offset);
/// The same, and waits for it. Ends the process, with a message, if none comes.
void await_store_room(uint64_t offset);

/// A write of so many bytes has failed for lack of room: returns when it may be tried again, or ends the process if that has
/// taken too long.
void await_room_to_write_again(uint64_t bytes, int error);
/// A write has succeeded.
void note_written_to_storage();

}  // namespace headroom::pager
