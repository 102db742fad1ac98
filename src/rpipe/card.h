// The card that a rank gives all others when pipes begin.
#pragma once

#include <sched.h>

#include <cstdint>
#include <vector>

namespace headroom::rpipe {

/// The library whose messages are to go between nodes, by a rank's environment.
enum class Wish : uint32_t { kNone, kMpi, kOfi, kWrong };

struct Card {
  uint64_t nonce;         // names its socket
  char host[64];          // its name, for messages
  char node[96];          // equal for ranks that can share memory: the kernel's boot, and the name space of sockets
  cpu_set_t may_use;      // processors
  uint32_t has_messages;  // MPI's, for ranks on other nodes
  Wish wish;
  int32_t error;  // a negative error number: it cannot begin, and so no rank does
};

/// This process's.
Card own_card(uint64_t nonce);
/// Whether there are more ranks on its node than processors that these may use.
bool has_fewer_processors_than_ranks(const std::vector<Card>& all, const Card& own);

}  // namespace headroom::rpipe
