// See card.h.
#include "rpipe/card.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/system_calls.h"

namespace headroom::rpipe {

namespace {

using base::is_error;
using base::system_call;

void read_line(const char* path, char* text, size_t room) {
  const long file = system_call(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
  const long bytes = is_error(file) ? 0 : system_call(SYS_read, file, text, room - 1);
  text[is_error(bytes) ? 0 : bytes] = 0;
  if (!is_error(file)) {
    (void)system_call(SYS_close, file);
  }
}

}  // namespace

Card own_card(uint64_t nonce) {
  Card card = {};
  card.nonce = nonce;
  gethostname(card.host, sizeof card.host - 1);
  char boot[48] = {};
  char network[32] = {};
  read_line("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
  (void)system_call(SYS_readlinkat, AT_FDCWD, "/proc/self/ns/net", network, sizeof network - 1);
  boot[strcspn(boot, "\n")] = 0;
  (void)snprintf(card.node, sizeof card.node, "%s %s", boot, network);
  (void)system_call(SYS_sched_getaffinity, 0, sizeof card.may_use, &card.may_use);
  return card;
}

bool has_fewer_processors_than_ranks(const std::vector<Card>& all, const Card& own) {
  cpu_set_t processors = {};
  int on_node = 0;
  for (const Card& card : all) {
    if (strcmp(card.node, own.node) == 0) {
      ++on_node;
      CPU_OR(&processors, &processors, &card.may_use);
    }
  }
  return on_node > std::max(1, CPU_COUNT(&processors));
}

}  // namespace headroom::rpipe
