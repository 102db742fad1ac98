// Collective access to a file by views and memory types drawn by chance, checked byte by byte.
//
//   collective_files FILE SEED ROUNDS [pressure=MIB] [alone=1] [[first:]hint=value ...]
//
// Where each element goes is computed by hand beside the datatypes. After each collective write the ranks look by pread()
// whether their own are there, and rank 0 whether what nobody wrote is as before; then all is read back by another call into
// another memory type. alone: by calls that each rank makes for itself. first: a hint of rank 0 alone. Prints "right" with what
// was done, or what is wrong.
#include <fcntl.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { VECTOR, BLOCKS, SCATTERED, SEGMENTS, RUNS, KINDS };
enum { MOST = 40000, SLOTS = 60000 };

static int rank, size;
static int file_descriptor;
static long wrong;
static int alone;
static long pressure;  // so many bytes of an array push out, between calls, what the calls access
static char* array;

static uint64_t mixed(uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ULL;
  return x ^ x >> 33;
}

static uint64_t shared_state, own_state;
static unsigned shared_random(unsigned below) { return (unsigned)(mixed(shared_state++) % below); }
static unsigned own_random(unsigned below) { return (unsigned)(mixed(own_state++ * 977 + (uint64_t)rank) % below); }

static int value_of(int who, int element, int round) {
  return (int)(mixed((uint64_t)who << 40 | (uint64_t)element << 8 | (uint64_t)round) | 1);
}

static void fail(const char* what, int round, long at) {
  if (wrong++ < 3) printf("rank %d: round %d: %s at %ld\n", rank, round, what, at);
}

// A view: its datatype, and where each of its elements lies, in ints from its beginning.
struct view {
  MPI_Datatype type;
  MPI_Offset origin;  // in bytes
  int elements;       // of one tile
  int extent;         // in ints
  int* places;
};

static void resize(struct view* view, MPI_Datatype inner) {
  MPI_Type_create_resized(inner, 0, (MPI_Aint)view->extent * 4, &view->type);
  MPI_Type_free(&inner);
  MPI_Type_commit(&view->type);
}

static void make_view(struct view* view, int kind) {
  MPI_Datatype inner;
  view->places = malloc(sizeof(int) * SLOTS);
  view->elements = 0;
  view->origin = 4 * (MPI_Offset)shared_random(100);
  if (kind == VECTOR) {
    int count = 1 + (int)shared_random(40), length = 1 + (int)shared_random(300),
        gap = shared_random(2) ? (int)shared_random(50) : 0;
    int stride = size * length + gap;
    for (int block = 0; block < count; block++)
      for (int each = 0; each < length; each++) view->places[view->elements++] = block * stride + each;
    MPI_Type_vector(count, length, stride, MPI_INT, &inner);
    view->origin += 4 * (MPI_Offset)rank * length;
    view->extent = count * stride;
    resize(view, inner);
  } else if (kind == BLOCKS) {
    int sizes[3] = {1 + (int)shared_random(12), size * (1 + (int)shared_random(8)), 2 + (int)shared_random(60)};
    int parts[3] = {sizes[0], sizes[1] / size, sizes[2] - (int)shared_random(2)}, starts[3] = {0, rank * (sizes[1] / size), 0};
    for (int x = 0; x < parts[0]; x++)
      for (int y = 0; y < parts[1]; y++)
        for (int z = 0; z < parts[2]; z++) view->places[view->elements++] = (x * sizes[1] + starts[1] + y) * sizes[2] + z;
    MPI_Type_create_subarray(3, sizes, parts, starts, MPI_ORDER_C, MPI_INT, &view->type);
    MPI_Type_commit(&view->type);
    view->extent = sizes[0] * sizes[1] * sizes[2];
  } else if (kind == SCATTERED || kind == RUNS) {
    // Slots of random owners; some belong to nobody.
    uint64_t salt = shared_state++;
    int slots = 1000 + (int)shared_random(6000), most = kind == RUNS ? 9 : 1, holes = (int)shared_random(2);
    int *lengths = malloc(sizeof(int) * SLOTS), *begins = malloc(sizeof(int) * SLOTS), blocks = 0, at = 0;
    for (int slot = 0; slot < slots; slot++) {
      int length = most == 1 ? 4 : 1 + (int)(mixed(salt * 31 + (uint64_t)slot) % (unsigned)most);
      if ((int)(mixed(salt + 1000003ULL * (uint64_t)slot) % (unsigned)(size + holes)) == rank) {
        begins[blocks] = at;
        lengths[blocks++] = length;
        for (int each = 0; each < length; each++) view->places[view->elements++] = at + each;
      }
      at += length;
    }
    if (kind == SCATTERED)
      MPI_Type_create_indexed_block(blocks, 4, begins, MPI_INT, &inner);
    else
      MPI_Type_indexed(blocks, lengths, begins, MPI_INT, &inner);
    view->extent = at;
    resize(view, inner);
    free(lengths);
    free(begins);
  } else {
    int length = 1 + (int)shared_random(MOST);
    for (int each = 0; each < length; each++) view->places[view->elements++] = each;
    int apart = length + (int)shared_random(2) * 7;
    MPI_Type_contiguous(length, MPI_INT, &inner);
    view->origin += 4 * (MPI_Offset)rank * apart;
    view->extent = size * apart;
    resize(view, inner);
  }
}

