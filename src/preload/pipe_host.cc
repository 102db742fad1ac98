// The table of services that pipes between ranks (src/rpipe, a library of its own) find in a process that runs under Headroom:
// turns, the budget, and the report. They look it up by its name.
#include "pager/pager.h"
#include "rpipe/host.h"
#include "sched/scheduler.h"
#include "trace/counters.h"

namespace headroom::preload {
namespace {

void begin_wait() {
  if (pager::is_running()) {
    sched::give_slot_up();
  }
}

void end_wait() {
  if (pager::is_running()) {
    sched::take_slot();
  }
}

/// Each rank must be able to have the memory that it computes with beside all that cannot leave memory.
bool take(uint64_t bytes) {
  if (!pager::is_running()) {
    return true;
  }
  node::Ledger& ledger = *pager::session().ledger;
  auto fixed = static_cast<int64_t>(bytes);
  for (const node::Member& member : ledger.used_members()) {
    if (node::is_alive(member)) {
      fixed += node::bytes_besides_blocks(member) + pager::kFloorBytes;
    }
  }
  if (fixed > ledger.budget) {
    return false;
  }
  node::take_for_message(ledger, *pager::session().self, static_cast<int64_t>(bytes));
  return true;
}

void give_back(uint64_t bytes) {
  if (pager::is_running()) {
    node::release_of_message(*pager::session().ledger, *pager::session().self, static_cast<int64_t>(bytes));
  }
}

void count(uint64_t messages, uint64_t bytes) {
  trace::count(trace::Counter::kMessagesPiped, messages);
  trace::count(trace::Counter::kMessagesPipedBytes, bytes);
}

}  // namespace
}  // namespace headroom::preload

extern "C" __attribute__((visibility("default"))) const headroom::rpipe::Host headroom_pipe_host = {
    headroom::rpipe::kHostVersion, sizeof(headroom::rpipe::Host), headroom::preload::begin_wait, headroom::preload::end_wait,
    headroom::preload::take,       headroom::preload::give_back,  headroom::preload::count};
