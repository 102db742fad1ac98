// See datatypes.h.
#include "mpi/backend/objects/datatypes.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/system_calls.h"
#include "mpi/backend/abi.h"
#include "mpi/backend/guards.h"
#include "mpi/backend/objects/communicators.h"
#include "mpi/backend/objects/reused_objects.h"

namespace headroom::mpi {
namespace {

ReusedObjects<Datatype> known_datatypes;
int datatype_key = MPI_KEYVAL_INVALID;

int forget_datatype(MPI_Datatype, int, void* value, void*) {
  auto* known = static_cast<Datatype*>(value);
  for (auto& entry : datatype_cache) {
    Datatype* cached = known;
    entry.compare_exchange_strong(cached, nullptr);
  }
  if (known->layout != nullptr) {
    core->endpoint.let_go(known->layout);
  }
  known_datatypes.give_back(known, MPI_DATATYPE_NULL);
  return MPI_SUCCESS;
}

Datatype* compile_datatype(MPI_Datatype handle) {
  Datatype* datatype = known_datatypes.take();
  Builder builder;
  datatype->usable = flatten(handle, builder) && !builder.failed();
  datatype->bytes = builder.bytes();
  const int64_t extent = extent_of(handle);
  datatype->extent = extent;
  if (datatype->usable && !core->endpoint.is_contiguous(builder, extent)) {
    datatype->layout = core->endpoint.finish_layout(builder, extent);
    datatype->usable = datatype->layout != nullptr;
  }
  if (!datatype->usable) {
    MPI_Count bytes = 0;
    real.Type_size_x[1](handle, &bytes);
    datatype->bytes = bytes > 0 ? static_cast<uint64_t>(bytes) : 0;
  }
  // release: a thread that has found it as another one's, and sees that it is this one's by now, sees the rest.
  datatype->handle.store(handle, std::memory_order_release);
  return datatype;
}

}  // namespace

std::atomic<Datatype*> datatype_cache[kDatatypeCache];

void begin_datatypes() { real.Type_create_keyval[1](MPI_TYPE_NULL_COPY_FN, forget_datatype, &datatype_key, nullptr); }

void make_empty(Builder& builder) {
  core->endpoint.drop_builder(builder);
  new (&builder) Builder;
}

void make_empty(FilePattern& pattern) { core->io.clear(pattern); }

void add_run(Builder& into, int64_t offset, uint64_t bytes) { core->endpoint.add_run(into, offset, bytes, 1, 0); }

void add_run(FilePattern& into, int64_t offset, uint64_t bytes) { core->io.add_run(into, offset, static_cast<int64_t>(bytes)); }

void add_elements(Builder& into, const Builder& element, int64_t offset, int64_t count, int64_t extent) {
  if (count > 0) {
    core->endpoint.add_layout(into, element, offset, static_cast<uint64_t>(count), extent);
  }
}

void add_elements(FilePattern& into, const FilePattern& element, int64_t offset, int64_t count, int64_t extent) {
  core->io.add_elements(into, element, offset, count, extent);
}

int64_t extent_of(MPI_Datatype datatype) {
  MPI_Aint lower = 0;
  MPI_Aint extent = 0;
  real.Type_get_extent[1](datatype, &lower, &extent);
  return extent;
}

bool pack_and_compare(const unsigned char* memory, MPI_Datatype datatype, unsigned char* raw, int bytes, uint16_t* packed) {
  for (int round = 0; round < 2; ++round) {
    const int before = round == 0 ? 0x00 : 0xff;
    memset(raw, before, static_cast<size_t>(bytes));
    int position = 0;
    if (real.Pack[1](memory, 1, datatype, raw, bytes, &position, MPI_COMM_SELF) != MPI_SUCCESS || position != bytes) {
      return false;
    }
    for (int index = 0; index < bytes; ++index) {
      packed[index] = round == 0 ? raw[index] : raw[index] == packed[index] ? packed[index] : uint16_t{256};
    }
  }
  return true;
}

bool form_of(MPI_Datatype datatype, Form& form) {
  if (real.Type_get_envelope_c[1] != nullptr) {  // the other one refuses those with large counts
    return real.Type_get_envelope_c[1](datatype, &form.integers, &form.addresses, &form.large_counts, &form.datatypes,
                                       &form.combiner) == MPI_SUCCESS;
  }
  int counts[3] = {};
  const int error = real.Type_get_envelope[1](datatype, &counts[0], &counts[1], &counts[2], &form.combiner);
  form.integers = counts[0];
  form.addresses = counts[1];
  form.datatypes = counts[2];
  return error == MPI_SUCCESS;
}

bool is_predefined(const Form& form) {
  return form.combiner == MPI_COMBINER_NAMED || form.combiner == MPI_COMBINER_F90_INTEGER ||
         form.combiner == MPI_COMBINER_F90_REAL || form.combiner == MPI_COMBINER_F90_COMPLEX;
}

Contents::Contents(MPI_Datatype datatype, const Form& form) : combiner(form.combiner), datatype_count(form.datatypes) {
  const auto integers = static_cast<size_t>(form.integers);
  const auto large = static_cast<size_t>(form.large_counts);
  const size_t all = 2 * integers + static_cast<size_t>(form.addresses) + 2 * large + static_cast<size_t>(form.datatypes) + 4;
  memory_ = calloc(all, sizeof(int64_t));
  if (memory_ == nullptr) {
    return;
  }
  auto* values = static_cast<int64_t*>(memory_);  // the numbers, integers and large counts alike
  auto* places = reinterpret_cast<MPI_Aint*>(values + integers + large + 1);
  auto* counts = reinterpret_cast<MPI_Count*>(places + form.addresses + 1);
  datatypes = reinterpret_cast<MPI_Datatype*>(counts + large + 1);
  auto* words = reinterpret_cast<int*>(datatypes + form.datatypes + 1);
  static_assert(sizeof(MPI_Aint) == sizeof(int64_t) && sizeof(MPI_Count) == sizeof(int64_t));
  known = large > 0 ? real.Type_get_contents_c[1](datatype, form.integers, form.addresses, form.large_counts, form.datatypes,
                                                  words, places, counts, datatypes) == MPI_SUCCESS
                    : real.Type_get_contents[1](datatype, static_cast<int>(form.integers), static_cast<int>(form.addresses),
                                                static_cast<int>(form.datatypes), words, places, datatypes) == MPI_SUCCESS;
  numbers = values;
  addresses = places;
  if (large == 0) {
    std::copy(words, words + integers, values);
  } else if (combiner == MPI_COMBINER_SUBARRAY) {
    values[0] = words[0];
    std::copy(counts, counts + large, values + 1);
    values[1 + large] = words[1];
  } else if (combiner == MPI_COMBINER_DARRAY) {
    std::copy(words, words + 3, values);
    std::copy(counts, counts + large, values + 3);
    std::copy(words + 3, words + integers, values + 3 + large);
  } else {
    std::copy(counts, counts + large, values);
    // The numbers that are addresses elsewhere are the last of the large counts.
    const bool one = combiner == MPI_COMBINER_HVECTOR;
    const bool many =
        combiner == MPI_COMBINER_STRUCT || combiner == MPI_COMBINER_HINDEXED || combiner == MPI_COMBINER_HINDEXED_BLOCK;
    addresses = one ? values + 2 : many ? values + large - values[0] : addresses;
  }
}

Datatype* look_up_datatype(MPI_Datatype handle) {
  if (handle == MPI_DATATYPE_NULL) {
    return nullptr;
  }
  const InsideLibrary inside;
  // Two threads that both set the attribute would free what the other one uses.
  const base::LockHolder lock(look_up_lock);
  void* value = nullptr;
  int found = 0;
  if (real.Type_get_attr[1](handle, datatype_key, &value, &found) != MPI_SUCCESS) {
    return nullptr;
  }
  if (found == 0) {
    value = compile_datatype(handle);
    if (value == nullptr || real.Type_set_attr[1](handle, datatype_key, value) != MPI_SUCCESS) {
      return nullptr;
    }
  }
  auto* known = static_cast<Datatype*>(value);
  datatype_cache[number_of(handle) % kDatatypeCache].store(known, std::memory_order_release);
  return known;
}

Datatype no_elements = {.handle = {}, .bytes = 0, .extent = 0, .layout = nullptr, .usable = true, .element = {}};

[[gnu::noinline]] bool takes_no_elements(const void* buffer, MPI_Datatype handle) {
  const InsideLibrary inside;
  return real.Send[1](buffer, 0, handle, MPI_PROC_NULL, 0, private_self) == MPI_SUCCESS;
}

}  // namespace headroom::mpi
