// Access rights of the program's own making inside evictable memory (mprotect).
//
// userfaultfd watches pages whatever their rights, so both get along. Where rights are how memory is watched (engine sigsegv),
// the program's must not meet the pager's: such memory is pinned, and a limited amount of it can be.
#pragma once

#include <cstdint>

namespace headroom::heap {

/// Makes the memory stay that must, so that the program may change the rights of this range; false, with errno and a warning,
/// if it is too much.
bool prepare_for_rights(void* address, uint64_t bytes);

/// Gives memory that is freed, moved or mapped anew its rights back, if the program has ever changed any.
void give_rights_back(void* address, uint64_t bytes);

/// memset(address, 0, bytes), whatever the program's rights there.
void zero_whatever_the_rights(void* address, uint64_t bytes);

}  // namespace headroom::heap
