// Collective I/O for code that does not link with it: the MPI backends.
#pragma once

#include "collio/call.h"
#include "collio/pattern.h"

namespace headroom::collio {

/// Why a collective call on a file is left to the MPI library. All ranks of a call give one answer: the largest of theirs.
enum class IoPassedFor : uint32_t {
  kNot = 0,
  kFileSystem,      // it knows the file system better, or the file cannot be opened a second time
  kMode,            // atomic mode, sequential access
  kRepresentation,  // the file's data are not the memory's
  kDatatypes,       // which cannot be taken apart, or a view that goes backwards
  kArguments,       // MPI forbids them: the library says so
  kCommunicator,    // messages are not direct (--direct off, a tool), or the communicator is the library's
  kAsked,           // by a hint or by --collective-io
};

/// The facts of a call, for the counters and the report.
struct IoSummary {
  bool writes;
  bool apart;  // each rank did its own
  bool aggregated;
  bool by_library;  // it read or wrote the file
  int64_t bytes;    // of this rank's access
  Outcome outcome;
};

struct IoFunctions {
  void (*add_run)(Pattern& into, int64_t offset, int64_t bytes);
  void (*add_elements)(Pattern& into, const Pattern& element, int64_t offset, int64_t count, int64_t stride);
  bool (*end_pattern)(Pattern& pattern, int64_t extent);
  int64_t (*pieces_of)(const Pattern& pattern);
  void (*clear)(Pattern& pattern);
  /// Fills in the nest or the flag, where the access begins, and where it ends. `origin`: of the view; `extent`: of its tile.
  /// False if no access to that can be described.
  bool (*describe)(const Pattern& tile, int64_t origin, int64_t extent, int64_t skip, int64_t bytes, Opening& opening);
  /// Bytes of the access before a position of the file.
  int64_t (*bytes_before)(const Opening& opening, const ViewOfPieces& view, int64_t position);
  /// A descriptor that the program does not see, or -error.
  int (*open_file)(const char* path, int flags);
  void (*close_file)(long descriptor);
  FileAccess (*posix_file)(int descriptor);
  void (*limit_read_ahead)(int descriptor, bool limited);
  FileSystem (*file_system_of)(int descriptor, int64_t& block_bytes);
  int64_t (*room)();
  bool (*is_interleaved)(const Opening* openings, int size, int* order);
  int (*make_domains)(NodeAccess* nodes, int count, const PlanLimits& limits, Domain* domains);
  int (*slots_needed)(const CallDescription& call);
  Call* (*begin)(const CallDescription& call);  // nullptr if there is no memory; the others would wait
  bool (*step)(Call* call);
  bool (*is_done)(Call* call);
  Outcome (*end)(Call* call);
  Outcome (*access_alone)(const CallDescription& call);
  void (*wake_self)();
  bool (*is_wanted)();  // --collective-io
  void (*count)(const IoSummary& call);
  void (*count_passed)(IoPassedFor why);
  void (*count_withheld)();                                  // a view, from the library
  void (*count_given)();                                     // one that was withheld before
  void (*count_alone)(int64_t bytes);                        // a call of one rank, on such a file
  void (*say_no_shared)();                                   // calls by the shared position are refused there
  void (*say_not_alone)();                                   // and those whose datatypes cannot be taken apart
  void (*say_not_posix)(const char* path, IoPassedFor why);  // although a hint demands it
};
IoFunctions io_functions();

}  // namespace headroom::collio
