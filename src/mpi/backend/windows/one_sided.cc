// See one_sided.h.
#include "mpi/backend/windows/one_sided.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "direct/endpoint.h"
#include "mpi/backend/abi.h"
#include "mpi/backend/collectives/collectives.h"
#include "mpi/backend/collectives/exchange.h"
#include "mpi/backend/guards.h"
#include "mpi/backend/messages/direct_requests.h"
#include "mpi/backend/messages/ending.h"
#include "mpi/backend/objects/communicators.h"
#include "mpi/backend/objects/datatypes.h"
#include "mpi/backend/objects/operations.h"
#include "mpi/backend/windows/epochs.h"
#include "mpi/backend/windows/windows.h"

namespace headroom::mpi {
namespace {

/// A place in a rank's part; `part` is nullptr where there is nothing to do, or `error` was raised.
struct Place {
  const direct::WindowPart* part = nullptr;
  direct::Content content = {};
  const Datatype* datatype = nullptr;
  int error = MPI_SUCCESS;
};

bool may_reach(const Window& window, int rank) { return window.fenced || window.all_locked || window.reach[rank] != 0; }

/// Whether `count` elements from `displacement` on lie within the part; their content then.
bool find_content(const direct::WindowPart& part, MPI_Aint displacement, MPI_Count count, const Datatype& datatype,
                  direct::Content& content) {
  int64_t offset = 0;
  uint64_t bytes = 0;
  int64_t reach = 0;
  content = {core->windows.address(part, 0), 0, nullptr};
  if (count == 0 || datatype.bytes == 0) {
    return true;
  }
  // Far more than addresses there are, and little enough to be added up. A datatype may begin far from its origin.
  constexpr int64_t kFar = int64_t{1} << 60;
  const auto limit = static_cast<int64_t>(part.bytes);
  if (__builtin_mul_overflow(displacement, part.unit, &offset) || offset < -kFar || offset > kFar ||
      __builtin_mul_overflow(static_cast<uint64_t>(count), datatype.bytes, &bytes) || bytes > static_cast<uint64_t>(kFar) ||
      __builtin_mul_overflow(static_cast<int64_t>(count) - 1, datatype.extent, &reach) || reach > kFar || reach < -kFar) {
    return false;
  }
  content = {core->windows.address(part, offset), bytes, datatype.layout};
  const direct::Span span = core->windows.span(content);
  const int64_t first = span.begin - core->windows.address(part, 0);
  return first >= 0 && span.bytes <= part.bytes && first <= limit - static_cast<int64_t>(span.bytes);
}

Place place_in(const Window& window, int rank, MPI_Aint displacement, MPI_Count count, MPI_Datatype datatype) {
  Place place;
  if (rank == MPI_PROC_NULL) {
    return place;
  }
  Datatype* known = count >= 0 ? datatype_of(datatype) : nullptr;
  int error = MPI_SUCCESS;
  if (!is_rank_of(window, rank)) {
    error = MPI_ERR_RANK;
  } else if (known == nullptr || !known->usable) {
    error = count < 0 ? MPI_ERR_COUNT : MPI_ERR_TYPE;
  } else if (!may_reach(window, rank)) {
    error = MPI_ERR_RMA_SYNC;
  } else {
    const direct::WindowPart& part = window.parts[rank];
    error = find_content(part, displacement, count, *known, place.content) ? MPI_SUCCESS : MPI_ERR_RMA_RANGE;
    place.part = &part;
    place.datatype = known;
  }
  if (error != MPI_SUCCESS) {
    place.part = nullptr;
    place.error = raise_window_error(window, error);
  }
  return place;
}

/// The program's own buffer of a call.
class Buffer {
 public:
  Buffer(const Window& window, const void* address, MPI_Count count, MPI_Datatype datatype, bool is_read) {
    const Datatype* known = datatype != MPI_DATATYPE_NULL ? operand_type(address, count, datatype) : nullptr;
    if (known == nullptr) {
      error_ = raise_window_error(window, count < 0 ? MPI_ERR_COUNT : address == nullptr ? MPI_ERR_BUFFER : MPI_ERR_TYPE);
      return;
    }
    content_ = is_read ? operands_.sent(address, count, datatype, *known)
                       : operands_.received(const_cast<void*>(address), count, datatype, *known);
  }
  /// Whether the call goes on; else error() was raised.
  [[nodiscard]] bool is_good() const { return error_ == MPI_SUCCESS; }
  [[nodiscard]] const direct::Content& content() const { return content_; }
  [[nodiscard]] int error() const { return error_; }
  /// At the end of the call.
  int conclude(const Window& window) {
    const int error = operands_.conclude(Exchange());
    return error != MPI_SUCCESS ? raise_window_error(window, error) : MPI_SUCCESS;
  }

