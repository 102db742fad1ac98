// Datatypes as layouts. See direct/layout.h.
//
// A datatype is compiled when it is first used for a direct message: its constructors are taken apart, and where that cannot be
// done (new constructors) the library is asked by packing an element whose bytes say where they are. The result hangs on an
// attribute of the datatype and goes with it, once no message in flight needs it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "collio/functions.h"
#include "direct/endpoint.h"
#include "mpi/backend/abi.h"
#include "mpi/backend/objects/communicators.h"

namespace headroom::mpi {

struct Datatype {
  std::atomic<MPI_Datatype> handle;
  uint64_t bytes;          // of one element, without gaps
  int64_t extent;          // from one element to the next
  direct::Layout* layout;  // nullptr: without gaps
  bool usable;             // false: so large and strange that the library packs it
  MPI_Datatype element;    // the predefined one that it is made of; MPI_Datatype{}: not asked for yet (windows/one_sided.cc)
  Datatype* next_unused = nullptr;
};

constexpr int kDatatypeCache = 64;

extern std::atomic<Datatype*> datatype_cache[kDatatypeCache];

/// In MPI_Init: makes the attribute that a Datatype hangs on.
void begin_datatypes();

/// A builder that gives its memory back.
struct Builder : direct::LayoutBuilder {
  ~Builder() { core->endpoint.drop_builder(*this); }
};

/// The same of a file view.
struct FilePattern : collio::Pattern {
  FilePattern() = default;
  ~FilePattern() { core->io.clear(*this); }
  FilePattern(const FilePattern&) = delete;
  FilePattern& operator=(const FilePattern&) = delete;
};

/// As new.
void make_empty(Builder& builder);
void make_empty(FilePattern& pattern);

/// Adds bytes that lie one after the other.
void add_run(Builder& into, int64_t offset, uint64_t bytes);
void add_run(FilePattern& into, int64_t offset, uint64_t bytes);

/// Adds `count` elements of a datatype, each `extent` after the other.
void add_elements(Builder& into, const Builder& element, int64_t offset, int64_t count, int64_t extent);

void add_elements(FilePattern& into, const FilePattern& element, int64_t offset, int64_t count, int64_t extent);

/// Adds the runs of one element; false if that is not known how.
template <typename Into>
bool flatten(MPI_Datatype datatype, Into& into);

/// In bytes, as MPI_Type_get_extent.
int64_t extent_of(MPI_Datatype datatype);

/// A committed copy of a datatype: a part of another one need not be committed. Not by MPI_Type_dup, which would call the copy
/// functions of the program's attributes.
class Committed {
 public:
  explicit Committed(MPI_Datatype datatype) {
    real.Type_contiguous[1](1, datatype, &copy_);
    real.Type_commit[1](&copy_);
  }
  ~Committed() { real.Type_free[1](&copy_); }
  Committed(const Committed&) = delete;
  Committed& operator=(const Committed&) = delete;
  [[nodiscard]] MPI_Datatype get() const { return copy_; }

