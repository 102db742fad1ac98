// See collectives.h.
#include "mpi/backend/collectives/collectives.h"

#include "mpi/backend/guards.h"
#include "mpi/backend/messages/network.h"
#include "mpi/backend/objects/communicators.h"

namespace headroom::mpi {

[[gnu::noinline]] void show_what_is_unseen(MPI_Comm comm, Unseen& unseen, Unseen Communicator::* which) {
  arrive_together(comm);
  const InsideLibrary inside;
  const WithoutSlot waiting;
  for (; unseen.calls > 0 && unseen.shown < kMostShown; --unseen.calls, ++unseen.shown) {
    int one = 1;
    int sum = 0;
    if (which == &Communicator::unseen_allreduces) {
      real.Allreduce[1](&one, &sum, 1, MPI_INT, MPI_SUM, comm);
    } else {
      real.Bcast[1](&one, 1, MPI_INT, 0, comm);
    }
  }
  unseen.calls = 0;
}

}  // namespace headroom::mpi
