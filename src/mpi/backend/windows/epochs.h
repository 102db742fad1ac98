// How the ranks of a direct window synchronise: see windows.h and direct/window.h.
#pragma once

#include "mpi/backend/abi.h"

namespace headroom::mpi {

struct Window;

/// Counts that somebody waits until something changes, for programs that do nothing else.
void note_polling(bool found);

/// Calls that a program may poll a window with, and no other: node-mates and the library need this rank meanwhile.
void progress_at_times();

/// Each serves the call of its name on a direct window, and returns MPI's error, raised.
int direct_Win_fence(Window& window, int assert);
int direct_Win_post(Window& window, MPI_Group group, int);
int direct_Win_start(Window& window, MPI_Group group, int);
int direct_Win_complete(Window& window);
int direct_Win_wait(Window& window);
int direct_Win_test(Window& window, int* flag);

/// Whether the window's group has that rank.
bool is_rank_of(const Window& window, int rank);
int direct_Win_lock(Window& window, int lock_type, int rank, int);
int direct_Win_unlock(Window& window, int rank);

/// Shares the locks of all parts. A rank that cannot have one gives back those it has before it waits: others may hold that one
/// alone and wait for these.
int direct_Win_lock_all(Window& window, int);

int direct_Win_unlock_all(Window& window);
int direct_Win_flush(Window& window, int rank);
int direct_Win_flush_all(Window& window);
int direct_Win_flush_local(Window& window, int rank);
int direct_Win_flush_local_all(Window& window);
int direct_Win_sync(Window&);

}  // namespace headroom::mpi
