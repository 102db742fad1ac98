// The nameless files behind a store, and the choice of store; see store.h.
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

namespace {

/// The file of one directory; `direct` says how it was opened.
base::Result<int> open_in(const char* directory, bool& direct) {
  const base::Settings& settings = base::settings();
  if (settings.store_direct != StoreDirectChoice::kOff) {
    const int descriptor = open_nameless(directory, O_DIRECT);
    direct = descriptor >= 0 && direct_works(descriptor);
    if (direct) {
      return descriptor;
    }
    if (descriptor >= 0) {
      close(descriptor);
    }
    if (settings.store_direct == StoreDirectChoice::kOn) {
      base::log_warning(
          "error: --store-direct on: the file system of %s refuses direct I/O; use another --storage, or --store-direct auto",
          directory);
      return Status::kUnavailable;
    }
  }
  const int descriptor = open_nameless(directory, 0);
  if (descriptor < 0) {
    base::log_warning("error: cannot make a file in the storage directory %s: %s; choose a writable directory with --storage",
                      directory, strerror(-descriptor));
    return Status::kStorage;
  }
  if (settings.store_direct == StoreDirectChoice::kAuto) {
    base::log_warning(
        "the file system of %s refuses direct I/O; storage goes through the page cache, which costs memory "
        "and speed (choose a local disk with --storage)",
        directory);
  }
  return descriptor;
}

}  // namespace

base::Result<StoreFiles> open_store_files() {
  StoreFiles files;
  files.direct = true;
  for (const char* begin = base::settings().storage; *begin != 0;) {
    const char* end = strchrnul(begin, ':');
    char directory[4096] = {};
    const auto length = static_cast<size_t>(end - begin);
    if (length >= sizeof directory || files.count == kMostFiles) {
      base::log_warning("error: --storage: a name is too long, or there are more than %d directories", kMostFiles);
      return Status::kStorage;
    }
    memcpy(directory, begin, length);
    bool direct = false;
    const base::Result<int> file = open_in(directory, direct);
    if (!file.ok()) {
      return file.status;
    }
    files.descriptors[files.count++] = file.value;
    files.direct = files.direct && direct;
    begin = *end == ':' ? end + 1 : end;
  }
  return files;
}

StorePlace place_of(const StoreFiles& files, uint64_t offset) {
  const auto count = static_cast<uint64_t>(files.count);
  const uint64_t stripe = offset / kStripeBytes;
  return {files.descriptors[stripe % count], stripe / count * kStripeBytes + offset % kStripeBytes};
}

int reserve_store_room(const StoreFiles& files, uint64_t offset, uint64_t bytes) {
  const auto count = static_cast<uint64_t>(files.count);
  const uint64_t first = offset / kStripeBytes;
  const uint64_t last = (offset + bytes - 1) / kStripeBytes;
  for (uint64_t file = 0; file < count; ++file) {
    // Its first and last stripe of these; where the range lies in one stripe, that part of it alone.
    const uint64_t from = (first + count - 1 - file) / count;
    const uint64_t to = last < file ? 0 : (last - file) / count + 1;
    if (from >= to) {
      continue;
    }
    const bool whole = last > first;
    const uint64_t begin = from * kStripeBytes + (whole ? 0 : offset % kStripeBytes);
    const uint64_t length = whole ? (to - from) * kStripeBytes : bytes;
    long result = 0;
    do {
      result = system_call(SYS_fallocate, files.descriptors[file], 1 /* FALLOC_FL_KEEP_SIZE */, begin, length);
    } while (result == -EINTR);
    if (base::is_error(result) && result != -EOPNOTSUPP) {
      return static_cast<int>(-result);
    }
  }
  return 0;
}

Store* make_store(const StoreFiles& files) {
  const base::Settings& settings = base::settings();
  Store* store = nullptr;
  if (settings.store != StoreChoice::kThreads) {
    store = make_io_uring_store(files);
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
    store = make_thread_store(files);
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
