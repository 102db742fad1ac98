// The state of the pager, and the questions about it that need nothing else.
#include "pager/state.h"

#include "pager/pager.h"
#include "pager/transition_lock.h"

namespace headroom::pager {

constinit State state;
base::FutexLock transition_lock;

namespace detail {
arena::Partition the_partition;
node::Session the_session;
std::atomic<int> progress{0};
}  // namespace detail

bool is_armed() { return state.armed_for_all.load(std::memory_order_acquire); }
bool engine_serves_kernel() { return state.engine != nullptr && state.engine->serves_kernel(); }
base::EngineChoice engine() { return state.engine->kind(); }
bool is_forked_child() { return state.forked_child.load(std::memory_order_relaxed); }
uint64_t pinned_bytes_now() { return state.pinned_bytes.load(std::memory_order_relaxed); }

}  // namespace headroom::pager