 private:
  Operands operands_;
  direct::Content content_ = {};
  int error_ = MPI_SUCCESS;
};

/// A program that fetches the same short content from the same place again polls.
void note_fetched(Window& window, const Place& place, const direct::Content& fetched) {
  constexpr uint64_t kPolled = 64;
  progress_at_times();
  if (!core->counts_polls()) {
    return;
  }
  uint64_t seen = 0;
  if (fetched.layout == nullptr && fetched.bytes <= kPolled) {
    seen = reinterpret_cast<uint64_t>(place.content.address);
    for (uint64_t at = 0; at < fetched.bytes; ++at) {
      seen = mix(seen, static_cast<unsigned char>(fetched.address[at]));
    }
  }
  core->polled(seen == 0 || seen != window.last_fetched, {});
  window.last_fetched = seen;
}

/// The predefined datatype that a datatype is made of (MPI wants it to be one); MPI_DATATYPE_NULL if it is not found.
MPI_Datatype element_type(MPI_Datatype datatype) {
  Form form;
  if (!form_of(datatype, form)) {
    return MPI_DATATYPE_NULL;
  }
  if (is_predefined(form)) {
    return datatype;
  }
  const Contents contents(datatype, form);
  return contents.known && contents.datatype_count > 0 ? element_type(contents.datatypes[0]) : MPI_DATATYPE_NULL;
}

/// The operation of MPI_Accumulate and its kin on elements.
struct FoldOfElements : direct::Fold {
  MPI_Op op;
  MPI_Datatype datatype;
  bool compares;  // MPI_Compare_and_swap, with
  alignas(32) char compared[32];

  static void apply(const direct::Fold& self, const void* from, void* into, uint64_t count) {
    const auto& fold = static_cast<const FoldOfElements&>(self);
    if (fold.compares) {
      if (memcmp(fold.compared, into, fold.packed_bytes) == 0) {
        memcpy(into, from, fold.packed_bytes);
      }
      return;
    }
    if (count == 1 && fold.op == MPI_SUM && add_one(fold.datatype, from, into)) {
      return;
    }
    const InsideLibrary inside;
    real.Reduce_local[1](from, into, static_cast<int>(count), fold.datatype, fold.op);
  }

