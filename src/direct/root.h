// The head of a member's area in message memory, which the others look for.
#pragma once

#include <atomic>
#include <cstdint>

#include "node/session.h"

namespace headroom::direct {

struct Root {
  alignas(64) std::atomic<uint32_t> sleeping;  // the owner sleeps, or is about to
  std::atomic<uint32_t> bell;                  // futex; changed to wake it
  std::atomic<uint32_t> away;                  // the owner's threads in blocking calls of the MPI library (away.cc)
  std::atomic<uint32_t> away_bell;             // futex: the owner's helper thread is wanted
  std::atomic<bool> asks_later;                // the owner has posted receives that must be asked (claim_message)
  alignas(64) std::atomic<uint32_t> opened;    // how many channels to the owner others have opened
  node::MemberSet opened_by;                   // those whose channels the owner has not found yet: added to before `opened`
  std::atomic<uint64_t> own_address;           // of this Root, in the owner: what others try to read by attaching
  alignas(64) std::atomic<bool> attaches_to[node::kMaxMembers];     // whether the owner can read that member's memory
  alignas(64) std::atomic<uint64_t> channel_to[node::kMaxMembers];  // first chunk of the owner's channel to each, or 0
};

}  // namespace headroom::direct
