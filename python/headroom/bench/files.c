// Collective access to one file by all ranks: what it takes, and by how much a rank grows. See files.py.
//
//   files PATTERN FILE MIB NODES [LEFT ...] [-- hint=value ...]
//
// MIB mebibytes a rank, of one of these patterns: interleaved (pieces of 16 bytes, every rank's in turn), random (pieces of 16
// bytes, each somebody's), blocks (of a three-dimensional array of numbers), segments (each rank's in one piece), short (4 KiB
// a rank, 100 calls). Rank r is on node r % NODES. LEFT: of each node, the folder of its memory cgroup and the bytes that are
// left in it beside what is there when the call begins. The second of two rounds is told, as lines "what TAB number": seconds,
// KiB.
#define _GNU_SOURCE
#include <fcntl.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, size, nodes;

static void fail(const char* what) {
  fprintf(stderr, "rank %d: %s\n", rank, what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static long status_of(const char* name) {
  FILE* file = fopen("/proc/self/status", "r");
  char line[256];
  long number = -1;
  while (file && fgets(line, sizeof line, file))
    if (!strncmp(line, name, strlen(name))) number = atol(line + strlen(name));
  if (file) fclose(file);
  return number;
}

static void write_text(const char* path, const char* text) {
  int file = open(path, O_WRONLY);
  if (file < 0 || write(file, text, strlen(text)) < 0) perror(path);
  if (file >= 0) close(file);
}

static long read_number(const char* path) {
  char text[64] = "";
  int file = open(path, O_RDONLY);
  if (file < 0 || read(file, text, sizeof text - 1) < 0) perror(path);
  if (file >= 0) close(file);
  return atol(text);
}

// Leaves so many bytes in the node's cgroup from now on; none: without a limit again.
static void leave(const char* folder, long bytes) {
  char path[600], text[64];
  int version1;
  snprintf(path, sizeof path, "%s/memory.limit_in_bytes", folder);
  version1 = access(path, F_OK) == 0;
  char used[600], limit[600];
  snprintf(used, sizeof used, "%s/%s", folder, version1 ? "memory.usage_in_bytes" : "memory.current");
  snprintf(limit, sizeof limit, "%s/%s", folder, version1 ? "memory.limit_in_bytes" : "memory.max");
  if (bytes > 0 && version1) {
    snprintf(path, sizeof path, "%s/memory.force_empty", folder);
    write_text(path, "0");
  }
  snprintf(text, sizeof text, "%ld", bytes > 0 ? read_number(used) + bytes : -1);
  write_text(limit, bytes > 0 ? text : version1 ? "-1" : "max");
}

static uint64_t mixed(uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ULL;
  return x ^ x >> 33;
}

static MPI_Offset origin;

// The view's datatype; `bytes` becomes what this rank has of it.
static MPI_Datatype make_view(const char* pattern, int64_t* bytes) {
  MPI_Datatype piece, type;
  MPI_Type_contiguous(16, MPI_BYTE, &piece);
  if (!strcmp(pattern, "interleaved")) {
    MPI_Type_vector((int)(*bytes / 16), 1, size, piece, &type);
    origin = 16 * (MPI_Offset)rank;
  } else if (!strcmp(pattern, "random")) {
    int64_t slots = *bytes / 16 * size, mine = 0;
    int* places = malloc(sizeof(int) * (size_t)(*bytes / 16 * 2 + 1000));
    for (int64_t slot = 0; slot < slots; slot++)
      if (mixed((uint64_t)slot) % (uint64_t)size == (uint64_t)rank) places[mine++] = (int)slot;
    MPI_Type_create_indexed_block((int)mine, 1, places, piece, &type);
    free(places);
    *bytes = mine * 16;
  } else if (!strcmp(pattern, "blocks")) {
    int grid[3] = {0, 0, 0}, whole[3], part[3], first[3];
    MPI_Dims_create(size, 3, grid);
    part[2] = 128;
    part[1] = 256;
    part[0] = (int)(*bytes / 8 / part[1] / part[2]);
    *bytes = (int64_t)part[0] * part[1] * part[2] * 8;
    for (int each = 0, left = rank; each < 3; left /= grid[each++]) {
      whole[each] = part[each] * grid[each];
      first[each] = left % grid[each] * part[each];
    }
    MPI_Type_create_subarray(3, whole, part, first, MPI_ORDER_C, MPI_DOUBLE, &type);
  } else if (!strcmp(pattern, "segments")) {
    MPI_Type_contiguous(1 << 20, MPI_BYTE, &type);
    origin = rank * *bytes;
  } else {
    *bytes = 4096;
    MPI_Type_contiguous(4096, MPI_BYTE, &type);
    origin = rank * *bytes;
  }
  MPI_Type_commit(&type);
  MPI_Type_free(&piece);
  return type;
}

int main(int count, char** arguments) {
  MPI_Init(&count, &arguments);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const char *pattern = arguments[1], *name = arguments[2];
  int64_t bytes = atol(arguments[3]) << 20;
  nodes = atoi(arguments[4]);
  const char* folder = NULL;
  long left = 0;
  int at = 5;
  for (int node = 0; at + 1 < count && strcmp(arguments[at], "--"); node++, at += 2)
    if (node == rank % nodes) folder = arguments[at], left = atol(arguments[at + 1]);
  MPI_Info info;
  MPI_Info_create(&info);
  for (at++; at < count; at++) {
    char* value = strchr(arguments[at], '=');
    *value = 0;
    MPI_Info_set(info, arguments[at], value + 1);
  }
  MPI_Datatype type = make_view(pattern, &bytes);
  int calls = !strcmp(pattern, "short") ? 100 : 1;
  uint64_t* memory = malloc((size_t)bytes);
  for (int64_t each = 0; each < bytes / 8; each++) memory[each] = (uint64_t)rank << 48 | (uint64_t)each;
  double taken[3] = {0, 0, 0};
  long grown = 0;
  for (int round = 0; round < 2; round++) {
    MPI_File file;
    if (rank == 0) unlink(name);
    MPI_Barrier(MPI_COMM_WORLD);
    long before = status_of("VmRSS:");
    write_text("/proc/self/clear_refs", "5");
    if (MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR, info, &file)) fail("cannot open the file");
    MPI_File_set_view(file, origin, MPI_BYTE, type, "native", info);
    if (folder && rank < nodes) leave(folder, left);
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    for (int call = 0; call < calls; call++)
      if (MPI_File_write_at_all(file, 0, memory, (int)(bytes / 8), MPI_UINT64_T, MPI_STATUS_IGNORE)) fail("cannot write");
    MPI_Barrier(MPI_COMM_WORLD);
    taken[0] = (MPI_Wtime() - begin) / calls;
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    taken[1] = (MPI_Wtime() - begin) / calls;
    int descriptor = open(name, O_RDONLY);
    if (rank == 0) posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
    close(descriptor);
    memset(memory, 0, (size_t)bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    begin = MPI_Wtime();
    for (int call = 0; call < calls; call++)
      if (MPI_File_read_at_all(file, 0, memory, (int)(bytes / 8), MPI_UINT64_T, MPI_STATUS_IGNORE)) fail("cannot read");
    MPI_Barrier(MPI_COMM_WORLD);
    taken[2] = (MPI_Wtime() - begin) / calls;
    grown = status_of("VmHWM:") - before;
    if (folder && rank < nodes) leave(folder, 0);
    MPI_File_close(&file);
    for (int64_t each = 0; each < bytes / 8; each++)
      if (memory[each] != ((uint64_t)rank << 48 | (uint64_t)each)) fail("what was read is not what was written");
  }
  long most = 0;
  MPI_Reduce(&grown, &most, 1, MPI_LONG, MPI_MAX, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    unlink(name);
    printf("write\t%.9f\nwrite and sync\t%.9f\nread\t%.9f\ngrowth\t%ld\n", taken[0], taken[1], taken[2], most);
  }
  MPI_Type_free(&type);
  MPI_Info_free(&info);
  MPI_Finalize();
  return 0;
}
