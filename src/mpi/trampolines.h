// The trampolines: every MPI_ and PMPI_ name, exported, each a jump through one table.
//
// Even entries of the table are MPI_ names, odd ones PMPI_ names, in the order of functions.txt. At first each entry leads
// to the resolver; the first MPI call of the process finds the MPI library and fills the table: most entries then lead
// straight into it (no cost but the jump), some to a wrapper in the backend built for that library's binary interface. While a
// wrapper has nothing to do, its entry leads straight into the library too (shortcuts.h).
//
// The resolver keeps all argument registers and errno, takes no lock around calls of the dynamic loader (a constructor that
// runs inside dlopen() may call MPI), and stores entries with release; a thread that loads an entry either resolves again,
// harmlessly, or jumps to where everything is ready.
#pragma once

#include <cstdint>

#include "collio/functions.h"
#include "direct/endpoint_functions.h"
#include "direct/window.h"
#include "mpi/function_table.h"
#include "sched/scheduler.h"

namespace headroom::mpi {

inline constexpr int kEntryCount = 2 * HEADROOM_FUNCTION_COUNT;

/// Why a message is left to the MPI library although messages are direct.
enum class PassedFor { kOtherNode, kCommunicator, kArguments, kPartitions };
/// Why a collective call is.
enum class CollectivePassedFor { kOtherNodes, kCommunicator, kOperation };

/// The request that the preloaded library gives a backend.
struct BackendRequest {
  void* real[kEntryCount];     // the function of each name without Headroom; nullptr if this MPI library lacks it
  void* wrapper[kEntryCount];  // the backend fills in; nullptr = straight through
  const char* library_path;
};

/// The node that a process is on, and the member that it is there (-1: none, its messages go through the MPI library).
struct NodePlace {
  uint64_t node;
  int64_t member;
};

/// The functions that a backend needs of the layers below, so that it links against nothing.
struct CoreFunctions {
  bool (*is_mpi_library)(const void* caller);
  bool (*is_program)(const void* caller);
  int* (*library_depth)();
  void (*program_code)(uintptr_t* begin, uintptr_t* bytes);
  bool (*polls)();  // whether a blocking call is to be polled by its nonblocking form now
  bool (*counts_polls)();
  void (*wait_begin)(void* place);
  void (*wait_pause)(void* place);
  void (*wait_end)(void* place);
  void (*give_slot_up)();
  void (*take_slot)();
  void (*begin_call_of_waits)();
  void (*end_call_of_waits)();
  void (*polled)(bool found, sched::LookAgain again);
  void (*before_init)(const char* abi, const char* version, const char* library);
  void (*after_init)(int rank, int size, const char* abi, bool spins);
  void (*after_session_init)(const char* abi, bool spins);
  void (*after_finalize)();
  void (*before_abort)();
  void (*before_ending_job)(const char* what, const char* why, bool by_messages);
  void (*choose_shortcuts)();
  bool (*needs_nonblocking_form)();
  void (*note_nonblocking_form)(bool on);
  void (*count_nonblocking_collective)();
  void (*count_inner)();
  void* (*allocate)(uint64_t bytes, bool however_small);  // evictable memory
  bool (*release)(void* address);
  // Messages inside the node (direct/): this process's place there, opening it, and its parts.
  NodePlace (*node_place)();
  bool (*waiters_may_sleep)();
  bool (*registers_memory)();      // the library, with network cards: its windows must stay
  void (*note_pins_of_library)();  // those that it keeps for itself, once it has spoken to others
  bool (*hold_long)(const void* address, uint64_t bytes);
  void (*drop_long)(const void* address, uint64_t bytes);
  void (*say_no_room_for_window)(uint64_t bytes);
  void (*count_receive_on_both_ways)();
  void (*count_passed)(PassedFor why, uint64_t bytes);
  void (*count_passed_collective)(CollectivePassedFor why, bool alone);
  bool (*open_direct)(const int* members, int count);
  bool (*reductions_direct)();
  bool (*try_to_open_between)();                  // own matching of messages between nodes
  void (*use_between)(bool on, bool has_others);  // the job has agreed; whether it is on several nodes
  void (*count_direct_collective)(bool alone);
  void (*count_started_collective)();
  void (*count_staged_collective)();
  void (*count_collective_by_tally)();
  void (*use_direct)(bool on, bool refused);
  void (*wait_direct_begin)(void* place, bool (*poke)(), bool for_file);
  void (*wait_direct_pause)(void* place);
  void (*wait_direct_end)(void* place);
  direct::EndpointFunctions endpoint;
  direct::WindowFunctions windows;
  collio::IoFunctions io;
};

using BackendInit = void (*)(BackendRequest* request, const CoreFunctions* core);

inline constexpr const char* kBackendInitName = "headroom_backend_init";

}  // namespace headroom::mpi
