// See small_objects.h.
#include "heap/small_objects.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/types.h>

#include <algorithm>

#include "base/log.h"
#include "base/own_threads.h"
#include "heap/excluded_callers.h"
#include "heap/heap.h"
#include "pager/pager.h"

namespace headroom::heap {

std::atomic<bool> small_objects_on{false};

namespace detail {
std::atomic<uint64_t> chunk_blocks[arena::kPartitionBytes / arena::kBlockBytes / 64];
constinit thread_local SmallObjectsOf served __attribute__((tls_model("initial-exec"))) = SmallObjectsOf::kUnknownThread;
}  // namespace detail

}  // namespace headroom::heap

#if HEADROOM_HAS_JEMALLOC

#include <jemalloc/jemalloc.h>

#include "base/system_calls.h"

// jemalloc's functions, and those by which it asks the system, under the names that the build gives them (CMakeLists.txt): its
// own tables are not the program's memory, and settings for a jemalloc of the program's are not ours.
extern "C" {
const char* headroom_je_malloc_conf = "narenas:1,dirty_decay_ms:2000,muzzy_decay_ms:-1,retain:true,metadata_thp:disabled";
void* headroom_je_mallocx(size_t bytes, int flags);
void* headroom_je_rallocx(void* address, size_t bytes, int flags);
void* headroom_je_malloc(size_t bytes);  // faster than mallocx, as is free than dallocx
void headroom_je_free(void* address);
size_t headroom_je_sallocx(const void* address, int flags);
int headroom_je_mallctl(const char* name, void* old_value, size_t* old_bytes, void* new_value, size_t new_bytes);

void* headroom_plain_mmap(void* address, size_t bytes, int protection, int flags, int descriptor, off_t offset) {
  const long place = headroom::base::system_call(SYS_mmap, address, bytes, protection, flags, descriptor, offset);
  if (headroom::base::is_error(place)) {
    errno = static_cast<int>(-place);
    return reinterpret_cast<void*>(-1);
  }
  (void)headroom::base::system_call(SYS_madvise, place, bytes, MADV_NOHUGEPAGE);  // tables, used here and there
  return reinterpret_cast<void*>(place);
}
int headroom_plain_munmap(void* address, size_t bytes) {
  return headroom::base::is_error(headroom::base::system_call(SYS_munmap, address, bytes)) ? -1 : 0;
}
int headroom_plain_madvise(void* address, size_t bytes, int advice) {
  return headroom::base::is_error(headroom::base::system_call(SYS_madvise, address, bytes, advice)) ? -1 : 0;
}
char* headroom_no_environment(const char* /*name*/) { return nullptr; }
ssize_t headroom_no_link(const char* /*path*/, char* /*target*/, size_t /*bytes*/) { return -1; }
}

