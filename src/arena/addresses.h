// The addresses of the partitions of a node's processes, the same in all of them: one behind the other, but for some gaps.
// There are 256 of 256 GiB each; for a session of more processes (node/session.h) each of these is divided into two or four.
//
// A launcher may hand data to the processes of a job in a segment that contains pointers, so that all must map it at one
// address (PMIx: its facts about the job, without which MPI_Init fails). It takes the middle of the largest hole of its own
// addresses, then the middle of the hole that is largest then. The gaps are where these middles come to lie first, for
// launchers at random addresses (the program at 2/3 of them: a half, a quarter and three quarters of that) and at fixed ones (a
// half and a quarter of all), moved by up to 28 random bits of page numbers (vm.mmap_rnd_bits). Some distributions have 32, and
// a launcher that goes on to split holes comes elsewhere: such a segment may still meet a partition, which then gives way if it
// can (give_addresses_up(); a process's mappings of its peers' partitions do not, so a segment that comes after MPI_Init may
// fail there). Where stacks are unlimited, x86 puts libraries and all else below a sixth of the addresses; that is the first
// gap.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "node/ledger.h"

namespace headroom::arena {

inline constexpr uint64_t kPartitionBytes = uint64_t{256} << 30;  // at most
// Above the addresses that the address sanitizer takes for itself, below those where programs and libraries are put on 47-bit
// addresses.
inline constexpr uintptr_t kArenaBase = 0x104000000000;
inline constexpr uintptr_t kArenaEnd = 0x554000000000;

struct AddressGap {
  uintptr_t begin;
  uintptr_t end;
};
inline constexpr AddressGap kAddressGaps[] = {
    {0x140000000000, 0x15c000000000},  // all / 6, program / 4
    {0x1f8000000000, 0x204000000000},  // all / 4
    {0x2a8000000000, 0x2b4000000000},  // program / 2
    {0x3f4000000000, 0x410000000000},  // all / 2, program * 3 / 4
};

namespace detail {

inline constexpr uint64_t kPlaces = (kArenaEnd - kArenaBase) / kPartitionBytes;

struct Places {
  std::array<uintptr_t, node::kFewestPlaces> base{};
  std::array<int16_t, kPlaces> member{};
};

constexpr Places make_places() {
  Places places;
  int index = 0;
  for (uint64_t place = 0; place < kPlaces; ++place) {
    const uintptr_t address = kArenaBase + place * kPartitionBytes;
    bool free = index < node::kFewestPlaces;
    for (const AddressGap& gap : kAddressGaps) {
      free = free && (address + kPartitionBytes <= gap.begin || address >= gap.end);
    }
    places.member[place] = static_cast<int16_t>(free ? index : -1);
    if (free) {
      places.base[static_cast<size_t>(index++)] = address;
    }
  }
  return places;
}

inline constexpr Places kPartitionPlaces = make_places();
static_assert(kPartitionPlaces.base.back() != 0);

}  // namespace detail

// How many partitions each place of 256 GiB has: 2 to the power of this.
inline int divisions = 0;

/// For a session of so many places, a power of two from node::kFewestPlaces on. Before the first partition is opened; while no
/// other thread asks for any.
inline void lay_out_partitions(uint32_t places) {
  divisions = 0;
  while (uint32_t{node::kFewestPlaces} << divisions < places) {
    ++divisions;
  }
}

/// The bytes of addresses that one member has at most.
inline uint64_t partition_bytes() { return kPartitionBytes >> divisions; }

/// The address at which member `index`'s partition begins in all processes.
inline uintptr_t partition_base(int index) {
  const auto part = static_cast<uint64_t>(index) & ((uint64_t{1} << divisions) - 1);
  return detail::kPartitionPlaces.base[static_cast<size_t>(index >> divisions)] + part * partition_bytes();
}

/// The member in whose partition `address` lies, in whatever process; -1 if there is none.
inline int partition_at(uintptr_t address) {
  const uint64_t place = (address - kArenaBase) / kPartitionBytes;
  if (address < kArenaBase || place >= detail::kPlaces || detail::kPartitionPlaces.member[place] < 0) {
    return -1;
  }
  const uint64_t part = (address - kArenaBase) % kPartitionBytes >> (std::countr_zero(kPartitionBytes) - divisions);
  return static_cast<int>(static_cast<uint64_t>(detail::kPartitionPlaces.member[place]) << divisions | part);
}

/// Whether some of these addresses are those of partitions, or of the gaps between them.
inline bool meets_arena(uintptr_t address, uint64_t bytes) { return address < kArenaEnd && address + bytes > kArenaBase; }

}  // namespace headroom::arena
