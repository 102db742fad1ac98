// Puts the large allocations of an unmodified program into memory of UMap's, for `headroom bench paging --peer`: each lies in a
// nameless file of its own, past the page cache. Everything else, and what UMap itself and its threads allocate, is the C
// library's. With UMap built in $UMAP (https://github.com/LLNL/umap):
//
//   g++ -std=c++20 -O2 -fPIC -shared -I$UMAP/include -o umap_malloc.so bench/peers/umap_malloc.cc -L$UMAP/lib -lumap
//   headroom bench paging --group sweeps --peer "UMap=env LD_PRELOAD=$PWD/umap_malloc.so LD_LIBRARY_PATH=$UMAP/lib
//     UMAP_PAGESIZE=65536 UMAP_BUFSIZE=8192 UMAP_PAGE_FILLERS=2 UMAP_PAGE_EVICTORS=2"
//
// UMAP_BUFSIZE counts pages: the budget over the ranks and the page size. UMAP_MALLOC_DIRECTORY says where the files lie.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <umap/umap.h>
#include <unistd.h>

#include <atomic>
#include <exception>
#include <mutex>

// The C library's own, which it offers to those who interpose them.
extern "C" void* __libc_malloc(size_t);
extern "C" void* __libc_calloc(size_t, size_t);
extern "C" void* __libc_realloc(void*, size_t);
extern "C" void* __libc_memalign(size_t, size_t);
extern "C" void __libc_free(void*);

namespace {

constexpr size_t kLarge = 1 << 20;
constexpr size_t kPage = 4096;
constexpr int kMost = 4096;

struct Block {
  char* address;
  size_t bytes;
  int file;
};

std::mutex table_lock;
Block table[kMost];
int blocks = 0;
std::atomic<bool> ready{false};
thread_local int inside = 0;  // UMap's code, or a thread of its own

[[noreturn]] void give_up(const char* what) {
  fprintf(stderr, "umap_malloc: %s: %s\n", what, strerror(errno));
  abort();
}

/// Whether it is one of ours; with `take` it is no longer in the table.
bool find(void* address, Block& found, bool take) {
  if (address == nullptr || reinterpret_cast<uintptr_t>(address) % kPage != 0) {
    return false;
  }
  const std::lock_guard lock(table_lock);
  for (int index = 0; index < blocks; ++index) {
    if (table[index].address == address) {
      found = table[index];
      if (take) {
        table[index] = table[--blocks];
      }
      return true;
    }
  }
  return false;
}

bool is_for_umap(size_t bytes) { return bytes >= kLarge && inside == 0 && ready.load(std::memory_order_acquire); }

void* allocate(size_t bytes) {
  const size_t page = umapcfg_get_umap_page_size();
  const char* directory = getenv("UMAP_MALLOC_DIRECTORY");
  ++inside;
  Block block = {nullptr, (bytes + page - 1) / page * page, -1};
  block.file = open(directory != nullptr ? directory : "/var/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC | O_DIRECT, 0600);
  if (block.file < 0 || ftruncate(block.file, static_cast<off_t>(block.bytes)) != 0) {
    give_up("a file without a name in UMAP_MALLOC_DIRECTORY");
  }
  try {
    block.address = static_cast<char*>(umap(nullptr, block.bytes, PROT_READ | PROT_WRITE, UMAP_PRIVATE, block.file, 0));
  } catch (const std::exception& error) {
    give_up(error.what());
  }
  const std::lock_guard lock(table_lock);
  if (block.address == UMAP_FAILED || blocks == kMost) {
    give_up("umap()");
  }
  table[blocks++] = block;
  --inside;
  return block.address;
}

void give_back(const Block& block) {
  ++inside;
  uunmap(block.address, block.bytes);
  munmap(block.address, block.bytes);  // UMap 2.1 leaves the range mapped
  close(block.file);
  --inside;
}

/// A thread that UMap starts, which allocates from the C library.
struct Start {
  void* (*function)(void*);
  void* argument;
};

void* run_inside(void* start) {
  const Start what = *static_cast<Start*>(start);
  __libc_free(start);
  inside = 1;
  return what.function(what.argument);
}

__attribute__((constructor)) void begin() {
  ++inside;
  (void)umapcfg_get_umap_page_size();  // makes UMap's own objects before the program's
  (void)pthread_atfork(nullptr, nullptr, [] { ready.store(false); });
  (void)atexit([] { ready.store(false); });
  --inside;
  ready.store(true, std::memory_order_release);
}

}  // namespace

extern "C" {

void* malloc(size_t bytes) { return is_for_umap(bytes) ? allocate(bytes) : __libc_malloc(bytes); }

void* calloc(size_t count, size_t each) {
  size_t bytes = 0;
  return !__builtin_mul_overflow(count, each, &bytes) && is_for_umap(bytes) ? allocate(bytes) : __libc_calloc(count, each);
}

void free(void* address) {
  Block block = {};
  if (!find(address, block, ready.load())) {
    __libc_free(address);
  } else if (ready.load()) {
    give_back(block);
  }
}

size_t malloc_usable_size(void* address) {
  static const auto real = reinterpret_cast<size_t (*)(void*)>(dlsym(RTLD_NEXT, "malloc_usable_size"));
  Block block = {};
  return find(address, block, false) ? block.bytes : real(address);
}

void* realloc(void* address, size_t bytes) {
  Block block = {};
  if (address == nullptr || (!find(address, block, false) && !is_for_umap(bytes))) {
    return address == nullptr ? malloc(bytes) : __libc_realloc(address, bytes);
  }
  const size_t before = malloc_usable_size(address);
  void* other = malloc(bytes);
  if (other != nullptr) {
    memcpy(other, address, before < bytes ? before : bytes);
    free(address);
  }
  return other;
}

void* memalign(size_t alignment, size_t bytes) {
  return alignment <= kPage && is_for_umap(bytes) ? allocate(bytes) : __libc_memalign(alignment, bytes);
}

void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }

int posix_memalign(void** out, size_t alignment, size_t bytes) {
  void* address = memalign(alignment, bytes);
  *out = address != nullptr ? address : *out;
  return address != nullptr ? 0 : ENOMEM;
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*function)(void*), void* argument) {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto real = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  if (inside == 0) {
    return real(thread, attributes, function, argument);
  }
  auto* start = static_cast<Start*>(__libc_malloc(sizeof(Start)));
  *start = {function, argument};
  return real(thread, attributes, run_inside, start);
}

}  // extern "C"
