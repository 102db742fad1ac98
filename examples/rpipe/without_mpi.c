/* Pipes in a program that knows no MPI: ranks that were started by any means, on one node or several, find each other by files
 * in a folder that all of them see. Each rank writes to the next one, and reads from the one before; prints what it has read,
 * and which way that came.
 *
 * usage: without_mpi FOLDER RANK RANKS [KIB]: once for each rank, at the same time; FOLDER is there, and empty.
 * Compile and link with any C compiler: see docs/user/pipes.md. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <headroom/rpipe.h>

struct meeting {
  const char* folder;
  int rank, ranks;
  int round; /* rpipe_init_with() may gather twice */
};

/* Gives each rank's bytes to all: each rank writes a file, whole before it has its name, and reads those of all. */
static int gather(void* context, const void* mine, void* all, size_t bytes) {
  struct meeting* const meeting = context;
  char begun[512], done[512];
  const int round = meeting->round++;
  snprintf(begun, sizeof begun, "%s/begun.%d.%d", meeting->folder, round, meeting->rank);
  snprintf(done, sizeof done, "%s/done.%d.%d", meeting->folder, round, meeting->rank);
  FILE* const file = fopen(begun, "w");
  if (file == NULL || fwrite(mine, 1, bytes, file) != bytes || fclose(file) != 0 || rename(begun, done) != 0) {
    return -1;
  }
  for (int rank = 0; rank < meeting->ranks; ++rank) {
    FILE* theirs;
    snprintf(done, sizeof done, "%s/done.%d.%d", meeting->folder, round, rank);
    while ((theirs = fopen(done, "r")) == NULL) {
      const struct timespec moment = {.tv_nsec = 1000000};
      nanosleep(&moment, NULL);
    }
    const size_t read = fread((char*)all + (size_t)rank * bytes, 1, bytes, theirs);
    fclose(theirs);
    if (read != bytes) {
      return -1;
    }
  }
  return 0;
}

static void check(int error, const char* what, rpipe_t pipe) {
  if (error < 0) {
    const char* const reason = pipe == NULL ? NULL : rpipe_reason(pipe);
    fprintf(stderr, "%s: %s\n", what, reason == NULL ? rpipe_error(error) : reason);
    exit(1);
  }
}

static uint64_t word_of(int rank, size_t at) { return (uint64_t)rank << 32 | at; }

int main(int argc, char** argv) {
  if (argc < 4) {
    fprintf(stderr, "usage: without_mpi FOLDER RANK RANKS [KIB]\n");
    return 2;
  }
  struct meeting meeting = {.folder = argv[1], .rank = atoi(argv[2]), .ranks = atoi(argv[3])};
  const struct rpipe_bootstrap bootstrap = {
      .size = sizeof bootstrap, .rank = meeting.rank, .ranks = meeting.ranks, .allgather = gather, .context = &meeting};
  const size_t words = (size_t)(argc > 4 ? atoi(argv[4]) : 1) * 1024 / sizeof(uint64_t);
  const int before = (meeting.rank + meeting.ranks - 1) % meeting.ranks;
  rpipe_t to, from;
  raddr_t buffer;
  size_t bytes;
  check(rpipe_init_with(&bootstrap), "rpipe_init_with", NULL);
  struct rpipe_options options = {.size = sizeof options, .channel = (uint32_t)meeting.rank};
  check(rpipe_open(&to, (meeting.rank + 1) % meeting.ranks, RPIPE_WRITER, &options), "rpipe_open", NULL);
  options.channel = (uint32_t)before;
  check(rpipe_open(&from, before, RPIPE_READER, &options), "rpipe_open", NULL);

  check(rpipe_alloc(to, words * sizeof(uint64_t), &buffer, RPIPE_FOREVER), "rpipe_alloc", to);
  uint64_t* content = rpipe_at(buffer);
  for (size_t each = 0; each < words; ++each) {
    content[each] = word_of(meeting.rank, each);
  }
  check(rpipe_write(buffer, RPIPE_ALL, RPIPE_FOREVER), "rpipe_write", to);

  check(rpipe_read(from, &buffer, &bytes, RPIPE_FOREVER), "rpipe_read", from);
  content = rpipe_at(buffer);
  size_t right = 0;
  for (size_t each = 0; each < bytes / sizeof(uint64_t); ++each) {
    right += content[each] == word_of(before, each);
  }
  struct rpipe_state state = {.size = sizeof state};
  check(rpipe_read_state(from, &state), "rpipe_read_state", from);
  printf("rank %d read %zu right words from rank %d by %s\n", meeting.rank, right, before,
         state.backend == RPIPE_NODE ? "memory" : "libfabric");
  check(rpipe_free(buffer), "rpipe_free", from);
  check(rpipe_finalize(RPIPE_FOREVER), "rpipe_finalize", NULL);
  return 0;
}
