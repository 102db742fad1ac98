// A memory file whose mappings may have huge pages (2 MiB).
//
// A memfd has them as /sys/kernel/mm/transparent_hugepage/shmem_enabled says, which is "never" nearly everywhere, while a
// program's own memory has them as .../enabled says. A tmpfs decides for itself by its mount option `huge=`, and a process may
// mount one in a user namespace of its own; nobody else sees it. So a child that lives for a millisecond and shares memory and
// descriptors with this process enters such a namespace, mounts a tmpfs with huge=advise (huge pages where madvise() asks for
// them, none elsewhere), and opens one nameless file there. The file lives as long as somebody has it open.
//
// Since Linux 6.14 a file of a tmpfs with huge=always has pages of any size, as large as the content that is written at once: a
// block that is written by one call is one page, and made, mapped and given back at half of what 64 small ones cost. Mappings
// of such a file must be advised against huge pages (advise_small_pages()), or each fault in them makes 2 MiB.
//
// Containers and some distributions refuse user namespaces; then there are no huge pages.
#pragma once

#include <cstdint>

namespace headroom::arena {

inline constexpr uint64_t kHugePageBytes = uint64_t{2} << 20;

enum class HugePages {
  kNowhere,
  kWhereAsked,  // the program asks with madvise()
  kEverywhere,
};

/// The huge pages that the system gives a program for its own memory.
HugePages huge_pages_of_system();

/// Whether the system gives them to all memory files, asked or not.
bool memory_files_have_huge_pages();

/// Whether content that is written at once to a file of a tmpfs with huge=always becomes one page.
bool large_writes_make_large_pages();

/// Lets faults in this mapping of a memory file make small pages only.
void advise_small_pages(uintptr_t address, uint64_t bytes);

/// The descriptor of a new empty file, or a negative errno. `huge`: "always", "advise", or "never".
int open_huge_page_file(const char* huge);

}  // namespace headroom::arena