  /// The usual counters, without a call of the library.
  static bool add_one(MPI_Datatype datatype, const void* from, void* into) {
    if (datatype == MPI_INT64_T || datatype == MPI_LONG || datatype == MPI_UINT64_T || datatype == MPI_UNSIGNED_LONG) {
      *static_cast<uint64_t*>(into) += *static_cast<const uint64_t*>(from);
    } else if (datatype == MPI_INT || datatype == MPI_INT32_T || datatype == MPI_UINT32_T || datatype == MPI_UNSIGNED) {
      *static_cast<uint32_t*>(into) += *static_cast<const uint32_t*>(from);
    } else if (datatype == MPI_DOUBLE) {
      *static_cast<double*>(into) += *static_cast<const double*>(from);
    } else {
      return false;
    }
    return true;
  }
};

constexpr int64_t kLargestElement = 256;

/// Whether the library's reduction takes the operation on such elements: it would complain to another error handler than the
/// window's. Of elements that are not known here it is the judge.
bool may_accumulate(MPI_Op op, MPI_Datatype element) {
  const Operation operation = operation_of(op);
  const Elements elements = elements_of(element);
  const bool is_usual = operation != Operation::kPlace && operation != Operation::kPrograms && operation != Operation::kNone;
  return op == MPI_REPLACE || op == MPI_NO_OP || is_defined(operation, elements) || (is_usual && elements == Elements::kOther);
}

/// How elements of the place are folded: MPI_SUCCESS, or the error.
int describe_fold(const Place& place, MPI_Datatype datatype, MPI_Op op, const void* compared, FoldOfElements& fold) {
  const InsideLibrary inside;
  auto* known = const_cast<Datatype*>(place.datatype);
  if (known->element == MPI_Datatype{}) {
    known->element = element_type(datatype);
  }
  const Datatype* element = datatype_of(known->element);
  if (element == nullptr || !element->usable || element->bytes == 0 || element->extent > kLargestElement ||
      (compared != nullptr && (element->bytes > sizeof fold.compared || element->layout != nullptr))) {
    return MPI_ERR_TYPE;
  }
  if (compared == nullptr && !may_accumulate(op, known->element)) {
    return MPI_ERR_OP;
  }
  fold.what = op == MPI_NO_OP     ? direct::Fold::What::kNothing
              : op == MPI_REPLACE ? direct::Fold::What::kReplace
                                  : direct::Fold::What::kCombine;
  fold.packed_bytes = element->bytes;
  fold.extent = element->extent;
  fold.layout = element->layout;
  fold.combine = FoldOfElements::apply;
  fold.op = op;
  fold.datatype = known->element;
  fold.compares = compared != nullptr;
  if (fold.compares) {
    memcpy(fold.compared, compared, element->bytes);
  }
  return MPI_SUCCESS;
}

/// `before` may be nullptr.
int fold_in_window(Window& window, const Place& place, const FoldOfElements& fold, Buffer* from, Buffer* before) {
  direct::Content there = place.content;
  direct::Content operand = from != nullptr ? from->content() : direct::Content{};
  direct::Content fetched = before != nullptr ? before->content() : direct::Content{};
  there.bytes = from != nullptr ? std::min(there.bytes, operand.bytes) : there.bytes;
  there.bytes = before != nullptr ? std::min(there.bytes, fetched.bytes) : there.bytes;
  there.bytes -= there.bytes % fold.packed_bytes;
  operand.bytes = there.bytes;
  fetched.bytes = there.bytes;
  core->windows.fold(*place.part, there, from != nullptr ? &operand : nullptr, before != nullptr ? &fetched : nullptr, fold);
  if (before == nullptr) {
    note_polling(true);
    return from->conclude(window);
  }
  note_fetched(window, place, fetched);
  const int error = from != nullptr ? from->conclude(window) : MPI_SUCCESS;
  return error != MPI_SUCCESS ? error : before->conclude(window);
}

/// The request of a call that is over.
int complete_request(const Window& window, int error, MPI_Request* handle) {
  if (error != MPI_SUCCESS) {
    return error;
  }
  DirectRequest* request = take_request(MPI_COMM_SELF);
  if (request == nullptr) {
    return raise_window_error(window, MPI_ERR_NO_MEM);
  }
  request->kind = RequestKind::kSend;
  request->active = true;
  request->comm = MPI_COMM_SELF;
  request->sending = nullptr;
  *handle = request->handle;
  return MPI_SUCCESS;
}

}  // namespace

int direct_Put(Window& window, const void* origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype, int target_rank,
               MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype target_datatype) {
  const Place place = place_in(window, target_rank, target_disp, target_count, target_datatype);
  if (place.part == nullptr) {
    return place.error;
  }
  Buffer buffer(window, origin_addr, origin_count, origin_datatype, true);
  if (!buffer.is_good()) {
    return buffer.error();
  }
  core->windows.put(*place.part, place.content, buffer.content());
  note_polling(true);
  return buffer.conclude(window);
}

int direct_Get(Window& window, void* origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype, int target_rank,
               MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype target_datatype) {
  const Place place = place_in(window, target_rank, target_disp, target_count, target_datatype);
  if (place.part == nullptr) {
    return place.error;
  }
  Buffer buffer(window, origin_addr, origin_count, origin_datatype, false);
  if (!buffer.is_good()) {
    return buffer.error();
  }
  core->windows.get(*place.part, place.content, buffer.content());
  note_fetched(window, place, buffer.content());
  return buffer.conclude(window);
}

int direct_Accumulate(Window& window, const void* origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype,
                      int target_rank, MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype target_datatype, MPI_Op op) {
  const Place place = place_in(window, target_rank, target_disp, target_count, target_datatype);
  if (place.part == nullptr) {
    return place.error;
  }
  FoldOfElements fold = {};
  if (place.content.bytes == 0) {
    return MPI_SUCCESS;
  }
  if (const int error = describe_fold(place, target_datatype, op, nullptr, fold); error != MPI_SUCCESS) {
    return raise_window_error(window, error);
  }
  if (op == MPI_NO_OP) {
    return MPI_SUCCESS;
  }
  Buffer buffer(window, origin_addr, origin_count, origin_datatype, true);
  return buffer.is_good() ? fold_in_window(window, place, fold, &buffer, nullptr) : buffer.error();
}

int direct_Get_accumulate(Window& window, const void* origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype,
                          void* result_addr, MPI_Count result_count, MPI_Datatype result_datatype, int target_rank,
                          MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype target_datatype, MPI_Op op) {
  const Place place = place_in(window, target_rank, target_disp, target_count, target_datatype);
  if (place.part == nullptr) {
    return place.error;
  }
  FoldOfElements fold = {};
  if (place.content.bytes == 0) {
    return MPI_SUCCESS;
  }
  if (const int error = describe_fold(place, target_datatype, op, nullptr, fold); error != MPI_SUCCESS) {
    return raise_window_error(window, error);
  }
  Buffer before(window, result_addr, result_count, result_datatype, false);
  if (!before.is_good()) {
    return before.error();
  }
  if (op == MPI_NO_OP) {
    return fold_in_window(window, place, fold, nullptr, &before);
  }
  Buffer buffer(window, origin_addr, origin_count, origin_datatype, true);
  return buffer.is_good() ? fold_in_window(window, place, fold, &buffer, &before) : buffer.error();
}

int direct_Fetch_and_op(Window& window, const void* origin_addr, void* result_addr, MPI_Datatype datatype, int target_rank,
                        MPI_Aint target_disp, MPI_Op op) {
  return direct_Get_accumulate(window, origin_addr, 1, datatype, result_addr, 1, datatype, target_rank, target_disp, 1,
                               datatype, op);
}

int direct_Compare_and_swap(Window& window, const void* origin_addr, const void* compare_addr, void* result_addr,
                            MPI_Datatype datatype, int target_rank, MPI_Aint target_disp) {
  const Place place = place_in(window, target_rank, target_disp, 1, datatype);
  if (place.part == nullptr) {
    return place.error;
  }
  FoldOfElements fold = {};
  const int wrong = compare_addr == nullptr ? MPI_ERR_BUFFER : describe_fold(place, datatype, MPI_OP_NULL, compare_addr, fold);
  if (wrong != MPI_SUCCESS) {
    return raise_window_error(window, wrong);
  }
  Buffer buffer(window, origin_addr, 1, datatype, true);
  Buffer before(window, result_addr, 1, datatype, false);
  if (!buffer.is_good() || !before.is_good()) {
    return buffer.is_good() ? before.error() : buffer.error();
  }
  return fold_in_window(window, place, fold, &buffer, &before);
}

int direct_Rput(Window& window, const void* origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype, int target_rank,
                MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype target_datatype, MPI_Request* request) {
  return complete_request(
      window,
      direct_Put(window, origin_addr, origin_count, origin_datatype, target_rank, target_disp, target_count, target_datatype),
      request);
}

int direct_Rget(Window& window, void* origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype, int target_rank,
                MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype target_datatype, MPI_Request* request) {
  return complete_request(
      window,
      direct_Get(window, origin_addr, origin_count, origin_datatype, target_rank, target_disp, target_count, target_datatype),
      request);
}

int direct_Raccumulate(Window& window, const void* origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype,
                       int target_rank, MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype target_datatype, MPI_Op op,
                       MPI_Request* request) {
  return complete_request(window,
                          direct_Accumulate(window, origin_addr, origin_count, origin_datatype, target_rank, target_disp,
                                            target_count, target_datatype, op),
                          request);
}

int direct_Rget_accumulate(Window& window, const void* origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype,
                           void* result_addr, MPI_Count result_count, MPI_Datatype result_datatype, int target_rank,
                           MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype target_datatype, MPI_Op op,
                           MPI_Request* request) {
  return complete_request(window,
                          direct_Get_accumulate(window, origin_addr, origin_count, origin_datatype, result_addr, result_count,
                                                result_datatype, target_rank, target_disp, target_count, target_datatype, op),
                          request);
}

}  // namespace headroom::mpi
