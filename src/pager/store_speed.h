// The speed of the store: the time to read a single page, a block and a full transfer, measured while it is used.
//
// A measurement before the run would have the disk to itself, but reads compete with the other ranks, jobs and users of the
// moment (a virtual disk changes by half within the hour). So a read that begins while this process has no other under way is
// timed until its content is in place, and moves the median of its size a little, up or down; one that waited behind another's
// flood moves it no further than others. The ranks of a node measure together, in the ledger.
//
// How many pages read alone are worth a block follows from it (random_access.h): on disks that seek, and over networks, two;
// where bandwidth is scarce, many.
//
// Private to src/pager; for the pager thread alone.
#pragma once

#include <cstdint>

namespace headroom::pager {

/// A read begins, with that tag; or is over, and its content is in place.
void note_read_begun(uint64_t tag, uint64_t bytes);
void note_read_ended(uint64_t tag);
/// This process has done something else meanwhile: the read that is under way says nothing about the store.
void forget_timed_read();

/// A rank that reads so many pages of a block alone had better read the block.
int pages_worth_a_block();

}  // namespace headroom::pager