namespace headroom::heap {

namespace {

using detail::block_at;
using detail::chunk_blocks;

constexpr unsigned kMostArenas = 4;
constexpr size_t kChunkBytes = 2 << 20;

base::FutexLock start_lock;
unsigned arenas[kMostArenas];
unsigned arena_count = 0;
std::atomic<unsigned> next_arena{0};

void* allocate_chunk(extent_hooks_t*, void* wanted, size_t bytes, size_t alignment, bool* zero, bool* commit, unsigned) {
  if (wanted != nullptr || bytes % arena::kBlockBytes != 0) {
    return nullptr;
  }
  void* chunk = allocate_for_small_objects(bytes, std::max(alignment, arena::kBlockBytes), *zero);
  if (chunk == nullptr) {
    return nullptr;
  }
  *commit = true;
  for (uint64_t block = block_at(chunk); block < block_at(chunk) + bytes / arena::kBlockBytes; ++block) {
    chunk_blocks[block / 64].fetch_or(uint64_t{1} << (block % 64), std::memory_order_relaxed);
  }
  return chunk;
}

/// Gives up whole blocks of memory that was freed a while ago; the rest may keep its content.
bool give_up_blocks(extent_hooks_t*, void* address, size_t, size_t offset, size_t bytes, unsigned) {
  const char* begin = static_cast<const char*>(address) + offset;
  const uint64_t first = block_at(begin + arena::kBlockBytes - 1);
  const uint64_t end = block_at(begin + bytes);
  if (first < end) {
    pager::discard_blocks(first, end - first);
  }
  return false;
}

bool refuse_to_free(extent_hooks_t*, void*, size_t, bool, unsigned) { return true; }
bool refuse(extent_hooks_t*, void*, size_t, size_t, size_t, unsigned) { return true; }
bool allow_commit(extent_hooks_t*, void*, size_t, size_t, size_t, unsigned) { return false; }
bool allow_split(extent_hooks_t*, void*, size_t, size_t, size_t, bool, unsigned) { return false; }
bool allow_merge(extent_hooks_t*, void*, size_t, void*, size_t, bool, unsigned) { return false; }

extent_hooks_t hooks = {allocate_chunk, refuse_to_free, nullptr,     allow_commit, refuse,
                        give_up_blocks, refuse,         allow_split, allow_merge};

/// As many arenas as there are cores, within limits; 0 if jemalloc cannot have any.
unsigned make_arenas() {
  const uint32_t cores = pager::session().ledger->cores();
  const unsigned wanted = std::min(cores, kMostArenas);
  extent_hooks_t* our_hooks = &hooks;
  unsigned made = 0;
  while (made < wanted) {
    size_t bytes = sizeof arenas[0];
    if (headroom_je_mallctl("arenas.create", &arenas[made], &bytes, &our_hooks, sizeof(extent_hooks_t*)) != 0) {
      break;
    }
    char name[64];
    size_t limit = kChunkBytes;
    (void)snprintf(name, sizeof name, "arena.%u.retain_grow_limit", arenas[made]);
    (void)headroom_je_mallctl(name, nullptr, nullptr, &limit, sizeof limit);
    ++made;
  }
  return made;
}

/// This thread's objects come from one of our arenas from now on, its cache of free ones included.
void choose_arena() {
  unsigned arena = arenas[next_arena.fetch_add(1, std::memory_order_relaxed) % arena_count];
  (void)headroom_je_mallctl("thread.arena", nullptr, nullptr, &arena, sizeof arena);
}

bool is_wanted() {
  const base::SmallChoice choice = base::settings().small;
  if (choice == base::SmallChoice::kOff) {
    return false;
  }
  if (pager::engine_serves_kernel()) {
    return true;
  }
  if (choice == base::SmallChoice::kOn) {
    base::die(
        "--small on: small allocations can leave memory only where system calls may touch what is on storage, which needs "
        "unrestricted userfaultfd: root, or `sysctl vm.unprivileged_userfaultfd=1`, or /dev/userfaultfd readable");
  }
  return false;
}

}  // namespace

void start_small_objects() {
  if (small_objects_on.load(std::memory_order_acquire) || !is_wanted()) {
    return;
  }
  const base::LockHolder lock(start_lock);
  if (arena_count == 0) {
    arena_count = make_arenas();
    small_objects_on.store(arena_count > 0, std::memory_order_release);
    base::log_debug(base::Part::kHeap,
                    arena_count > 0 ? "small allocations may move, from %u arenas" : "small allocations stay", arena_count);
  }
}

void stop_small_objects_in_child() { small_objects_on.store(false, std::memory_order_release); }

namespace detail {

bool serve_this_thread() {
  if (served == SmallObjectsOf::kUnknownThread) {
    served = base::on_own_thread() ? SmallObjectsOf::kNotThisThread : SmallObjectsOf::kThisThread;
    if (served == SmallObjectsOf::kThisThread) {
      choose_arena();
    }
  }
  return served == SmallObjectsOf::kThisThread;
}

void* allocate_plainly(size_t bytes) { return headroom_je_malloc(bytes); }

void* allocate_specially(size_t bytes, size_t alignment, bool zeroed) {
  // As glibc does: to the next power of two.
  const int align = alignment > 1 ? 64 - __builtin_clzll(alignment - 1) : 0;
  const int flags = align | (zeroed ? MALLOCX_ZERO : 0);
  return headroom_je_mallocx(bytes > 0 ? bytes : 1, flags);
}

}  // namespace detail

size_t small_object_bytes(const void* address) { return headroom_je_sallocx(address, 0); }

void* reallocate_small(void* address, size_t bytes) {
  if (!small_objects_on.load(std::memory_order_relaxed) || !detail::serve_this_thread()) {
    return nullptr;
  }
  return headroom_je_rallocx(address, bytes, 0);
}

void free_small(void* address) {
  if (small_objects_on.load(std::memory_order_relaxed)) {
    headroom_je_free(address);
  }
}

}  // namespace headroom::heap

#else  // built where there is no jemalloc

namespace headroom::heap {

void start_small_objects() {
  if (base::settings().small == base::SmallChoice::kOn) {
    base::die("--small on: this build of Headroom has no allocator for small objects (libjemalloc-dev was not there)");
  }
}
void stop_small_objects_in_child() {}
namespace detail {
bool serve_this_thread() { return false; }
void* allocate_plainly(size_t) { return nullptr; }
void* allocate_specially(size_t, size_t, bool) { return nullptr; }
}  // namespace detail
size_t small_object_bytes(const void*) { return 0; }
void* reallocate_small(void*, size_t) { return nullptr; }
void free_small(void*) {}

}  // namespace headroom::heap

#endif
