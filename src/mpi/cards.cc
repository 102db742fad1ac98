// See cards.h: reads the kernel's list of a node's network cards.
#include "mpi/cards.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

namespace headroom::mpi {
namespace {

bool exists(const char* root, const char* path) {
  char whole[256];
  (void)snprintf(whole, sizeof whole, "%s%s", root, path);
  return access(whole, F_OK) == 0;
}

/// Looks at each entry of a folder of the system's.
template <typename Each>
void for_each_entry(const char* root, const char* path, Each each) {
  char whole[256];
  (void)snprintf(whole, sizeof whole, "%s%s", root, path);
  if (DIR* folder = opendir(whole)) {
    while (const dirent* entry = readdir(folder)) {
      if (entry->d_name[0] != '.') {
        each(entry->d_name);
      }
    }
    closedir(folder);
  }
}

}  // namespace

Cards find_cards(const char* root) {
  Cards cards;
  bool all_on_demand = true;
  for_each_entry(root, "/sys/class/infiniband", [&](const char* name) {
    char path[384];
    char driver[256] = {};
    (void)snprintf(path, sizeof path, "%s/sys/class/infiniband/%s/device/driver", root, name);
    const ssize_t length = readlink(path, driver, sizeof driver - 1);
    const char* base = length > 0 && strrchr(driver, '/') != nullptr ? strrchr(driver, '/') + 1 : driver;
    cards.efa = cards.efa || strcmp(base, "efa") == 0;
    cards.hfi1 = cards.hfi1 || strcmp(base, "hfi1") == 0;
    cards.infiniband = cards.infiniband || (strcmp(base, "efa") != 0 && strcmp(base, "hfi1") != 0);
    all_on_demand = all_on_demand && strcmp(base, "mlx5_core") == 0;  // not those that are made of software
  });
  cards.on_demand = cards.infiniband && all_on_demand;
  for_each_entry(root, "/sys/class/cxi", [&](const char*) { cards.cxi = true; });
  cards.cxi = cards.cxi || exists(root, "/dev/cxi0");
  cards.hfi1 = cards.hfi1 || exists(root, "/dev/hfi1_0");
  cards.gni = exists(root, "/dev/kgni0");
  cards.xpmem = exists(root, "/dev/xpmem");
  cards.knem = exists(root, "/dev/knem");
  return cards;
}

}  // namespace headroom::mpi