static int64_t place_of(const struct view* view, int64_t element) {
  return view->origin / 4 + element / view->elements * view->extent + view->places[element % view->elements];
}

// A memory type for `count` ints: where each of them lies.
static MPI_Datatype make_memory(int count, int* places, int* needed) {
  MPI_Datatype type;
  int kind = (int)own_random(4);
  if (kind == 0 || count == 0) {
    for (int each = 0; each < count; each++) places[each] = each;
    *needed = count;
    MPI_Type_contiguous(count, MPI_INT, &type);
  } else if (kind == 1) {
    for (int each = 0; each < count; each++) places[each] = 3 * each;
    *needed = 3 * count;
    MPI_Type_vector(count, 1, 3, MPI_INT, &type);
  } else if (kind == 2) {  // backwards
    int half = count / 2, lengths[2] = {half, count - half}, begins[2] = {count - half + 5, 0};
    for (int each = 0; each < count; each++) places[each] = each < half ? begins[0] + each : each - half;
    *needed = count + 5;
    MPI_Type_indexed(2, lengths, begins, MPI_INT, &type);
  } else {
    int *begins = malloc(sizeof(int) * (size_t)count), at = 0;
    for (int each = 0; each < count; each++) {
      at += (int)own_random(3);
      places[each] = begins[each] = at++;
    }
    *needed = at;
    MPI_Type_create_indexed_block(count, 1, begins, MPI_INT, &type);
    free(begins);
  }
  MPI_Type_commit(&type);
  return type;
}

static void check_status(MPI_Status* status, int expected, const char* what, int round) {
  int count = -1;
  MPI_Get_count(status, MPI_INT, &count);
  if (count != expected) fail(what, round, count);
}

static void access_alone(MPI_File file, int writes, int way, MPI_Offset offset, void* buffer, int count, MPI_Datatype type,
                         MPI_Status* status) {
  MPI_Request request = MPI_REQUEST_NULL;
  if (way == 0 && writes) MPI_File_write(file, buffer, count, type, status);
  if (way == 0 && !writes) MPI_File_read(file, buffer, count, type, status);
  if (way == 1 && writes) MPI_File_write_at(file, offset, buffer, count, type, status);
  if (way == 1 && !writes) MPI_File_read_at(file, offset, buffer, count, type, status);
  if (way == 2 && writes) MPI_File_iwrite(file, buffer, count, type, &request);
  if (way == 2 && !writes) MPI_File_iread(file, buffer, count, type, &request);
  if (way == 3 && writes) MPI_File_iwrite_at(file, offset, buffer, count, type, &request);
  if (way == 3 && !writes) MPI_File_iread_at(file, offset, buffer, count, type, &request);
  if (way >= 2) MPI_Wait(&request, status);
}

