// The nameless files behind a store, and the choice of store; see store.h.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "arena/addresses.h"
#include "base/log.h"
#include "base/own_descriptors.h"
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
    return base::own(descriptor);
  }
  // File systems without O_TMPFILE (NFS, some overlay file systems): make a name and remove it at once.
  char path[4096];
  snprintf(path, sizeof path, "%s/.headroom-%d", directory, getpid());
  descriptor = system_call(SYS_openat, AT_FDCWD, path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | flags, 0600);
  if (!base::is_error(descriptor)) {
    (void)system_call(SYS_unlinkat, AT_FDCWD, path, 0);
  }
  return base::own(descriptor);
}

/// Direct I/O may be refused at open or only at the first transfer; try one.
bool direct_works(int descriptor) {
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) {
    return false;
  }
  const long written = system_call(SYS_pwrite64, descriptor, page, 4096, 0);
  const bool is_full = written == -ENOSPC || written == -EDQUOT;  // it was opened for it, and says nothing else against it
  const bool works = is_full || (written == 4096 && system_call(SYS_pread64, descriptor, page, 4096, 0) == 4096);
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
    base::close_own(descriptor);
    if (settings.store_direct == StoreDirectChoice::kOn) {
      base::log_error(
          "--store-direct on: the file system of %s refuses direct I/O; use another --storage, or --store-direct auto",
          directory);
      return Status::kUnavailable;
    }
  }
  const int descriptor = open_nameless(directory, 0);
  if (descriptor < 0) {
    base::log_error("cannot make a file in the storage directory %s: %s; choose a writable directory with --storage", directory,
                    strerror(-descriptor));
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
  files.placed = static_cast<uint8_t*>(base::reserve_memory(arena::kPartitionBytes / kStripeBytes));
  if (files.placed == nullptr) {
    base::log_warning("no address space for the table of what is where on storage (see `ulimit -v`)");
    return Status::kNoMemory;
  }
  for (const char* begin = base::settings().storage; *begin != 0;) {
    const char* end = strchrnul(begin, ':');
    char directory[4096] = {};
    const auto length = static_cast<size_t>(end - begin);
    if (length >= sizeof directory || files.count == kMostDirectories) {
      base::log_error("--storage: a name is too long, or there are more than %d directories", kMostDirectories);
      return Status::kStorage;
    }
    memcpy(directory, begin, length);
    if (!add_store_file(files, directory)) {
      return Status::kStorage;
    }
    begin = *end == ':' ? end + 1 : end;
  }
  files.striped = files.count;
  return files;
}

bool add_store_file(StoreFiles& files, const char* directory) {
  bool direct = false;
  if (files.count == kMostFiles) {
    base::log_warning("the storage has %d directories; more cannot be added", kMostFiles);
    return false;
  }
  const base::Result<int> file = open_in(directory, direct);
  if (!file.ok()) {
    return false;
  }
  files.descriptors[files.count++] = file.value;
  files.direct = files.direct && direct;
  return true;
}

StorePlace place_of(const StoreFiles& files, uint64_t offset) {
  const auto striped = static_cast<uint64_t>(files.striped);
  const uint64_t stripe = offset / kStripeBytes;
  const uint64_t usual = stripe % striped;
  const uint64_t file = files.placed[stripe] == 0 ? usual : files.placed[stripe] - uint64_t{1};
  // In a file, stripes that do not belong there lie behind all that might.
  const uint64_t elsewhere = file < striped ? (arena::kPartitionBytes / kStripeBytes + striped - 1) / striped : 0;
  const uint64_t place = (file == usual ? stripe / striped : elsewhere + stripe) * kStripeBytes;
  return {files.descriptors[file], place + offset % kStripeBytes};
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
    store = make_faulty_store(store, files, settings.store_fault);
    if (store == nullptr) {
      base::die(
          "HEADROOM_STORE_FAULT=%s is none of read|write:ERRNO:N (or N+, @FILE, @FIRST-LAST), slow:EACH_US:BLOCK_US, late:US "
          "and "
          "late:US: with the first behind it",
          settings.store_fault);
    }
  }
  return store;
}

}  // namespace headroom::pager
