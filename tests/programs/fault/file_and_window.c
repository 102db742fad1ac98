/* Collective file access and one-sided communication on memory that is mostly on storage. Prints "ok".
   usage: file_and_window MIB FILE */
#include <mpi.h>

#include "pressure.h"

int main(int argc, char** argv) {
  (void)argc;
  MPI_Init(&argc, &argv);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  bytes = (size_t)atoi(argv[1]) << 20;
  const int count = (int)bytes;
  unsigned char *mine = malloc(bytes), *other = malloc(bytes);
  pressure = malloc(bytes);
  const int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;

  fill(mine, bytes, (unsigned)rank);
  press();
  MPI_File file;
  CHECK(MPI_File_open(MPI_COMM_WORLD, argv[2], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file) == MPI_SUCCESS);
  MPI_Datatype strided; /* the ranks' pieces of 64 KiB interleave, so that they are exchanged */
  MPI_Type_vector(count / 65536, 65536, 65536 * ranks, MPI_BYTE, &strided);
  MPI_Type_commit(&strided);
  MPI_File_set_view(file, (MPI_Offset)65536 * rank, MPI_BYTE, strided, "native", MPI_INFO_NULL);
  CHECK(MPI_File_write_all(file, mine, count, MPI_BYTE, MPI_STATUS_IGNORE) == MPI_SUCCESS);
  press();
  MPI_File_set_view(file, (MPI_Offset)65536 * next, MPI_BYTE, strided, "native", MPI_INFO_NULL);
  CHECK(MPI_File_read_all(file, other, count, MPI_BYTE, MPI_STATUS_IGNORE) == MPI_SUCCESS);
  press();
  CHECK(same(other, bytes, (unsigned)next));
  MPI_Type_free(&strided);
  MPI_File_close(&file);

  MPI_Win window;
  memset(other, 0, bytes);
  press();
  MPI_Win_create(other, (MPI_Aint)bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
  MPI_Win_fence(0, window);
  MPI_Put(mine, count / 2, MPI_BYTE, next, 0, count / 2, MPI_BYTE, window);
  MPI_Accumulate(mine + bytes / 2, count / 2, MPI_BYTE, next, (MPI_Aint)(bytes / 2), count / 2, MPI_BYTE, MPI_REPLACE, window);
  MPI_Win_fence(0, window);
  press();
  CHECK(same(other, bytes, (unsigned)before));
  MPI_Win_fence(0, window);
  MPI_Get(mine, count, MPI_BYTE, next, 0, count, MPI_BYTE, window);
  MPI_Win_fence(0, window);
  press();
  CHECK(same(mine, bytes, (unsigned)rank));
  MPI_Win_free(&window);
  if (rank == 0) {
    printf("ok\n");
  }
  MPI_Finalize();
  return 0;
}
