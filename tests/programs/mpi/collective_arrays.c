// An array of each rank's goes to a file, interleaved with the others', and comes back into another array; both may be larger
// than memory.
//
//   collective_arrays FILE MIB PIECE [hint=value ...]
//
// Each rank writes MIB mebibytes in pieces of PIECE bytes, every SIZE-th of the file. Looks by pread() whether the file is
// right, reads into a second array and compares. Prints "right", or each rank's error class by name where a call fails.
#include <fcntl.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char* name_of(int error) {
  int kind;
  MPI_Error_class(error, &kind);
  return kind == MPI_SUCCESS        ? "success"
         : kind == MPI_ERR_NO_SPACE ? "no space"
         : kind == MPI_ERR_QUOTA    ? "quota"
         : kind == MPI_ERR_IO       ? "io"
                                    : "other";
}

int main(int count, char** arguments) {
  MPI_Init(&count, &arguments);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int64_t bytes = atol(arguments[2]) << 20, piece = atol(arguments[3]), words = bytes / 8;
  uint64_t *out = malloc((size_t)bytes), *in = malloc((size_t)bytes);
  for (int64_t each = 0; each < words; each++) {
    out[each] = (uint64_t)rank << 48 | (uint64_t)each;
    in[each] = 7;
  }
  MPI_Info info;
  MPI_Info_create(&info);
  for (int each = 4; each < count; each++) {
    char* value = strchr(arguments[each], '=');
    *value = 0;
    MPI_Info_set(info, arguments[each], value + 1);
  }
  MPI_File file;
  int error = MPI_File_open(MPI_COMM_WORLD, arguments[1], MPI_MODE_CREATE | MPI_MODE_RDWR, info, &file);
  if (error != MPI_SUCCESS) {
    printf("rank %d: cannot open: %s\n", rank, name_of(error));
    MPI_Finalize();
    return 3;
  }
  MPI_Datatype type;
  MPI_Type_vector((int)(bytes / piece), (int)piece, (int)piece * size, MPI_BYTE, &type);
  MPI_Type_commit(&type);
  MPI_File_set_view(file, rank * piece, MPI_BYTE, type, "native", MPI_INFO_NULL);
  if (getenv("ATOMIC")) MPI_File_set_atomicity(file, 1);
  MPI_Status status;
  error = MPI_File_write_all(file, out, (int)words, MPI_UINT64_T, &status);
  int words_moved = 0;
  MPI_Get_count(&status, MPI_UINT64_T, &words_moved);
  if (error != MPI_SUCCESS) {
    printf("rank %d: write: %s\n", rank, name_of(error));
    MPI_File_close(&file);
    MPI_Finalize();
    return 0;
  }
  int64_t wrong = words_moved != words;
  MPI_File_sync(file);
  MPI_Barrier(MPI_COMM_WORLD);
  const char* prefix = strstr(arguments[1], ":/");  // which says to the library what file system it is
  int descriptor = open(prefix != NULL ? prefix + 1 : arguments[1], O_RDONLY);
  posix_fadvise(descriptor, 0, 0, POSIX_FADV_RANDOM);
  for (int64_t at = 0; at < bytes; at += piece * 5) {
    uint64_t first = 0;
    if (pread(descriptor, &first, 8, at * size + rank * piece) != 8 || first != out[at / 8]) wrong++;
  }
  MPI_Barrier(MPI_COMM_WORLD);
  posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);  // what follows is read from the disk
  close(descriptor);
  MPI_Barrier(MPI_COMM_WORLD);
  error = MPI_File_read_at_all(file, 0, in, (int)words, MPI_UINT64_T, &status);
  if (error != MPI_SUCCESS) printf("rank %d: read: %s\n", rank, name_of(error));
  MPI_Get_count(&status, MPI_UINT64_T, &words_moved);
  wrong += words_moved != words;
  for (int64_t each = 0; each < words; each++) wrong += in[each] != out[each];
  MPI_File_close(&file);
  int64_t all = 0;
  MPI_Allreduce(&wrong, &all, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf(all == 0 ? "right\n" : "wrong\n");
  MPI_Finalize();
  return all != 0;
}
