// What the wrappers of memory_maps.cc do, for callers that must not go by their names: a library that hooks munmap() may come
// back by syscall().
#pragma once

#include <cstddef>

namespace headroom::heap {

int unmap(void* address, size_t bytes);
int advise(void* address, size_t bytes, int advice);
int protect(void* address, size_t bytes, int protection);

}  // namespace headroom::heap
