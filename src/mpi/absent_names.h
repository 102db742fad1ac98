// The names of MPI's functions that this process can see; described in absent_names.cc.
#pragma once

namespace headroom::mpi {

/// Hides the names that the loaded MPI library lacks; where none is loaded yet, the names that could mislead a plug-in that
/// asks. Names that the program itself refers to have been dealt with before.
void hide_absent_names();

}  // namespace headroom::mpi