 private:
  MPI_Datatype copy_ = MPI_DATATYPE_NULL;
};

/// Packs one element twice, into memory that held something else each time; `packed` has 256 where nothing was written: some
/// libraries copy a long double without the bytes that mean nothing.
bool pack_and_compare(const unsigned char* memory, MPI_Datatype datatype, unsigned char* raw, int bytes, uint16_t* packed);

/// Asks the library where the bytes of one element are: packs memory whose bytes say, one digit at a time, where they are.
template <typename Into>
bool flatten_by_packing(MPI_Datatype datatype, Into& into) {
  const Committed committed(datatype);
  constexpr MPI_Aint kMost = 64 << 20;
  MPI_Aint lower = 0;
  MPI_Aint extent = 0;
  int bytes = 0;
  if (real.Type_get_true_extent[1](datatype, &lower, &extent) != MPI_SUCCESS || extent > kMost || extent < 0 ||
      real.Type_size[1](datatype, &bytes) != MPI_SUCCESS || bytes < 0) {
    return false;
  }
  const auto count = static_cast<size_t>(bytes);
  auto* memory = static_cast<unsigned char*>(malloc(static_cast<size_t>(extent) + 1));
  auto* raw = static_cast<unsigned char*>(malloc(count + 1));
  auto* packed = static_cast<uint16_t*>(malloc((count + 1) * sizeof(uint16_t)));
  auto* place = static_cast<uint32_t*>(calloc(count + 1, sizeof(uint32_t)));
  bool done = memory != nullptr && raw != nullptr && packed != nullptr && place != nullptr;
  for (int digit = 0; done && digit < 4; ++digit) {
    for (MPI_Aint at = 0; at < extent; ++at) {
      memory[at] = static_cast<unsigned char>(at >> (8 * digit));
    }
    done = pack_and_compare(memory - lower, committed.get(), raw, bytes, packed);
    for (size_t index = 0; done && index < count; ++index) {
      // A byte that is not copied belongs to the one before it.
      const bool is_padding = packed[index] == 256;
      done = !is_padding || index > 0;
      place[index] = is_padding ? digit == 3 && index > 0 ? place[index - 1] + 1 : 0
                                : place[index] | static_cast<uint32_t>(packed[index]) << (8 * digit);
    }
  }
  for (size_t index = 0; done && index < count;) {
    size_t run = 1;
    while (index + run < count && place[index + run] == place[index] + run) {
      ++run;
    }
    add_run(into, lower + place[index], run);
    index += run;
  }
  free(memory);
  free(raw);
  free(packed);
  free(place);
  return done;
}

/// How a datatype was made: how many arguments of each kind.
struct Form {
  int combiner = MPI_COMBINER_NAMED;
  MPI_Count integers = 0;
  MPI_Count addresses = 0;
  MPI_Count large_counts = 0;  // by a constructor with large counts
  MPI_Count datatypes = 0;
};

/// False if `datatype` is none.
bool form_of(MPI_Datatype datatype, Form& form);

/// Whether it is MPI's own, and must not be freed.
bool is_predefined(const Form& form);

/// The arguments that a datatype was made with, those of constructors with large counts as those of the others.
class Contents {
 public:
  Contents(MPI_Datatype datatype, const Form& form);
  ~Contents() {
    for (MPI_Count index = 0; known && index < datatype_count; ++index) {
      Form part;
      if (form_of(datatypes[index], part) && !is_predefined(part)) {
        real.Type_free[1](&datatypes[index]);
      }
    }
    free(memory_);
  }
  Contents(const Contents&) = delete;
  Contents& operator=(const Contents&) = delete;

  const int combiner;
  bool known = false;
  const int64_t* numbers = nullptr;  // as MPI_Type_get_contents orders them
  const int64_t* addresses = nullptr;
  MPI_Datatype* datatypes = nullptr;
  const MPI_Count datatype_count;

