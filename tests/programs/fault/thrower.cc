// Exceptions of the program cross the MPI library and Headroom: thrown by a user-defined operation inside MPI_Reduce_local and
// by an error handler, several times, so that what is counted on the way in must be counted back. Prints "ok".
#include <mpi.h>

#include <cstdio>
#include <stdexcept>
#include <vector>

static void throwing_operation(void*, void*, int*, MPI_Datatype*) { throw std::runtime_error("operation"); }
static void throwing_handler(MPI_Comm*, int*, ...) { throw std::runtime_error("handler"); }

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Op operation;
  MPI_Op_create(throwing_operation, 1, &operation);
  MPI_Errhandler handler;
  MPI_Comm_create_errhandler(throwing_handler, &handler);
  MPI_Comm own;
  MPI_Comm_dup(MPI_COMM_SELF, &own);
  MPI_Comm_set_errhandler(own, handler);
  int caught = 0;
  for (int round = 0; round < 50; ++round) {
    int in = 1, out = 2;
    try {
      MPI_Reduce_local(&in, &out, 1, MPI_INT, operation);
    } catch (const std::runtime_error&) {
      ++caught;
    }
    try {
      MPI_Send(&in, 1, MPI_INT, 99, 0, own);
    } catch (const std::runtime_error&) {
      ++caught;
    }
  }
  std::vector<char> large(8 << 20, 1);  // from the arena: this thread is not taken to be inside the library
  int sum = 0;
  int one = 1;
  int ranks = 0;
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  std::printf("%s %d\n", caught == 100 && sum == ranks && large[7] == 1 ? "ok" : "wrong", caught);
  std::fflush(stdout);
  MPI_Finalize();
  return 0;
}
