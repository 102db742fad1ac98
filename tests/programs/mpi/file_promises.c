// What MPI promises of files, around collective calls: positions, modes, large offsets, renamed files, two files at once, and
// writes of ranks that leave a call early.
//
//   file_promises FOLDER
//
// Prints "right", or what is wrong.
#include <fcntl.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int rank, size, wrong;
static const char* folder;

static void expect(int holds, const char* what) {
  if (!holds && wrong++ < 5) printf("rank %d: %s\n", rank, what);
}

static const char* path_of(const char* name) {
  static char path[2][1000];
  static int which;
  which ^= 1;
  snprintf(path[which], sizeof path[which], "%s/%s", folder, name);
  return path[which];
}

static MPI_File open_file(const char* name, int mode) {
  MPI_File file;
  if (rank == 0 && (mode & MPI_MODE_CREATE)) unlink(path_of(name));
  MPI_Barrier(MPI_COMM_WORLD);
  if (MPI_File_open(MPI_COMM_WORLD, path_of(name), mode, MPI_INFO_NULL, &file)) MPI_Abort(MPI_COMM_WORLD, 2);
  return file;
}

static long size_of(const char* name) {
  struct stat about;
  return stat(path_of(name), &about) == 0 ? (long)about.st_size : -1;
}

static int int_at(const char* name, long offset) {
  int value = -1, file = open(path_of(name), O_RDONLY);
  if (file < 0 || pread(file, &value, 4, offset) != 4) value = -1;
  close(file);
  return value;
}

// Interleaved: element i of this rank is at i * size + rank.
static MPI_Datatype interleaved(int count) {
  MPI_Datatype inner, type;
  MPI_Type_vector(count, 1, size, MPI_INT, &inner);
  MPI_Type_create_resized(inner, 0, (MPI_Aint)count * size * 4, &type);
  MPI_Type_commit(&type);
  MPI_Type_free(&inner);
  return type;
}

static void fill(int* numbers, int count, int base) {
  for (int each = 0; each < count; each++) numbers[each] = base + each * size + rank;
}

static void positions_and_two_files(void) {
  enum { N = 1000 };
  MPI_File one = open_file("one", MPI_MODE_CREATE | MPI_MODE_RDWR), two = open_file("two", MPI_MODE_CREATE | MPI_MODE_RDWR);
  MPI_Datatype type = interleaved(100);
  MPI_File_set_view(one, rank * 4, MPI_INT, type, "native", MPI_INFO_NULL);
  int numbers[N], back[N];
  MPI_Status status;
  for (int call = 0; call < 10; call++) {  // the one by its position, the other one without a view
    fill(numbers, 100, call * 100 * size);
    MPI_File_write_all(one, numbers, 100, MPI_INT, &status);
    MPI_File_write_at_all(two, (MPI_Offset)(call * size + rank) * 400, numbers, 100, MPI_INT, &status);
  }
  MPI_Offset position = -1;
  MPI_File_get_position(one, &position);
  expect(position == N, "position after ten calls");
  MPI_File_seek(one, -500, MPI_SEEK_CUR);
  MPI_File_read_all(one, back, 600, MPI_INT, &status);
  int count = -1;
  MPI_Get_count(&status, MPI_INT, &count);
  expect(count == 500, "count up to the end");
  for (int each = 0; each < 500; each++) expect(back[each] == (500 + each) * size + rank, "read from a position");
  // Position by independent calls, between collective ones.
  MPI_File_seek(one, 7, MPI_SEEK_SET);
  MPI_File_read(one, back, 3, MPI_INT, &status);
  MPI_File_read_all(one, back, 5, MPI_INT, &status);
  expect(back[0] == 10 * size + rank, "position after an independent call");
  MPI_File_close(&one);
  MPI_File_close(&two);
  expect(size_of("one") == 4L * N * size && size_of("two") == 4L * N * size, "sizes");
  for (int at = 0; at < N * size; at += 17) expect(int_at("one", 4L * at) == at, "content of the first file");
  MPI_Type_free(&type);
}

// What MPI_File_get_info says of aggregators.
static void hints(void) {
  MPI_Info given, used;
  MPI_Info_create(&given);
  MPI_Info_set(given, "cb_nodes", "1");
  MPI_Info_set(given, "cb_buffer_size", "65536");
  MPI_File file;
  MPI_File_open(MPI_COMM_WORLD, path_of("hints"), MPI_MODE_CREATE | MPI_MODE_RDWR, given, &file);
  MPI_File_get_info(file, &used);
  char value[64] = "";
  int found = 0;
  MPI_Info_get(used, "headroom_access", 63, value, &found);
  if (found) {  // under Headroom
    expect(!strcmp(value, "posix"), "headroom_access");
    MPI_Info_get(used, "cb_nodes", 63, value, &found);
    expect(found && !strcmp(value, "1"), "cb_nodes");
    MPI_Info_get(used, "cb_buffer_size", 63, value, &found);
    expect(found && !strcmp(value, "65536"), "cb_buffer_size");
  }
  MPI_Info_free(&used);
  MPI_Info_free(&given);
  MPI_File_close(&file);
}

