// All ranks map a segment at an address that lies among those of one's evictable memory, as the library of a launcher may do in
// MPI_Init (arena/addresses.h), and then use more memory than there is, and send it to each other.
//   segment FILE MIB     the segment's file; how much memory each rank has
// A segment at the address of what has been allocated cannot be had; that is said by another address, and nothing is lost.
#include <fcntl.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

void* map_segment(const char* path, void* address, size_t bytes);

enum { kSegmentBytes = 1 << 20, kWordsOfMib = (1 << 20) / sizeof(uint64_t), kFirstWords = 4 * kWordsOfMib };

static void require(int is_so, int rank, const char* what) {
  if (!is_so) {
    printf("rank %d: %s\n", rank, what);
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
}

static void fill(uint64_t* words, size_t count, int rank) {
  for (size_t i = 0; i < count; ++i) {
    words[i] = ((uint64_t)rank << 48) + i;
  }
}

static int is_filled(const uint64_t* words, size_t count, int rank) {
  for (size_t i = 0; i < count; ++i) {
    if (words[i] != ((uint64_t)rank << 48) + i) {
      return 0;
    }
  }
  return 1;
}

int main(int argc, char** argv) {
  const size_t count = strtoul(argv[2], NULL, 10) * kWordsOfMib;
  uint64_t* first = malloc(kFirstWords * sizeof *first);
  fill(first, kFirstWords, 0);

  // Whoever locks the file first says where. Told by way of the file, since ranks that send have each other's memory mapped.
  const int file = open(argv[1], O_RDWR);
  const int is_first = flock(file, LOCK_EX | LOCK_NB) == 0;
  uint64_t place = is_first ? (uintptr_t)first & ~(uint64_t)4095 : 0;
  if (is_first && map_segment(argv[1], (void*)place, kSegmentBytes) == (void*)place) {
    puts("a segment took the place of what was allocated");
    return 1;
  }
  if (is_first && pwrite(file, &place, sizeof place, kSegmentBytes / 2) != sizeof place) {
    return 1;
  }
  while (place == 0 && pread(file, &place, sizeof place, kSegmentBytes / 2) == sizeof place) {
    usleep(1000);
  }
  void* wanted = (void*)(place + ((uint64_t)20 << 30));
  uint64_t* segment = map_segment(argv[1], wanted, kSegmentBytes);

  MPI_Init(&argc, &argv);
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  require(place != 0 && segment == wanted, rank, "the segment is at another address");
  segment[rank] = (uint64_t)rank + 1;
  MPI_Barrier(MPI_COMM_WORLD);
  for (int other = 0; other < size; ++other) {
    require(segment[other] == (uint64_t)other + 1, rank, "the segment is not shared");
  }

  uint64_t* mine = malloc(count * sizeof *mine);
  uint64_t* theirs = malloc(count * sizeof *theirs);
  fill(mine, count, rank);
  const int next = (rank + 1) % size;
  const int before = (rank + size - 1) % size;
  for (int round = 0; round < 2; ++round) {
    MPI_Sendrecv(mine, (int)count, MPI_UINT64_T, next, 0, theirs, (int)count, MPI_UINT64_T, before, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    require(is_filled(theirs, count, before), rank, "wrong content came");
  }
  require(is_filled(mine, count, rank), rank, "its own content is wrong");
  require(is_filled(first, kFirstWords, 0), rank, "what it had first is wrong");
  require(munmap(segment, kSegmentBytes) == 0, rank, "the segment cannot be unmapped");
  free(theirs);
  free(mine);
  free(first);
  MPI_Finalize();
  if (rank == 0) {
    puts("ok");
  }
  return 0;
}
