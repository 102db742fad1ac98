/* Files that MPI writes while the program goes on, from memory that is mostly on storage. Prints "right" for each rank.
   usage: background_files MIB FILE */
#include <fcntl.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const long bytes = atol(argv[1]) << 20, words = bytes / 8;
  uint64_t *mine = malloc((size_t)bytes), *other = malloc((size_t)bytes);
  int right = 1;
  MPI_File file;
  MPI_File_open(MPI_COMM_WORLD, argv[2], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
  for (int together = 0; together < 2; ++together) {
    for (long at = 0; at < words; ++at) {
      mine[at] = (uint64_t)(rank + 1) << 56 | (uint64_t)together << 48 | (uint64_t)at;
    }
    for (long at = 0; at < words; ++at) {
      other[at] = (uint64_t)at;
    }
    MPI_Request request;
    MPI_Status status;
    int count = -1;
    MPI_File_set_view(file, (MPI_Offset)rank * bytes, MPI_UINT64_T, MPI_UINT64_T, "native", MPI_INFO_NULL);
    right &= (together ? MPI_File_iwrite_at_all(file, 0, mine, (int)words, MPI_UINT64_T, &request)
                       : MPI_File_iwrite_at(file, 0, mine, (int)words, MPI_UINT64_T, &request)) == MPI_SUCCESS;
    right &= MPI_Wait(&request, &status) == MPI_SUCCESS;
    MPI_Get_count(&status, MPI_UINT64_T, &count);
    right &= count == (int)words;
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    const int again = open(argv[2], O_RDONLY);
    for (long at = 0; at < words; at += 64) {
      uint64_t word = 0;
      right &= pread(again, &word, sizeof word, (off_t)rank * bytes + at * 8) == sizeof word && word == mine[at];
    }
    close(again);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  MPI_File_close(&file);
  printf("%s\n", right ? "right" : "wrong");
  MPI_Finalize();
  return !right;
}
