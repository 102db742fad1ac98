// See functions.h.
#include "collio/functions.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include <algorithm>
#include <new>

#include "base/log.h"
#include "base/own_descriptors.h"
#include "base/settings.h"
#include "collio/window_memory.h"
#include "direct/endpoint.h"
#include "pager/pager.h"
#include "trace/counters.h"

namespace headroom::collio {
namespace {

bool describe(const Pattern& tile, int64_t origin, int64_t extent, int64_t skip, int64_t bytes, Opening& opening) {
  const int64_t tile_bytes = bytes_of(tile);
  opening.bytes = bytes;
  if (bytes == 0) {
    return true;
  }
  // No position may be beyond what a file can have.
  int64_t last = 0;
  int64_t end = 0;
  if (__builtin_add_overflow(skip, bytes - 1, &last) || __builtin_mul_overflow(last / tile_bytes + 1, extent, &end) ||
      __builtin_add_overflow(end, origin, &end)) {
    return false;
  }
  if (tile.list == nullptr) {
    const int64_t first_tile = skip / tile_bytes;
    Nest nest = tile.nest;
    nest.first += origin + first_tile * extent;
    opening.skip = skip - first_tile * tile_bytes;
    if (!repeat(nest, last / tile_bytes - first_tile + 1, extent) || !goes_forwards(nest)) {
      return false;
    }
    opening.nest = nest;
    opening.first = position_of(nest, opening.skip);
    opening.end = position_of(nest, opening.skip + bytes - 1) + 1;
  } else {
    const ViewOfPieces view = {tile.list, origin, extent};
    opening.flags |= kIsList;
    opening.skip = skip;
    opening.first = ViewWalk(view, skip).position();
    opening.end = ViewWalk(view, last).position() + 1;
  }
  return opening.first >= 0;
}

int64_t before(const Opening& opening, const ViewOfPieces& view, int64_t position) {
  if ((opening.flags & kIsList) == 0) {
    return bytes_before(opening, position);
  }
  const int64_t bytes = bytes_before(view, position) - opening.skip;
  return std::clamp<int64_t>(bytes, 0, opening.bytes);
}

void count_call(const IoSummary& call) {
  using trace::Counter;
  trace::count(call.writes ? Counter::kIoWrites : Counter::kIoReads);
  trace::count(call.writes ? Counter::kIoWritesBytes : Counter::kIoReadsBytes, static_cast<uint64_t>(call.bytes));
  trace::count(Counter::kIoApart, call.apart ? 1 : 0);
  trace::count(Counter::kIoAggregated, call.aggregated ? 1 : 0);
  trace::count(Counter::kIoByLibrary, call.by_library ? 1 : 0);
  trace::count(Counter::kIoWindows, static_cast<uint64_t>(call.outcome.windows));
  trace::count(Counter::kIoWindowsReadFirst, static_cast<uint64_t>(call.outcome.rounds_read_first));
  trace::count(Counter::kIoWindowsDropped, static_cast<uint64_t>(call.outcome.windows_dropped));
  trace::count_peak(Counter::kIoWindowBytesPeak, static_cast<uint64_t>(call.outcome.window_bytes));
  trace::count(Counter::kIoErrors, call.outcome.error != 0 ? 1 : 0);
}

void count_passed(IoPassedFor why) {
  using trace::Counter;
  switch (why) {
    case IoPassedFor::kNot:
      return;
    case IoPassedFor::kFileSystem:
      trace::count(Counter::kIoPassedForFileSystem);
      return;
    case IoPassedFor::kMode:
      trace::count(Counter::kIoPassedForMode);
      return;
    case IoPassedFor::kRepresentation:
      trace::count(Counter::kIoPassedForRepresentation);
      return;
    case IoPassedFor::kDatatypes:
      trace::count(Counter::kIoPassedForDatatypes);
      return;
    case IoPassedFor::kArguments:
      trace::count(Counter::kIoPassedForArguments);
      return;
    case IoPassedFor::kCommunicator:
      trace::count(Counter::kIoPassedForCommunicator);
      return;
    case IoPassedFor::kAsked:
      trace::count(Counter::kIoPassedAsAsked);
      return;
  }
}

void say_refused(const char* why) {
  if (pager::session().ledger->told_of_withheld_views.exchange(1, std::memory_order_relaxed) == 0) {
    base::log_warning(
        "a call on a file is refused: %s, and the MPI library was not given the file's view, since it has so many pieces that "
        "it would take much memory; set the hint headroom_view=now in MPI_File_set_view",
        why);
  }
}

}  // namespace

IoFunctions io_functions() {
  IoFunctions functions = {};
  functions.add_run = add_run;
  functions.add_elements = add_elements;
  functions.end_pattern = end_pattern;
  functions.pieces_of = pieces_of;
  functions.clear = clear;
  functions.describe = describe;
  functions.bytes_before = before;
  functions.open_file = [](const char* path, int flags) {
    const int file = open(path, flags | O_CLOEXEC);  // the name may be on storage
    return file < 0 ? -errno : base::own(file);
  };
  functions.close_file = base::close_own;
  functions.posix_file = posix_file;
  functions.limit_read_ahead = limit_read_ahead;
  functions.file_system_of = file_system_of;
  functions.room = room_for_windows;
  functions.is_interleaved = is_interleaved;
  functions.make_domains = make_domains;
  functions.slots_needed = Call::slots_needed;
  functions.begin = [](const CallDescription& description) -> Call* {
    void* memory = malloc(sizeof(Call));
    Call* call = memory == nullptr ? nullptr : new (memory) Call;
    return call != nullptr && call->begin(description) ? call : nullptr;
  };
  functions.step = [](Call* call) { return call->step(); };
  functions.is_done = [](Call* call) { return call->is_done(); };
  functions.end = [](Call* call) {
    const Outcome outcome = call->outcome();
    call->~Call();
    free(call);
    return outcome;
  };
  functions.access_alone = access_alone;
  functions.wake_self = [] { direct::endpoint().wake(pager::session().index); };
  functions.is_wanted = [] { return base::settings().collective_io == base::CollectiveIoChoice::kAuto; };
  functions.count = count_call;
  functions.count_passed = count_passed;
  functions.count_withheld = [] { trace::count(trace::Counter::kIoViewsWithheld); };
  functions.count_given = [] { trace::count(trace::Counter::kIoViewsGiven); };
  functions.count_alone = [](int64_t bytes) {
    trace::count(trace::Counter::kIoAlone);
    trace::count(trace::Counter::kIoAloneBytes, static_cast<uint64_t>(bytes));
  };
  functions.say_no_shared = [] { say_refused("it goes by the position that ranks share"); };
  functions.say_not_alone = [] { say_refused("its datatype is too large and strange to be taken apart"); };
  functions.say_not_posix = [](const char* path, IoPassedFor why) {
    const char* const reason = why == IoPassedFor::kCommunicator ? "its communicator's messages are the MPI library's"
                               : why == IoPassedFor::kAsked      ? "--collective-io is off"
                               : why == IoPassedFor::kMode       ? "it is opened for sequential access"
                                                           : "some rank cannot open it a second time, or its name has a prefix";
    base::log_warning("MPI_File_open: the hint headroom_driver=posix cannot be had for %s: %s; leave the hint out", path,
                      reason);
  };
  return functions;
}

}  // namespace headroom::collio
