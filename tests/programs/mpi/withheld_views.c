// A file view of so many pieces that the MPI library need not have it: everything that depends on a view goes on.
//
//   withheld_views FILE PIECES [hint=value ...]
//
// Each rank's view has PIECES pieces of 8 bytes, every SIZE-th of the file. Prints by how much a rank's memory grew when the
// view was set, in KiB, then "right", or what is wrong.
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size, wrong;
static int is_withheld;  // as far as it shows: by the shared position nothing goes

static void check(int ok, const char* what) {
  if (!ok && wrong++ < 5) printf("rank %d: wrong: %s\n", rank, what);
}

static uint64_t value(int who, int64_t piece, int round) {
  return (uint64_t)who << 48 | (uint64_t)round << 40 | (uint64_t)piece;
}

static void fill(uint64_t* memory, int64_t pieces, int round) {
  for (int64_t each = 0; each < pieces; ++each) memory[each] = value(rank, each, round);
}

static int is_there(const uint64_t* memory, int64_t first, int64_t pieces, int round) {
  for (int64_t each = 0; each < pieces; ++each)
    if (memory[each] != value(rank, first + each, round)) return 0;
  return 1;
}

static long resident_kib(void) {
  long kib = 0;
  char line[256];
  FILE* status = fopen("/proc/self/status", "r");
  while (fgets(line, sizeof line, status))
    if (sscanf(line, "VmRSS: %ld", &kib) == 1) break;
  fclose(status);
  return kib;
}

static int class_of(int error) {
  int kind = MPI_SUCCESS;
  MPI_Error_class(error, &kind);
  return kind;
}

static void set_view(MPI_File file, MPI_Datatype type, MPI_Info info) {
  check(MPI_File_set_view(file, (MPI_Offset)rank * 8 + 16, MPI_UINT64_T, type, "native", info) == MPI_SUCCESS, "set_view");
}

static void check_view(MPI_File file, int64_t pieces) {
  MPI_Offset origin = -1, byte = -1;
  MPI_Datatype element, tile;
  char representation[MPI_MAX_DATAREP_STRING];
  MPI_File_get_view(file, &origin, &element, &tile, representation);
  MPI_Count bytes = 0, lower = 0, extent = 0, true_extent = 0;
  MPI_Type_size_x(tile, &bytes);
  MPI_Type_get_extent_x(tile, &lower, &extent);
  MPI_Type_get_true_extent_x(tile, &lower, &true_extent);
  check(origin == (MPI_Offset)rank * 8 + 16 && element == MPI_UINT64_T && !strcmp(representation, "native"), "get_view");
  check(bytes == pieces * 8 && extent == pieces * 8 * size, "the view's datatype");
  MPI_Type_free(&tile);
  MPI_File_get_byte_offset(file, pieces + 3, &byte);
  check(byte == 16 + 8 * rank + (pieces + 3) * 8 * size, "get_byte_offset");
}

static void check_alone(MPI_File file, uint64_t* memory, int64_t pieces) {
  MPI_Status status;
  MPI_Offset position = -1;
  int count = -1;
  memset(memory, 0, (size_t)pieces * 8);
  MPI_File_read_at(file, 5, memory, 1000, MPI_UINT64_T, &status);
  check(is_there(memory, 5, 1000, 1), "read_at");
  MPI_File_seek(file, 7, MPI_SEEK_SET);
  MPI_File_read(file, memory, 100, MPI_UINT64_T, &status);
  MPI_File_get_position(file, &position);
  MPI_Get_count(&status, MPI_UINT64_T, &count);
  check(is_there(memory, 7, 100, 1) && position == 107 && count == 100, "read");
  MPI_Request requests[2];
  MPI_Status statuses[2];
  MPI_File_iread(file, memory, 10, MPI_UINT64_T, &requests[0]);
  MPI_File_iread_at(file, 1000, memory + 10, 20, MPI_UINT64_T, &requests[1]);
  MPI_Waitall(2, requests, statuses);
  MPI_Get_count(&statuses[1], MPI_UINT64_T, &count);
  check(is_there(memory, 107, 10, 1) && is_there(memory + 10, 1000, 20, 1) && count == 20, "iread and iread_at");
  // The end: of the whole file, whoever wrote it.
  MPI_File_seek(file, -4, MPI_SEEK_END);
  MPI_File_get_position(file, &position);
  // (The libraries' own: OMPIO takes another end, ROMIO counts what it has not read.)
  check(position == pieces - 4 || !is_withheld, "seek from the end");
  MPI_File_read(file, memory, 10, MPI_UINT64_T, &status);
  MPI_Get_count(&status, MPI_UINT64_T, &count);
  check((count == 4 && is_there(memory, pieces - 4, 4, 1)) || !is_withheld, "read at the end");
  check(MPI_File_read_at(file, -1, memory, 1, MPI_UINT64_T, &status) != MPI_SUCCESS || !is_withheld,
        "an offset before the file");
  // Pieces of all ranks between each other's, written at the same time, each rank for itself.
  MPI_Barrier(MPI_COMM_WORLD);
  fill(memory, pieces, 2);
  for (int64_t at = 0; at < 2000; at += 100) MPI_File_write_at(file, at, memory + at, 100, MPI_UINT64_T, MPI_STATUS_IGNORE);
  MPI_File_iwrite_at(file, 2000, memory + 2000, 1000, MPI_UINT64_T, &requests[0]);
  MPI_Wait(&requests[0], &status);
  MPI_Get_count(&status, MPI_UINT64_T, &count);
  check(count == 1000, "iwrite_at");
  MPI_File_sync(file);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_File_sync(file);
  memset(memory, 0, (size_t)pieces * 8);
  MPI_File_read_at_all(file, 0, memory, 3000, MPI_UINT64_T, &status);
  check(is_there(memory, 0, 3000, 2), "what all ranks wrote at the same time");
}

