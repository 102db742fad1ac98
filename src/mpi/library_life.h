// What happens around the life of the MPI library: before it begins, once it has, and before it ends the job. The launcher may
// be another MPI's, or may have started ranks without Headroom; network cards must not pin memory that moves.
#pragma once

namespace headroom::mpi {

/// Before the program begins, which may fetch the library's functions from the library's own handle and never come by a
/// wrapper: makes transports of MPI libraries copy, or excludes them, in the environment. Lets nothing move where the library
/// that is linked can do neither.
void before_program();

/// `function` is called when the program calls MPI_Abort, before the library does.
void call_before_abort(void (*function)());

/// Before the library's MPI_Init. `abi`: which of the interfaces; `version`: what MPI_Get_library_version says; `library`:
/// where it lies.
void before_init(const char* abi, const char* version, const char* library);

/// After it, on a rank of MPI_COMM_WORLD. `spins`: the library waits by polling.
void after_init(int rank, int size, const char* abi, bool spins);

/// The same after MPI_Session_init.
void after_session_init(const char* abi, bool spins);

/// The work of the program's MPI_Abort before the library's.
void report_before_abort();

/// Says why Headroom ends the job. `by_messages`: perhaps since a rank has ended whose supervisor has not said so yet.
void before_ending_job(const char* what, const char* why, bool by_messages);

}  // namespace headroom::mpi
