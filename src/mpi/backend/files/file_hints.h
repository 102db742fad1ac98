// Hints for collective access. Those that MPI libraries know, and our own (docs/user/files.md).
//
// The program gives them when it opens a file or sets a view. Hints that it does not give may stand in a file of the site's or
// the user's, as ROMIO has it: ROMIO_HINTS names it, else it is /etc/romio-hints; a name and a value on each line.
#pragma once

#include <cstddef>

#include "mpi/backend/abi.h"

namespace headroom::mpi {

struct FileCard;
struct IoFile;

constexpr size_t kHintBytes = 1025;  // more than any library keeps of a value

/// The value of a hint in `info`; false if it is not there.
bool hint_in(MPI_Info info, const char* name, char (&value)[kHintBytes]);

/// The value of a hint; false if it is not given.
bool hint_of(MPI_Info info, const char* name, char (&value)[kHintBytes]);

/// Whether cb_config_list lets this node aggregate: "one:1,other:0,*:1" has a bound for each host, of which one is used here.
bool may_aggregate(MPI_Info info);

/// How many aggregators, and how large windows, a rank's hints allow: the least of all ranks' is taken.
void take_limits(const IoFile& file, MPI_Info info, FileCard& card);

using Hints = bool (*)(MPI_Info info, const char* name, char (&value)[kHintBytes]);

/// Whether each rank is to access its own part. `hints`: hint_of when the file is opened, hint_in when a view is set.
void take_ways(IoFile& file, MPI_Info info, Hints hints);

/// When the library is to get views. `hints` as above.
void take_view_hint(IoFile& file, MPI_Info info, Hints hints);

}  // namespace headroom::mpi