static void modes(void) {
  int numbers[64];
  fill(numbers, 64, 0);
  MPI_Datatype type = interleaved(64);
  // Holes in a file that may only be written.
  MPI_File file = open_file("holes", MPI_MODE_CREATE | MPI_MODE_WRONLY);
  MPI_Datatype half;
  MPI_Type_vector(64, 1, 2 * size, MPI_INT, &half);
  MPI_Type_commit(&half);
  MPI_File_set_view(file, rank * 4, MPI_INT, half, "native", MPI_INFO_NULL);
  MPI_File_write_all(file, numbers, 64, MPI_INT, MPI_STATUS_IGNORE);
  MPI_File_close(&file);
  for (int at = 0; at < 64; at++) expect(int_at("holes", 4L * (2 * at * size + rank)) == at * size + rank, "a file with holes");
  // Appending: the position begins at the end.
  file = open_file("holes", MPI_MODE_WRONLY | MPI_MODE_APPEND);
  long before = size_of("holes");
  MPI_Offset position = -1;
  MPI_File_get_position(file, &position);
  expect(position == before, "position of a file that is appended to");
  MPI_File_seek(file, (MPI_Offset)(before + rank * 256), MPI_SEEK_SET);
  MPI_File_write_all(file, numbers, 64, MPI_INT, MPI_STATUS_IGNORE);
  MPI_File_close(&file);
  expect(size_of("holes") == before + 256L * size && int_at("holes", before + rank * 256L) == rank, "what was appended");
  // A file that goes with its handle.
  file = open_file("gone", MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE);
  MPI_File_set_view(file, rank * 4, MPI_INT, type, "native", MPI_INFO_NULL);
  MPI_File_write_all(file, numbers, 64, MPI_INT, MPI_STATUS_IGNORE);
  int back[64];
  MPI_File_read_at_all(file, 0, back, 64, MPI_INT, MPI_STATUS_IGNORE);
  expect(!memcmp(back, numbers, sizeof back), "a file that is deleted on close");
  MPI_File_close(&file);
  MPI_Barrier(MPI_COMM_WORLD);
  expect(size_of("gone") == -1, "a file that should be deleted");
  MPI_Type_free(&type);
  MPI_Type_free(&half);
}

static void renamed_and_far(void) {
  int numbers[64], back[64];
  fill(numbers, 64, 0);
  MPI_Datatype type = interleaved(64);
  MPI_File file = open_file("before", MPI_MODE_CREATE | MPI_MODE_RDWR);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) rename(path_of("before"), path_of("after"));
  MPI_Barrier(MPI_COMM_WORLD);
  const MPI_Offset far = (MPI_Offset)5 << 30;
  MPI_File_set_view(file, far + rank * 4, MPI_INT, type, "native", MPI_INFO_NULL);
  MPI_File_write_at_all(file, 64, numbers, 64, MPI_INT, MPI_STATUS_IGNORE);
  MPI_File_read_at_all(file, 64, back, 64, MPI_INT, MPI_STATUS_IGNORE);
  expect(!memcmp(back, numbers, sizeof back), "content behind 5 GiB");
  MPI_File_close(&file);
  expect(size_of("before") == -1 && size_of("after") == far + 512L * size, "a renamed file");
  MPI_Type_free(&type);
}

// The last rank has nothing in the call, leaves it, and writes at once where nobody else did: that must stay.
static void early_writes(void) {
  enum { N = 2000 };
  MPI_File file = open_file("early", MPI_MODE_CREATE | MPI_MODE_RDWR);
  MPI_Datatype type;
  MPI_Type_vector(N, 1, size, MPI_INT, &type);
  MPI_Type_commit(&type);
  int* numbers = malloc(sizeof(int) * N);
  for (int round = 0; round < 30; round++) {
    int last = rank == size - 1;
    MPI_File_set_view(file, rank * 4, MPI_INT, type, "native", MPI_INFO_NULL);
    fill(numbers, N, round);
    MPI_File_write_at_all(file, 0, numbers, last ? 0 : N, MPI_INT, MPI_STATUS_IGNORE);
    if (last) MPI_File_write_at(file, 0, numbers, N, MPI_INT, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int at = 0; at < N; at += 13)
      expect(int_at("early", 4L * (at * size + rank)) == round + at * size + rank, "an early write");
    MPI_Barrier(MPI_COMM_WORLD);
  }
  MPI_File_close(&file);
  MPI_Type_free(&type);
  free(numbers);
}

// One rank has everything; nobody has anything; a communicator of some ranks; a file that stays open.
static void odd_calls(void) {
  int number = 41 + rank;
  MPI_Status status;
  MPI_File file = open_file("odd", MPI_MODE_CREATE | MPI_MODE_RDWR);
  MPI_File_write_at_all(file, 0, &number, rank == 1 ? 1 : 0, MPI_INT, &status);
  int count = -1;
  MPI_Get_count(&status, MPI_INT, &count);
  expect(count == (rank == 1), "count of one rank's call");
  MPI_File_write_all(file, NULL, 0, MPI_INT, &status);
  MPI_File_set_size(file, 2);
  MPI_File_read_at_all(file, 0, &number, 1, MPI_BYTE, &status);
  MPI_Get_count(&status, MPI_BYTE, &count);
  expect(count == 1, "count after set_size");
  MPI_File_close(&file);
  MPI_Comm some;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &some);
  char name[20];
  snprintf(name, sizeof name, "some%d", rank % 2);
  MPI_File part;
  MPI_File_open(some, path_of(name), MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &part);
  int place, members;
  MPI_Comm_rank(some, &place);
  MPI_Comm_size(some, &members);
  MPI_Comm_free(&some);
  number = 100 + place;
  MPI_File_write_at_all(part, place * 4, &number, 4, MPI_BYTE, &status);
  MPI_File_sync(part);
  int all[16] = {0};
  MPI_File_read_at_all(part, 0, all, members * 4, MPI_BYTE, &status);
  for (int each = 0; each < members; each++) expect(all[each] == 100 + each, "a file of some ranks");
  MPI_File_close(&part);
}

int main(int count, char** arguments) {
  MPI_Init(&count, &arguments);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  folder = arguments[1];
  positions_and_two_files();
  hints();
  modes();
  renamed_and_far();
  early_writes();
  odd_calls();
  int all = 0;
  MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0 && all == 0) printf("right\n");
  MPI_Finalize();
  return all != 0;
}
