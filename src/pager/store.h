// The backing store: where blocks go when memory is short.
//
// One file a process in each storage directory, made without a name (O_TMPFILE, or unlinked at once), so nothing is left behind
// however the process ends. Offsets are the partition's; several files take a stripe of 1 MiB in turn, and a stripe that does
// not fit in one goes to another (store_room.h). Transfers go past the page cache (O_DIRECT), between the files and the alias
// mapping or a read buffer, many at a time: by io_uring, or by a few threads where io_uring is refused (containers). The arena
// is never registered with io_uring: a registered buffer pins its pages, and punching pinned pages loses data silently.
//
// The pager thread alone submits and collects; a store is not thread-safe. Completions arrive in any order; `descriptor`
// is readable while there are some.
//
// FaultyStore in front of either injects errors for the tests (setting store_fault).
#pragma once

#include <cstdint>

#include "base/settings.h"
#include "base/status.h"

namespace headroom::pager {

struct Transfer {
  bool write;
  uint64_t offset;  // in the store, a multiple of 4096
  void* memory;
  uint64_t bytes;  // a multiple of 4096; all of them in one stripe
  uint64_t tag;    // the caller's
};

struct Completion {
  uint64_t tag;
  bool write;
  int error;  // 0 or an errno value; a short transfer is repeated by the store, never reported as success
};

/// A transfer that fell short goes on behind the last whole page: direct I/O begins nowhere else. (A file system that is full,
/// say, ends one anywhere, and says only the next time why.)
constexpr uint64_t whole_pages(uint64_t bytes) { return bytes & ~uint64_t{4095}; }

class Store {
 public:
  static constexpr int kDepth = 64;  // most transfers in flight
  virtual ~Store() = default;
  virtual void submit(const Transfer& transfer) = 0;
  /// Collects up to `most` completions without waiting; fewer than there are is no error. After 0 `descriptor` becomes readable
  /// when there are more.
  virtual int collect(Completion* out, int most) = 0;
  /// Whether collect() would find some, without a system call.
  [[nodiscard]] virtual bool has_completions() const = 0;
  /// Transfers that are submitted before the matching end_batch() may be handed to the disk together then. Pairs may be nested.
  virtual void begin_batch() {}
  virtual void end_batch() {}
  [[nodiscard]] virtual int descriptor() const = 0;
  [[nodiscard]] virtual base::StoreChoice kind() const = 0;
  [[nodiscard]] int in_flight() const { return in_flight_; }

 protected:
  int in_flight_ = 0;
};

inline constexpr int kMostDirectories = 8;  // in --storage
inline constexpr int kMostFiles = 16;       // with those that are added while the job runs
inline constexpr uint64_t kStripeBytes = 1 << 20;

/// The files behind the store.
struct StoreFiles {
  int descriptors[kMostFiles] = {};
  int striped = 0;            // the first ones, in which stripes lie in turn
  int count = 0;              // of all
  bool direct = false;        // all of them
  uint8_t* placed = nullptr;  // by stripe: 0 while no room is set aside for it, else 1 + the number of the file that has it
};

/// Where a byte of the store is.
struct StorePlace {
  int descriptor;
  uint64_t offset;
};
StorePlace place_of(const StoreFiles& files, uint64_t offset);

/// Makes the files in the storage directories of the settings. Errors are logged with directory, cause and remedy.
base::Result<StoreFiles> open_store_files();
/// Makes one more; false if that cannot be, which is logged.
bool add_store_file(StoreFiles& files, const char* directory);

/// Makes the store that the settings ask for; ends the process if a forced one cannot be had. Placed in static memory. It keeps
/// looking at `files`.
Store* make_store(const StoreFiles& files);

// The two kinds, and a store that may stand in front of them; nullptr if it cannot be had.
Store* make_io_uring_store(const StoreFiles& files);
Store* make_thread_store(const StoreFiles& files);
Store* make_faulty_store(Store* behind, const StoreFiles& files, const char* specification);

}  // namespace headroom::pager
