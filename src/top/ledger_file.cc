// See ledger_file.h.
#include "top/ledger_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace headroom::top {
namespace {

int open_ledger(const char* pid, int flags) {
  char folder[64];
  (void)snprintf(folder, sizeof folder, "/proc/%s/fd", pid);
  DIR* files = opendir(folder);
  if (files == nullptr) {
    fprintf(stderr, "headroom-ledger: %s: %s\n", folder, strerror(errno));
    return -1;
  }
  int found = -1;
  while (const dirent* entry = found < 0 ? readdir(files) : nullptr) {
    char path[400];
    char target[128] = {};
    (void)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    if (readlink(path, target, sizeof target - 1) > 0 && strncmp(target, "/memfd:headroom-ledger", 22) == 0) {
      found = open(path, flags | O_CLOEXEC);
    }
  }
  (void)closedir(files);
  if (found < 0) {
    fprintf(stderr, "headroom-ledger: process %s has no ledger of Headroom's; `headroom top` names one that has\n", pid);
  }
  return found;
}

}  // namespace

node::Ledger* map_ledger(const char* pid, bool writes) {
  const int file = open_ledger(pid, writes ? O_RDWR : O_RDONLY);
  if (file < 0) {
    return nullptr;
  }
  void* mapped = mmap(nullptr, sizeof(node::Ledger), PROT_READ | (writes ? PROT_WRITE : 0), MAP_SHARED, file, 0);
  (void)close(file);
  auto* ledger = static_cast<node::Ledger*>(mapped);
  if (mapped == MAP_FAILED || !is_of_this_version(*ledger)) {
    fprintf(stderr, "headroom-ledger: process %s runs under another version of Headroom\n", pid);
    return nullptr;
  }
  return ledger;
}

node::Ledger* map_ledger_file(int descriptor) {
  struct stat status = {};
  if (fstat(descriptor, &status) != 0 || status.st_size < static_cast<off_t>(sizeof(node::Ledger))) {
    return nullptr;
  }
  void* place = mmap(nullptr, sizeof(node::Ledger), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  auto* ledger = place != MAP_FAILED ? static_cast<node::Ledger*>(place) : nullptr;
  return ledger != nullptr && node::is_of_this_version(*ledger) ? ledger : nullptr;
}

}  // namespace headroom::top
