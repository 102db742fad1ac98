// Starting the pager, and the questions that other layers may ask about its memory; see pager.h.
#include "pager/pager.h"

#include <time.h>

#include <algorithm>

#include "base/log.h"
#include "pager/checksums.h"
#include "pager/divided_blocks.h"
#include "pager/huge_pages.h"
#include "pager/pager_thread.h"
#include "pager/read_buffers.h"
#include "pager/requests.h"
#include "pager/single_pages.h"
#include "pager/sparse_readers.h"
#include "pager/state.h"
#include "pager/wake_latency.h"
#include "trace/counters.h"
#include "trace/labels.h"
#include "trace/recorder.h"

namespace headroom::pager {

using detail::progress;
using detail::the_session;

namespace {

using base::Status;

/// Once the session has been joined.
Status start_as_member();

Status start_once() {
  const base::Settings& settings = base::settings();
  if (settings.memory == 0 || *settings.storage == 0) {
    base::log_warning("started without `headroom run`: no budget and no storage are set, so memory is left to the system");
    return Status::kUnavailable;
  }
  constexpr uint64_t kLargestTable =
      std::max(sizeof(node::Ledger), arena::kPartitionBytes / arena::kBlockBytes * sizeof(arena::BlockWord));
  if (!base::file_may_have(kLargestTable)) {
    base::log_warning(
        "memory is left to the system: the limit on file sizes (`ulimit -f`), which holds for memory files too, is below the "
        "%llu MiB of Headroom's tables",
        static_cast<unsigned long long>(kLargestTable >> 20));
    return Status::kUnavailable;
  }
  const base::Result<StoreFiles> files = open_store_files();
  if (!files.ok()) {
    base::die("cannot use the storage directory, see above");
  }
  state.files = files.value;
  state.engine = make_engine();
  state.store = make_store(state.files);
  char engine[32];
  char store[32];
  base::log_debug(base::Part::kPager, "engine %s, storage in %s by %s, %s",
                  base::choice_name("engine", static_cast<int>(state.engine->kind()), engine, sizeof engine), settings.storage,
                  base::choice_name("store", static_cast<int>(state.store->kind()), store, sizeof store),
                  state.files.direct ? "past the page cache" : "through the page cache");
  Status status = node::join_session(the_session);
  if (status == Status::kOk) {
    status = start_as_member();
  }
  return status;
}

Status start_as_member() {
  const base::Settings& settings = base::settings();
  arena::lay_out_partitions(the_session.ledger->places);
  if (arena::open_partition(partition(), the_session.index, may_have_huge_pages()) != Status::kOk) {
    return Status::kUnavailable;
  }
  base::log_debug(base::Part::kNode, "member %d of job '%s', budget %.1f MiB, huge pages %s", the_session.index, settings.job,
                  static_cast<double>(the_session.ledger->budget) / (1 << 20),
                  partition().huge_pages == arena::HugePages::kNowhere ? "nowhere" : "where the program may have them");
  state.session = &the_session;
  state.partition = &partition();
  node::Member& self = *the_session.self;
  trace::move_counters(self.counters);
  self.pager.engine.store(static_cast<uint32_t>(state.engine->kind()), std::memory_order_relaxed);
  self.pager.store.store(static_cast<uint32_t>(state.store->kind()), std::memory_order_relaxed);
  self.pager.store_direct.store(state.files.direct ? 1 : 0, std::memory_order_relaxed);
  self.partition.descriptor.store(partition().descriptor, std::memory_order_relaxed);
  self.partition.bytes.store(partition().limit.load(std::memory_order_relaxed), std::memory_order_relaxed);
  self.partition.inode.store(arena::inode_of(partition().descriptor), std::memory_order_release);
  self.partition.table_descriptor.store(partition().table_descriptor, std::memory_order_relaxed);
  self.partition.table_inode.store(arena::inode_of(partition().table_descriptor), std::memory_order_release);
  const uint64_t blocks = partition().limit / arena::kBlockBytes;
  state.may_touch_ahead = static_cast<std::atomic<bool>*>(base::reserve_memory(blocks));
  state.may_be_huge = static_cast<std::atomic<bool>*>(base::reserve_memory(blocks));
  const base::Result<int> requests = open_request_descriptor();
  if (!state.resident.open(blocks) || !open_single_pages(blocks) || !open_divided_blocks(blocks) ||
      !open_sparse_readers(blocks) || !open_read_buffers() || state.may_touch_ahead == nullptr ||
      state.may_be_huge == nullptr || !requests.ok()) {
    base::log_warning("no address space or descriptors for the pager (see `ulimit -v`, `ulimit -n`)");
    return Status::kNoMemory;
  }
  if (settings.checksums == base::ChecksumsChoice::kOn && !open_checksums(partition().limit / arena::kPageBytes)) {
    base::die("--checksums on: no address space for them (see `ulimit -v`)");
  }
  if (*settings.trace != 0 && trace::open_labels(blocks) && trace::open_trace(settings.trace)) {
    timespec now = {};
    (void)clock_gettime(CLOCK_REALTIME, &now);
    trace::record({base::monotonic_ns(),
                   trace::EventKind::kBegin,
                   0,
                   0,
                   {now.tv_sec * 1'000'000'000 + now.tv_nsec, the_session.ledger->budget,
                    static_cast<int64_t>(the_session.ledger->slots()), static_cast<int64_t>(arena::kBlockBytes),
                    trace::job_number(settings.job)}});
  }
  open_wake_latency();
  return start_pager_thread(requests.value) ? Status::kOk : Status::kUnavailable;
}

}  // namespace

Status start() {
  int expected = 0;
  if (progress.compare_exchange_strong(expected, 1, std::memory_order_acq_rel)) {
    const Status status = start_once();
    const base::Settings& settings = base::settings();
    if (status != Status::kOk && settings.memory != 0 &&
        (settings.engine != base::EngineChoice::kAuto || settings.store != base::StoreChoice::kAuto ||
         settings.mode != base::ModeChoice::kAuto)) {
      base::die("an engine, store or mode was asked for, but Headroom cannot manage this process's memory, see above");
    }
    if (status != Status::kOk) {
      trace::stop_counting();
      node::abandon_session(the_session);
    }
    progress.store(status == Status::kOk ? 2 : 3, std::memory_order_release);
    base::futex_wake(&progress, 1 << 20, false);
    return status;
  }
  while (progress.load(std::memory_order_acquire) == 1) {
    base::futex_wait(&progress, 1, -1, false);
  }
  return progress.load(std::memory_order_acquire) == 2 ? Status::kOk : Status::kUnavailable;
}

bool give_addresses_up(uintptr_t from) {
  if (progress.load(std::memory_order_acquire) != 2 || !arena::give_addresses_up(partition(), from)) {
    return false;
  }
  const uint64_t left = partition().limit.load(std::memory_order_relaxed);
  the_session.self->partition.bytes.store(left, std::memory_order_relaxed);
  if (left < static_cast<uint64_t>(the_session.ledger->budget) * 2) {
    base::log_warning(
        "a library of MPI's needs addresses that were meant for evictable memory: %llu MiB of it are left, and what "
        "this process allocates beyond stays in memory",
        static_cast<unsigned long long>(left >> 20));
  }
  return true;
}

bool engine_will_serve_kernel() {
  return state.engine != nullptr ? state.engine->serves_kernel() : may_have_engine_that_serves_kernel();
}

bool overlaps(const void* address, uint64_t bytes) {
  const arena::Partition& arena = partition();
  if (covers(address)) {
    return true;
  }
  const auto begin = reinterpret_cast<uintptr_t>(address);
  if (begin < arena.base && begin + bytes > arena.base) {
    return true;
  }
  const int count = arena.static_region_count.load(std::memory_order_acquire);
  for (int index = 0; index < count; ++index) {
    const arena::StaticRegion& region = arena.static_regions[index];
    if (begin < region.address && begin + bytes > region.address) {
      return true;
    }
  }
  return false;
}

void* alias_of(const void* address) {
  uint64_t offset = 0;
  (void)arena::find_offset(partition(), reinterpret_cast<uintptr_t>(address), offset);
  return reinterpret_cast<void*>(partition().alias + offset);
}

void set_idle(bool idle) { state.idle.store(idle, std::memory_order_relaxed); }

}  // namespace headroom::pager
