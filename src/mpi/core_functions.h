// The functions of the layers below that backends call; see trampolines.h.
#pragma once

#include "mpi/trampolines.h"

namespace headroom::mpi {

const CoreFunctions& core_functions();

}  // namespace headroom::mpi
