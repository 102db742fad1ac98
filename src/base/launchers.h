// How launchers tell the processes that they start which rank they are.
#pragma once

#include <stdlib.h>
#include <string.h>

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

inline constexpr const char* kLocalRankVariables[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID",
                                                      "PALS_LOCAL_RANKID", "FLUX_TASK_LOCAL_ID"};

/// Whether no launcher known here says that this is another rank than the first one of its node.
inline bool is_first_of_node() {
  for (const char* name : kLocalRankVariables) {
    const char* value = launched_rank() != nullptr ? getenv(name) : nullptr;
    if (value != nullptr) {
      return strcmp(value, "0") == 0;
    }
  }
  return true;
}

// Processes that start ranks, by the first 15 letters of their names.
inline constexpr const char* kLaunchers[] = {"hydra_pmi_proxy", "mpiexec", "mpiexec.hydra", "mpirun",     "prterun",
                                             "prted",           "orterun", "orted",         "slurmstepd", "flux-shell",
                                             "palsd",           "pbs_mom", "jsrun",         "jsmd"};

inline bool is_launcher_name(const char* name) {
  for (const char* launcher : kLaunchers) {
    if (strcmp(name, launcher) == 0) {
      return true;
    }
  }
  return false;
}

}  // namespace headroom::base
