// The nameless file behind a store, and the choice of store; see store.h.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "base/settings.h"
#include "base/system_calls.h"
#include "pager/store.h"

namespace headroom::pager {
namespace {

using base::Status;
using base::StoreChoice;
using base::StoreDirectChoice;
using base::system_call;

int open_nameless(const char* directory, int flags) {
  long descriptor = system_call(SYS_openat, AT_FDCWD, directory, O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600);
  if (descriptor != -EOPNOTSUPP && descriptor != -EISDIR && descriptor != -ENOENT) {
    return static_cast<int>(descriptor);
  }
  // File systems without O_TMPFILE (NFS, some overlay file systems): make a name and remove it at once.
  char path[4096];
  snprintf(path, sizeof path, "%s/.headroom-%d", directory, getpid());
  descriptor = system_call(SYS_openat, AT_FDCWD, path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | flags, 0600);
  if (!base::is_error(descriptor)) {
    (void)system_call(SYS_unlinkat, AT_FDCWD, path, 0);
  }
  return static_cast<int>(descriptor);
}

/// Direct I/O may be refused at open or only at the first transfer; try one.
bool direct_works(int descriptor) {
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) {
    return false;
  }
  const bool works = system_call(SYS_pwrite64, descriptor, page, 4096, 0) == 4096 &&
                     system_call(SYS_pread64, descriptor, page, 4096, 0) == 4096;
  munmap(page, 4096);
  return works;
}

}  // namespace

base::Result<StoreFile> open_store_file() {
  const base::Settings& settings = base::settings();
  StoreFile file;
  if (settings.store_direct != StoreDirectChoice::kOff) {
    const int descriptor = open_nameless(settings.storage, O_DIRECT);
    if (descriptor >= 0 && direct_works(descriptor)) {
      file = {descriptor, true};
      return file;
    }
    if (descriptor >= 0) {
      close(descriptor);
    }
    if (settings.store_direct == StoreDirectChoice::kOn) {
      base::log_warning(
          "error: --store-direct on: the file system of %s refuses direct I/O; use another --storage, or --store-direct auto",
          settings.storage);
      return Status::kUnavailable;
    }
  }
  const int descriptor = open_nameless(settings.storage, 0);
  if (descriptor < 0) {
    base::log_warning("error: cannot make a file in the storage directory %s: %s; choose a writable directory with --storage",
                      settings.storage, strerror(-descriptor));
    return Status::kStorage;
  }
  if (settings.store_direct == StoreDirectChoice::kAuto) {
    base::log_warning(
        "the file system of %s refuses direct I/O; storage goes through the page cache, which costs memory "
        "and speed (choose a local disk with --storage)",
        settings.storage);
  }
  file = {descriptor, false};
  return file;
}

int reserve_store_room(const StoreFile& file, uint64_t offset, uint64_t bytes) {
  long result = 0;
  do {
    result = system_call(SYS_fallocate, file.descriptor, 1 /* FALLOC_FL_KEEP_SIZE */, offset, bytes);
  } while (result == -EINTR);
  return base::is_error(result) && result != -EOPNOTSUPP ? static_cast<int>(-result) : 0;
}

Store* make_store(const StoreFile& file) {
  const base::Settings& settings = base::settings();
  Store* store = nullptr;
  if (settings.store != StoreChoice::kThreads) {
    store = make_io_uring_store(file);
    if (store == nullptr && settings.store == StoreChoice::kIoUring) {
      base::die(
          "--store io_uring: the kernel refuses io_uring here (see /proc/sys/kernel/io_uring_disabled, or the container's "
          "seccomp profile); use --store auto");
    }
    if (store == nullptr) {
      base::log_warning("the kernel refuses io_uring here; storage is read and written by threads");
    }
  }
  if (store == nullptr) {
    store = make_thread_store(file);
  }
  if (store == nullptr) {
    base::die("cannot start the threads that read and write storage (see `ulimit -u`)");
  }
  if (*settings.store_fault != 0) {
    store = make_faulty_store(store, settings.store_fault);
    if (store == nullptr) {
      base::die("HEADROOM_STORE_FAULT=%s is not read|write:ERRNO:N", settings.store_fault);
    }
  }
  return store;
}

}  // namespace headroom::pager