/// Calls that wait for no rank, and those that are the library's, which gets the view for them.
static void check_librarys(MPI_File file, MPI_Datatype type, MPI_Info info, uint64_t* memory, int64_t pieces) {
  MPI_Request request;
  MPI_Offset position = -1;
  MPI_File_seek(file, 50, MPI_SEEK_SET);
  memset(memory, 0, (size_t)pieces * 8);
  // It waits for no other rank.
  if (rank > 0) MPI_Barrier(MPI_COMM_WORLD);
  MPI_File_iread_all(file, memory, 100, MPI_UINT64_T, &request);
  if (rank == 0) MPI_Barrier(MPI_COMM_WORLD);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_File_get_position(file, &position);
  check(is_there(memory, 50, 100, 2) && position == 150, "iread_all");
  check_view(file, pieces);
  MPI_File_read_at(file, 9, memory, 100, MPI_UINT64_T, MPI_STATUS_IGNORE);
  check(is_there(memory, 9, 100, 2), "read_at afterwards");
  check(MPI_File_iread_shared(file, memory, 0, MPI_UINT64_T, &request) == MPI_SUCCESS || request == MPI_REQUEST_NULL,
        "the request of what is refused");
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  set_view(file, type, info);
  MPI_File_read_ordered(file, memory, 1, MPI_UINT64_T, MPI_STATUS_IGNORE);
  MPI_File_get_position_shared(file, &position);
  check(is_there(memory, rank, 1, 2) && position == size, "read_ordered");
  set_view(file, type, info);
  MPI_File_set_atomicity(file, 1);
  MPI_File_read_at_all(file, 0, memory, 100, MPI_UINT64_T, MPI_STATUS_IGNORE);
  check(is_there(memory, 0, 100, 2), "read_at_all in atomic mode");
  MPI_File_set_atomicity(file, 0);
}

int main(int count, char** arguments) {
  MPI_Init(&count, &arguments);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int64_t pieces = atol(arguments[2]);
  MPI_Info info;
  MPI_Info_create(&info);
  for (int each = 3; each < count; ++each) {
    char* text = strchr(arguments[each], '=');
    *text = 0;
    MPI_Info_set(info, arguments[each], text + 1);
  }
  uint64_t* memory = malloc((size_t)pieces * 8);
  fill(memory, pieces, 1);
  MPI_File file;
  MPI_File_open(MPI_COMM_WORLD, arguments[1], MPI_MODE_CREATE | MPI_MODE_RDWR, info, &file);
  MPI_Datatype vector, type;
  MPI_Type_vector((int)pieces, 1, size, MPI_UINT64_T, &vector);
  MPI_Type_create_resized(vector, 0, (MPI_Aint)pieces * 8 * size, &type);
  MPI_Type_commit(&type);
  const long before = resident_kib();
  set_view(file, type, info);
  const long grown = resident_kib() - before;
  long most = 0;
  MPI_Reduce(&grown, &most, 1, MPI_LONG, MPI_MAX, 0, MPI_COMM_WORLD);
  MPI_Status status;
  int moved = 0;
  MPI_File_write_all(file, memory, (int)pieces, MPI_UINT64_T, &status);
  MPI_Get_count(&status, MPI_UINT64_T, &moved);
  check(moved == pieces, "write_all");
  memset(memory, 0, (size_t)pieces * 8);
  MPI_File_read_at_all(file, 0, memory, (int)pieces, MPI_UINT64_T, &status);
  check(is_there(memory, 0, pieces, 1), "read_at_all");
  check_view(file, pieces);
  is_withheld = class_of(MPI_File_read_shared(file, memory, 0, MPI_UINT64_T, &status)) == MPI_ERR_UNSUPPORTED_OPERATION;
  check_alone(file, memory, pieces);
  check_librarys(file, type, info, memory, pieces);
  MPI_File_close(&file);
  MPI_Type_free(&type);
  MPI_Type_free(&vector);
  MPI_Info_free(&info);
  int all = 0;
  MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0 && all == 0) printf("grew by %ld KiB; shared position %s; right\n", most, is_withheld ? "refused" : "works");
  MPI_Finalize();
  return all != 0;
}
