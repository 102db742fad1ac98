// See huge_page_file.h.
#include "arena/huge_page_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/kernel_abi.h"
#include "base/kernel_version.h"
#include "base/system_calls.h"

namespace headroom::arena {
namespace {

using base::is_error;
using base::system_call;

constexpr const char* kAllSizes = "/sys/kernel/mm/transparent_hugepage/enabled";
constexpr const char* kThisSize = "/sys/kernel/mm/transparent_hugepage/hugepages-2048kB/enabled";  // since Linux 6.8
constexpr const char* kFileName = "memfd:headroom-arena";  // as /proc/PID/maps shows that of a memfd

struct Attempt {
  const char* huge;
  unsigned user;
  unsigned group;
  long result;  // the descriptor, or a negative errno
};

bool write_file(const char* path, const char* text) {
  const long file = system_call(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CLOEXEC);
  const long written = system_call(SYS_write, file, text, strlen(text));
  (void)system_call(SYS_close, file);
  return written == static_cast<long>(strlen(text));
}

/// Without a user of this name the new file system would have files of nobody.
bool map_identity(const char* path, unsigned identity) {
  char text[64];
  (void)snprintf(text, sizeof text, "%u %u 1", identity, identity);
  return write_file(path, text);
}

long configure(long context, const char* huge) {
  constexpr int kSetString = 1, kCreate = 6;
  long result = system_call(SYS_fsconfig, context, kSetString, "huge", huge, 0);
  result = is_error(result) ? result : system_call(SYS_fsconfig, context, kSetString, "size", "0", 0);  // no limit, as a memfd
  return is_error(result) ? result : system_call(SYS_fsconfig, context, kCreate, nullptr, nullptr, 0);
}

long make_file(const char* huge) {
  constexpr int kCloseOnExec = 1;
  const long context = system_call(SYS_fsopen, "tmpfs", kCloseOnExec);
  if (is_error(context)) {
    return context;
  }
  long result = configure(context, huge);
  const long mount = is_error(result) ? result : system_call(SYS_fsmount, context, kCloseOnExec, 0);
  (void)system_call(SYS_close, context);
  if (is_error(mount)) {
    return mount;
  }
  result = system_call(SYS_openat, mount, kFileName, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  (void)system_call(SYS_unlinkat, mount, kFileName, 0);
  (void)system_call(SYS_close, mount);
  return result;
}

/// In the child. The parent's thread stands still meanwhile.
int in_new_namespace(void* argument) {
  auto& attempt = *static_cast<Attempt*>(argument);
  (void)write_file("/proc/self/setgroups", "deny");
  attempt.result = -EPERM;
  if (map_identity("/proc/self/uid_map", attempt.user) && map_identity("/proc/self/gid_map", attempt.group)) {
    attempt.result = make_file(attempt.huge);
  }
  return 0;
}

/// The word in brackets, as in "always [madvise] never".
bool is_chosen(const char* path, const char* word) {
  const long file = system_call(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
  char text[128] = {};
  (void)system_call(SYS_read, file, text, sizeof text - 1);
  (void)system_call(SYS_close, file);
  const char* bracket = strchr(text, '[');
  const size_t length = strlen(word);
  return bracket != nullptr && strncmp(bracket + 1, word, length) == 0 && bracket[1 + length] == ']';
}

}  // namespace

HugePages huge_pages_of_system() {
  const auto is = [](const char* word) {
    return is_chosen(kThisSize, word) ||
           (is_chosen(kAllSizes, word) && (access(kThisSize, R_OK) != 0 || is_chosen(kThisSize, "inherit")));
  };
  return is("always") ? HugePages::kEverywhere : is("madvise") ? HugePages::kWhereAsked : HugePages::kNowhere;
}

bool memory_files_have_huge_pages() {
  constexpr const char* kMemoryFiles = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
  return is_chosen(kMemoryFiles, "always") || is_chosen(kMemoryFiles, "within_size");
}

bool large_writes_make_large_pages() { return base::kernel_is_at_least(6, 14); }

void advise_small_pages(uintptr_t address, uint64_t bytes) { (void)system_call(SYS_madvise, address, bytes, MADV_NOHUGEPAGE); }

int open_huge_page_file(const char* huge) {
  constexpr size_t kStackBytes = 64 << 10;
  auto* stack = static_cast<char*>(base::reserve_memory(kStackBytes));
  if (stack == nullptr) {
    return -ENOMEM;
  }
  Attempt attempt = {huge, geteuid(), getegid(), -EPERM};
  // No handler of the program may run in the child, and none of its waits may find the child (its end sends no signal).
  // (But for SIGSYS, by which a filter of system calls may ask the program.)
  const uint64_t all = ~(uint64_t{1} << (SIGSYS - 1));
  uint64_t before = 0;
  (void)system_call(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, sizeof all);
  const int flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_FILES | CLONE_VM | CLONE_VFORK;
  const int child = clone(in_new_namespace, stack + kStackBytes, flags, &attempt);
  if (child < 0) {
    attempt.result = -errno;
  } else {
    (void)system_call(SYS_wait4, child, nullptr, __WCLONE, nullptr);
  }
  (void)system_call(SYS_rt_sigprocmask, SIG_SETMASK, &before, nullptr, sizeof all);
  (void)system_call(SYS_munmap, stack, kStackBytes);
  return static_cast<int>(attempt.result);
}

}  // namespace headroom::arena
