// Which names of MPI's functions this process can see; described in absent_names.cc.
#pragma once

namespace headroom::mpi {

/// Hides what the loaded MPI library lacks; where none is loaded yet, what could mislead a plug-in that asks. What the program
/// itself refers to has been dealt with before.
void hide_absent_names();

}  // namespace headroom::mpi
