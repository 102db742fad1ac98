// A running job's ledger, mapped by a process outside the job: it is a memory file of the job's processes, opened by way of
// /proc/PID/fd, which the user who runs the job may do.
#pragma once

#include "node/ledger.h"

namespace headroom::top {

/// Maps the ledger that process `pid` has open, for reading or, with `writes`, for writing, too. nullptr if it has none, or
/// another version's; that is said on standard error.
node::Ledger* map_ledger(const char* pid, bool writes);

/// Maps the ledger that this process has open as `descriptor`, for writing; nullptr if it is none of this version.
node::Ledger* map_ledger_file(int descriptor);

/// Names a further storage directory to the job, with an absolute path, and waits a moment until those that pause for lack of
/// room have gone on. Returns the exit status for the shell; the outcome is said on standard output, or error.
int add_directory(node::Ledger& ledger, const char* path);

/// Does for a process that has ended past the C library what it would have done had it left in order: takes it off the ledger,
/// and writes the report if it was the last. Nothing where a process of the node lives: the one that watches it sees to that.
void report_ended(node::Ledger& ledger, int process);

}  // namespace headroom::top
