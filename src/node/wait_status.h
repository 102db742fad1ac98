// How a process ended that is no child of this one.
#pragma once

namespace headroom::node {

/// The wait status of a process that has ended, as waitpid() would give it; -1 if that cannot be told, since its parent has
/// taken it and the kernel does not keep it. `pidfd`: of the process, or -1. Allocates nothing.
int wait_status_of(int process, int pidfd);

}  // namespace headroom::node