 private:
  void* memory_ = nullptr;
};

/// One element of the only old datatype.
template <typename Into>
struct Old {
  Into element;
  int64_t extent = 0;
  bool done = false;
  explicit Old(MPI_Datatype datatype) : extent(extent_of(datatype)), done(flatten(datatype, element)) {}
};

template <typename Into>
void add_subarray(Into& into, const Old<Into>& old, const int64_t* sizes, const int64_t* parts, const int64_t* starts,
                  int64_t dimensions, bool c_order) {
  // From the dimension that changes fastest outwards: each level repeats the one below.
  Into levels[2];
  const Into* below = &old.element;
  int64_t stride = old.extent;
  int64_t offset = 0;
  for (int64_t level = 0; level < dimensions; ++level) {
    const int64_t dimension = c_order ? dimensions - 1 - level : level;
    Into& here = level == dimensions - 1 ? into : levels[level % 2];
    if (level < dimensions - 1) {
      make_empty(here);
    }
    offset += starts[dimension] * stride;
    add_elements(here, *below, level == dimensions - 1 ? offset : 0, parts[dimension], stride);
    stride *= sizes[dimension];
    below = &here;
  }
}

/// One process's part of an array that is spread over a grid of processes: in each dimension blocks, all of one length but the
/// last, dealt out in turn.
template <typename Into>
void add_darray(Into& into, const Old<Into>& old, const int64_t* numbers) {
  const int64_t dimensions = numbers[2];
  const int64_t* const sizes = numbers + 3;
  const int64_t* const kinds = sizes + dimensions;
  const int64_t* const arguments = kinds + dimensions;
  const int64_t* const grid = arguments + dimensions;
  const bool c_order = grid[dimensions] == MPI_ORDER_C;
  Into levels[2];
  const Into* below = &old.element;
  int64_t stride = old.extent;
  for (int64_t level = 0; level < dimensions; ++level) {
    const int64_t dimension = c_order ? dimensions - 1 - level : level;
    Into& here = level == dimensions - 1 ? into : levels[level % 2];
    if (level < dimensions - 1) {
      make_empty(here);
    }
    int64_t place = numbers[1];  // in the grid, whose ranks count the last dimension up first, whatever the array's order
    for (int64_t later = dimensions - 1; later > dimension; --later) {
      place /= grid[later];
    }
    place %= grid[dimension];
    const int64_t size = sizes[dimension];
    const int64_t kind = kinds[dimension];
    const bool by_default = arguments[dimension] == MPI_DISTRIBUTE_DFLT_DARG;
    const int64_t equal = kind == MPI_DISTRIBUTE_BLOCK ? (size + grid[dimension] - 1) / grid[dimension] : 1;
    const int64_t length = kind == MPI_DISTRIBUTE_NONE ? size : by_default ? equal : arguments[dimension];
    const int64_t step = length * grid[dimension];
    const int64_t first = place * length;
    const int64_t whole = size - first >= length ? (size - first - length) / step + 1 : 0;
    Into block;
    add_elements(block, *below, 0, length, stride);
    add_elements(here, block, first * stride, whole, step * stride);
    const int64_t last = first + whole * step;
    add_elements(here, *below, last * stride, size - last, stride);
    stride *= size;
    below = &here;
  }
}

template <typename Into>
bool flatten_contents(const Contents& from, Into& into) {
  const int64_t* numbers = from.numbers;
  if (from.combiner == MPI_COMBINER_STRUCT) {
    for (int64_t index = 0; index < numbers[0]; ++index) {
      const Old<Into> old(from.datatypes[index]);
      if (!old.done) {
        return false;
      }
      add_elements(into, old.element, from.addresses[index], numbers[1 + index], old.extent);
    }
    return true;
  }
  const Old<Into> old(from.datatypes[0]);
  if (!old.done) {
    return false;
  }
  const int64_t extent = old.extent;
  switch (from.combiner) {
    case MPI_COMBINER_DUP:
    case MPI_COMBINER_RESIZED:
      add_elements(into, old.element, 0, 1, extent);
      return true;
    case MPI_COMBINER_CONTIGUOUS:
      add_elements(into, old.element, 0, numbers[0], extent);
      return true;
    case MPI_COMBINER_VECTOR:
    case MPI_COMBINER_HVECTOR: {
      Into block;
      add_elements(block, old.element, 0, numbers[1], extent);
      const int64_t stride = from.combiner == MPI_COMBINER_VECTOR ? numbers[2] * extent : from.addresses[0];
      add_elements(into, block, 0, numbers[0], stride);
      return true;
    }
    case MPI_COMBINER_INDEXED:
      for (int64_t index = 0; index < numbers[0]; ++index) {
        add_elements(into, old.element, numbers[1 + numbers[0] + index] * extent, numbers[1 + index], extent);
      }
      return true;
    case MPI_COMBINER_HINDEXED:
      for (int64_t index = 0; index < numbers[0]; ++index) {
        add_elements(into, old.element, from.addresses[index], numbers[1 + index], extent);
      }
      return true;
    case MPI_COMBINER_INDEXED_BLOCK:
      for (int64_t index = 0; index < numbers[0]; ++index) {
        add_elements(into, old.element, numbers[2 + index] * extent, numbers[1], extent);
      }
      return true;
    case MPI_COMBINER_HINDEXED_BLOCK:
      for (int64_t index = 0; index < numbers[0]; ++index) {
        add_elements(into, old.element, from.addresses[index], numbers[1], extent);
      }
      return true;
    case MPI_COMBINER_SUBARRAY: {
      const int64_t dimensions = numbers[0];
      add_subarray(into, old, numbers + 1, numbers + 1 + dimensions, numbers + 1 + 2 * dimensions, dimensions,
                   numbers[1 + 3 * dimensions] == MPI_ORDER_C);
      return true;
    }
    case MPI_COMBINER_DARRAY:
      add_darray(into, old, numbers);
      return true;
    default:
      return false;
  }
}

template <typename Into>
bool flatten(MPI_Datatype datatype, Into& into) {
  Form form;
  if (!form_of(datatype, form)) {
    return false;
  }
  const int combiner = form.combiner;
  if (combiner == MPI_COMBINER_NAMED) {
    int bytes = 0;
    real.Type_size[1](datatype, &bytes);
    if (bytes >= 0 && bytes == extent_of(datatype)) {
      add_run(into, 0, static_cast<uint64_t>(bytes));
      return true;
    }
    return flatten_by_packing(datatype, into);
  }
  const bool known = combiner == MPI_COMBINER_DUP || combiner == MPI_COMBINER_RESIZED || combiner == MPI_COMBINER_CONTIGUOUS ||
                     combiner == MPI_COMBINER_VECTOR || combiner == MPI_COMBINER_HVECTOR || combiner == MPI_COMBINER_INDEXED ||
                     combiner == MPI_COMBINER_HINDEXED || combiner == MPI_COMBINER_INDEXED_BLOCK ||
                     combiner == MPI_COMBINER_HINDEXED_BLOCK || combiner == MPI_COMBINER_STRUCT ||
                     combiner == MPI_COMBINER_SUBARRAY || combiner == MPI_COMBINER_DARRAY;
  if (!known) {
    return flatten_by_packing(datatype, into);
  }
  const Contents contents(datatype, form);
  return contents.known && flatten_contents(contents, into);
}

/// As datatype_of(), past the cache.
Datatype* look_up_datatype(MPI_Datatype handle);

/// The Datatype of a handle, if it was looked up lately; else nullptr.
inline Datatype* cached_datatype(MPI_Datatype handle) {
  Datatype* cached = datatype_cache[number_of(handle) % kDatatypeCache].load(std::memory_order_acquire);
  return cached != nullptr && cached->handle.load(std::memory_order_acquire) == handle ? cached : nullptr;
}

/// The Datatype of a handle; nullptr if it is none.
inline Datatype* datatype_of(MPI_Datatype handle) {
  Datatype* cached = cached_datatype(handle);
  return __builtin_expect(cached != nullptr, 1) ? cached : look_up_datatype(handle);
}

/// Stands for the datatype where there are no elements: programs pass MPI_DATATYPE_NULL there, and nobody looks at it.
extern Datatype no_elements;

/// Whether the library takes a message without elements of this datatype: MPICH does not look at it, Open MPI refuses
/// MPI_DATATYPE_NULL. Asked by a message to nobody, on a communicator whose errors are returned.
[[gnu::noinline]] bool takes_no_elements(const void* buffer, MPI_Datatype handle);

/// The Datatype of a message of `count` elements; nullptr if the library refuses it.
inline Datatype* datatype_of_message(const void* buffer, MPI_Count count, MPI_Datatype handle) {
  Datatype* cached = cached_datatype(handle);
  if (__builtin_expect(cached != nullptr, 1)) {
    return cached;
  }
  if (count == 0) {
    return takes_no_elements(buffer, handle) ? &no_elements : nullptr;
  }
  return look_up_datatype(handle);
}

}  // namespace headroom::mpi