static void access_file(MPI_File file, int writes, int way, MPI_Offset offset, void* buffer, int count, MPI_Datatype type,
                        MPI_Status* status) {
  if (way != 1 && way != 3) MPI_File_seek(file, offset, MPI_SEEK_SET);
  if (alone) {
    access_alone(file, writes, way, offset, buffer, count, type, status);
    return;
  }
  if (way == 0 && writes) MPI_File_write_all(file, buffer, count, type, status);
  if (way == 0 && !writes) MPI_File_read_all(file, buffer, count, type, status);
  if (way == 1 && writes) MPI_File_write_at_all(file, offset, buffer, count, type, status);
  if (way == 1 && !writes) MPI_File_read_at_all(file, offset, buffer, count, type, status);
  if (way == 2 && writes) MPI_File_write_all_begin(file, buffer, count, type), MPI_File_write_all_end(file, buffer, status);
  if (way == 2 && !writes) MPI_File_read_all_begin(file, buffer, count, type), MPI_File_read_all_end(file, buffer, status);
  if (way == 3 && writes)
    MPI_File_write_at_all_begin(file, offset, buffer, count, type), MPI_File_write_at_all_end(file, buffer, status);
  if (way == 3 && !writes)
    MPI_File_read_at_all_begin(file, offset, buffer, count, type), MPI_File_read_at_all_end(file, buffer, status);
}

static void check_position(MPI_File file, int way, MPI_Offset expected, int round) {
  MPI_Offset position = -1;
  MPI_File_get_position(file, &position);
  if (way != 1 && way != 3 && position != expected) fail("position", round, (long)position);
}

static void press(int round) {
  for (long at = 0; at < pressure; at += 4096) array[at] = (char)round;
}

static void one_round(MPI_File file, int round) {
  struct view view;
  make_view(&view, (int)shared_random(KINDS));
  MPI_File_set_view(file, view.origin, MPI_INT, view.type, "native", MPI_INFO_NULL);
  int most = view.elements * 3 < MOST ? view.elements * 3 : MOST;
  int count = shared_random(6) == 0 && own_random(2) == 0 ? 0 : most > 0 ? 1 + (int)own_random((unsigned)most) : 0;
  MPI_Offset offset = most > 0 && shared_random(2) ? (MPI_Offset)own_random((unsigned)view.elements) : 0;
  int64_t last = 0, ends = count > 0 ? (place_of(&view, offset + count - 1) + 1) * 4 : 0;
  MPI_Allreduce(&ends, &last, 1, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);

  // What was there before.
  int64_t before = shared_random(3) == 0 ? 0 : (int64_t)shared_random((unsigned)(last / 4 + 1)) * 4 + 2000;
  unsigned char* content = malloc((size_t)(before > last ? before : last) + 1);
  if (rank == 0) {
    memset(content, 0x5a, (size_t)before);
    if (ftruncate(file_descriptor, 0) || (before > 0 && pwrite(file_descriptor, content, (size_t)before, 0) != before))
      perror("file");
  }
  MPI_Barrier(MPI_COMM_WORLD);

  int *places = malloc(sizeof(int) * MOST), needed = 0, way = (int)shared_random(4);
  MPI_Datatype type = make_memory(count, places, &needed);
  int* memory = malloc(sizeof(int) * (size_t)(needed + 1));
  memset(memory, 0x33, sizeof(int) * (size_t)needed);
  for (int each = 0; each < count; each++) memory[places[each]] = value_of(rank, each, round);
  MPI_Status status;
  press(round);
  access_file(file, 1, way, offset, memory, count > 0, type, &status);
  check_status(&status, count, "count written", round);
  check_position(file, way, offset + count, round);
  MPI_Type_free(&type);
  free(memory);

  MPI_File_sync(file);
  MPI_Barrier(MPI_COMM_WORLD);
  for (int each = 0; each < count; each++) {
    int there = 0;
    if (pread(file_descriptor, &there, 4, place_of(&view, offset + each) * 4) != 4 || there != value_of(rank, each, round))
      fail("written", round, each);
  }
  // What nobody wrote is as before, and the file is no longer than it must be.
  int64_t end = before > last ? before : last;
  unsigned char *touched = calloc((size_t)end / 4 + 2, 1), *by_anyone = calloc((size_t)end / 4 + 2, 1);
  for (int each = 0; each < count; each++) touched[place_of(&view, offset + each)] = 1;
  MPI_Reduce(touched, by_anyone, (int)(end / 4 + 1), MPI_UNSIGNED_CHAR, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    if (lseek(file_descriptor, 0, SEEK_END) != end) fail("length", round, (long)lseek(file_descriptor, 0, SEEK_END));
    if (pread(file_descriptor, content, (size_t)end, 0) != end) fail("short", round, 0);
    for (int64_t at = 0; at < end; at++)
      if (!by_anyone[at / 4] && content[at] != (at < before ? 0x5a : 0))
        fail("touched what nobody wrote", round, (long)at), at = end;
  }
  free(touched);
  free(by_anyone);

  // Reads it back, now and then from a file that has become shorter.
  int64_t cut = shared_random(3) == 0 ? (int64_t)shared_random((unsigned)(end / 4 + 1)) * 4 : end;
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0 && cut < end && ftruncate(file_descriptor, cut)) perror("ftruncate");
  MPI_Barrier(MPI_COMM_WORLD);
  type = make_memory(count, places, &needed);
  memory = malloc(sizeof(int) * (size_t)(needed + 1));
  memset(memory, 0x77, sizeof(int) * (size_t)needed);
  way = (int)shared_random(4);
  press(round);
  access_file(file, 0, way, offset, memory, count > 0, type, &status);
  int readable = 0;
  while (readable < count && (place_of(&view, offset + readable) + 1) * 4 <= cut) readable++;
  check_status(&status, readable, "count read", round);
  check_position(file, way, offset + readable, round);
  char* expected = malloc((size_t)needed * 4 + 4);
  memset(expected, 0x77, (size_t)needed * 4);
  for (int each = 0; each < readable; each++) {
    int value = value_of(rank, each, round);
    memcpy(expected + places[each] * 4, &value, 4);
  }
  if (readable == count || getenv("EXACT_AT_END")) {
    if (memcmp(expected, memory, (size_t)needed * 4) != 0) fail("read", round, count);
  } else {  // what lies behind the end is undefined
    for (int each = 0; each < readable; each++)
      if (memory[places[each]] != value_of(rank, each, round)) fail("read before the end", round, each), each = readable;
  }
  free(expected);
  MPI_Type_free(&type);
  MPI_Type_free(&view.type);
  free(memory);
  free(places);
  free(content);
  free(view.places);
}

