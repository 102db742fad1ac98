// Room on storage: the choice of the file that has it, and the pause when there is none left.
//
// Room is set aside stripe by stripe before anything is written, so that a full file system is noticed while the content is
// still in memory. A stripe that does not fit where it belongs goes to another storage directory that has room. If none has,
// blocks that need not leave stay. If a block must leave, since a thread waits for its room, the rank waits (--storage-wait): a
// user may free room, or add a directory to the running job (`headroom storage add`), which puts its name into the ledger. The
// thread of the pager waits, so the rank's memory stands still meanwhile, and so do, in the end, the ranks that want memory of
// it; but it lets processes join, and notices processes that die.
//
// File systems that cannot set room aside (NFS, FUSE) are asked how much they have, and may have less when it is written;
// others set room aside that a quota, or a copy of overwritten data (btrfs), then takes. A write that so finds no room is given
// up: its blocks stay, as dirty as before, and their stripe goes to another directory, with the part of it that is stored. The
// file is not tried again for a moment, or for longer than it takes all files to fail as slowly as it did: else there would
// always be one that may be tried again, and a waiting rank would neither say so nor end. If no other has room and a thread
// waits for memory, the rank pauses as above.
//
// Private to src/pager; for the pager thread alone.
#pragma once

#include <cstdint>

namespace headroom::pager {

/// Whether an errno value says that a file system is full.
bool is_lack_of_room(int error);

/// Sets room aside for writes at these bytes of the store, which lie in one stripe; false if there is none now.
bool find_store_room(uint64_t offset);
/// The same, and waits until there seems to be some. Ends the process, with a message, if none comes.
void await_store_room(uint64_t offset);

/// A write there begins; it has failed for lack of room; it has succeeded.
void note_write_begun(uint64_t offset);
void note_lack_of_store_room(uint64_t offset, int error);
void note_written_to_storage(uint64_t offset);
/// Ends a pause after which nothing had to be written.
void end_old_pause();

}  // namespace headroom::pager
