/* Memory beyond the budget that the MPI library itself reads and writes while the rank counts as waiting: pieces go to the rank
 * itself by MPI_Sendrecv_replace. Prints "wrong 0".
 *
 *   used_in_library MIB PIECE_KIB */
#include <mpi.h>
#include <stdint.h>

#include "pressure.h"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  CHECK(argc == 3);
  const size_t words = strtoul(argv[1], NULL, 10) << 17, piece = strtoul(argv[2], NULL, 10) << 7;
  uint64_t* memory = malloc(words * sizeof *memory);
  CHECK(memory != NULL);
  for (size_t i = 0; i < words; ++i) {
    memory[i] = i * 3;
  }
  size_t wrong = 0;
  for (size_t first = 0; first + piece <= words; first += piece) {
    MPI_Sendrecv_replace(memory + first, (int)(piece * sizeof *memory), MPI_BYTE, 0, 0, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE);
  }
  for (size_t i = 0; i < words; ++i) {
    wrong += memory[i] != i * 3;
  }
  printf("wrong %zu\n", wrong);
  MPI_Finalize();
  return wrong != 0;
}