int main(int count, char** arguments) {
  MPI_Init(&count, &arguments);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  own_state = shared_state = strtoull(arguments[2], NULL, 10) << 20;
  int rounds = atoi(arguments[3]);
  MPI_Info info;
  MPI_Info_create(&info);
  for (int each = 4; each < count; each++) {
    char* value = strchr(arguments[each], '=');
    *value = 0;
    if (!strcmp(arguments[each], "pressure")) {
      pressure = atol(value + 1) << 20;
      array = malloc((size_t)pressure);
      continue;
    }
    if (!strcmp(arguments[each], "alone")) {
      alone = 1;
      continue;
    }
    const int is_of_first = !strncmp(arguments[each], "first:", 6);
    if (!is_of_first || rank == 0) MPI_Info_set(info, arguments[each] + (is_of_first ? 6 : 0), value + 1);
  }
  MPI_File file;
  int error = MPI_File_open(MPI_COMM_WORLD, arguments[1], MPI_MODE_CREATE | MPI_MODE_RDWR, info, &file);
  if (error != MPI_SUCCESS) {
    char text[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Error_string(error, text, &length);
    printf("rank %d: cannot open: %s\n", rank, text);
    MPI_Finalize();
    return 3;
  }
  file_descriptor = open(arguments[1], O_RDWR);
  for (int round = 0; round < rounds && wrong == 0; round++) {
    one_round(file, round);
    long all = 0;
    MPI_Allreduce(&wrong, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (all != 0) break;
  }
  MPI_File_close(&file);
  MPI_Info_free(&info);
  long all = 0;
  MPI_Allreduce(&wrong, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0 && all == 0) printf("right: %d rounds of %d ranks\n", rounds, size);
  MPI_Finalize();
  return all != 0;
}
