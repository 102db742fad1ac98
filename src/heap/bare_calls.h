// The work of wrappers, for callers that must not go by the wrappers' names: a library that hooks munmap(), say, may come back
// by syscall().
#pragma once

#include <linux/aio_abi.h>
#include <sys/types.h>

#include <cstddef>

namespace headroom::heap {

// memory_maps.cc; `caller` decides where memory without a fixed address comes from
void* map(void* address, size_t bytes, int protection, int flags, int descriptor, off_t offset, const void* caller);
void* remap(void* old_address, size_t old_bytes, size_t bytes, int flags, void* new_address, const void* caller);
int unmap(void* address, size_t bytes);
int advise(void* address, size_t bytes, int advice);
int protect(void* address, size_t bytes, int protection);

// descriptor_wrappers.cc
int close_others(unsigned first, unsigned last, int flags);

// asynchronous_wrappers.cc: a number of operations, or an error code below 0
int submit_operations(aio_context_t context, long count, iocb** operations);

}  // namespace headroom::heap
