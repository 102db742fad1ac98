// How launchers tell the processes that they start which rank they are.
#pragma once

#include <stdlib.h>

namespace headroom::base {

// In this order: a launcher that is started by another one leaves what that one said in the environment.
inline constexpr const char* kRankVariables[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK",    "PMIX_RANK",
                                                 "SLURM_PROCID",         "PALS_RANKID", "FLUX_TASK_RANK"};

/// This process's rank as its launcher says it; nullptr if none has started it. Thread-safe unless the environment is changed.
inline const char* launched_rank() {
  for (const char* name : kRankVariables) {
    if (const char* value = getenv(name)) {
      return value;
    }
  }
  return nullptr;
}

}  // namespace headroom::base
