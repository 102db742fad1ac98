/* A hash table that is distributed over the ranks: each rank makes keys and inserts each at the rank that owns it, which nobody
 * can foresee. Three ways: pipes, where a key is a message of 8 bytes and its owner inserts it when it comes; messages, the
 * same; windows, where the key is put into the owner's inbox, a place of which is taken by a remote atomic operation, and
 * inserted at the end. All give the same table.
 *
 * usage: mpiexec -n RANKS hash_table pipes|messages|windows KEYS_OF_A_RANK */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <headroom/rpipe.h>

static int self, ranks;
static uint64_t *slots, mask, inserted; /* the rank's part: 0 is free */

static void need(int error, const char* call) {
  if (error != 0) {
    fprintf(stderr, "rank %d: %s: %s\n", self, call, rpipe_error(error));
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
}

static uint64_t mix(uint64_t x) { /* splitmix64 */
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}
/* The keys of all ranks come from half as many numbers, so that some are made twice. */
static uint64_t key_of(int rank, uint64_t number, uint64_t keys) {
  return mix(mix((uint64_t)rank * keys + number) % (keys * (uint64_t)ranks / 2)) | 1;
}
static int owner_of(uint64_t key) { return (int)(key >> 40) % ranks; }

static void insert(uint64_t key) {
  for (uint64_t at = mix(key);; ++at) {
    uint64_t* const slot = &slots[at & mask];
    if (*slot == key) {
      return;
    }
    if (*slot == 0) {
      *slot = key;
      ++inserted;
      return;
    }
  }
}

/* ---- pipes: one to each rank and one from each ---- */

static rpipe_t *to, *from;
static unsigned char* over; /* that rank has said that it has no more */
static int left;
/* Inserts what has come; waits for something if there is nothing. */
static void take_keys(int64_t timeout) {
  rpipe_t open[ranks];
  int who[ranks], count = 0, which = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    if (!over[rank]) {
      open[count] = from[rank];
      who[count++] = rank;
    }
  }
  int error = count == 0 ? -11 : rpipe_wait_any(open, NULL, count, &which, timeout);
  for (; error == 0; error = rpipe_wait_any(open, NULL, count, &which, RPIPE_NOWAIT)) {
    uint64_t key = 0;
    size_t bytes = 0;
    need(rpipe_receive(open[which], &key, sizeof key, &bytes, RPIPE_NOWAIT), "rpipe_receive");
    if (bytes == 0) {
      over[who[which]] = 1;
      --left;
      return;
    }
    insert(key);
  }
}
static void by_pipes(uint64_t keys) {
  need(rpipe_init(NULL, NULL), "rpipe_init");
  to = calloc((size_t)ranks, sizeof *to);
  from = calloc((size_t)ranks, sizeof *from);
  over = calloc((size_t)ranks, 1);
  left = ranks;
  struct rpipe_options options = {.size = sizeof options};
  for (int rank = 0; rank < ranks; ++rank) { /* the channel says who writes */
    options.channel = (uint32_t)self;
    need(rpipe_open(&to[rank], rank, RPIPE_WRITER, &options), "rpipe_open");
    options.channel = (uint32_t)rank;
    need(rpipe_open(&from[rank], rank, RPIPE_READER, &options), "rpipe_open");
  }
  for (uint64_t number = 0; number < keys; ++number) {
    const uint64_t key = key_of(self, number, keys);
    int error = 0;
    while ((error = rpipe_send(to[owner_of(key)], &key, sizeof key, 1000000)) == -110) {
      take_keys(RPIPE_NOWAIT); /* nobody has room: the others wait for this rank */
    }
    need(error, "rpipe_send");
    if (number % 64 == 0) {
      take_keys(RPIPE_NOWAIT);
    }
  }
  for (int rank = 0; rank < ranks; ++rank) {
    need(rpipe_send(to[rank], NULL, 0, RPIPE_FOREVER), "rpipe_send");
  }
  while (left > 0) {
    take_keys(RPIPE_FOREVER);
  }
  need(rpipe_finalize(RPIPE_FOREVER), "rpipe_finalize");
}

/* ---- messages: an empty one says that there are no more ---- */

static int receive_key(int* others) {
  int there = 0, count = 0;
  uint64_t key = 0;
  MPI_Status status;
  MPI_Iprobe(MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &there, &status);
  if (!there) {
    return 0;
  }
  MPI_Recv(&key, 1, MPI_UINT64_T, status.MPI_SOURCE, 0, MPI_COMM_WORLD, &status);
  MPI_Get_count(&status, MPI_UINT64_T, &count);
  if (count == 0) {
    --*others;
  } else {
    insert(key);
  }
  return 1;
}
static void by_messages(uint64_t keys) {
  enum { kAtOnce = 256 };
  static uint64_t sent[kAtOnce];
  MPI_Request requests[kAtOnce];
  int others = ranks;
  for (int each = 0; each < kAtOnce; ++each) {
    requests[each] = MPI_REQUEST_NULL;
  }
  for (uint64_t number = 0; number < keys + (uint64_t)ranks; ++number) {
    const int place = (int)(number % kAtOnce);
    int done = 0;
    for (MPI_Test(&requests[place], &done, MPI_STATUS_IGNORE); !done; MPI_Test(&requests[place], &done, MPI_STATUS_IGNORE)) {
      receive_key(&others);
    }
    sent[place] = number < keys ? key_of(self, number, keys) : 0;
    const int target = number < keys ? owner_of(sent[place]) : (int)(number - keys);
    MPI_Isend(&sent[place], number < keys ? 1 : 0, MPI_UINT64_T, target, 0, MPI_COMM_WORLD, &requests[place]);
    if (number % 64 == 0) {
      while (receive_key(&others)) {
      }
    }
  }
  while (others > 0) {
    receive_key(&others);
  }
  MPI_Waitall(kAtOnce, requests, MPI_STATUSES_IGNORE);
}

/* ---- windows: word 0 says how many keys the inbox has ---- */

static void by_windows(uint64_t keys) {
  const MPI_Aint most = (MPI_Aint)(keys * (uint64_t)ranks);
  uint64_t* inbox = NULL;
  MPI_Win window;
  MPI_Win_allocate((most + 1) * 8, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &inbox, &window);
  MPI_Win_lock_all(0, window);
  inbox[0] = 0;
  MPI_Win_sync(window);
  MPI_Barrier(MPI_COMM_WORLD);
  const uint64_t one = 1;
  for (uint64_t number = 0; number < keys; ++number) {
    const uint64_t key = key_of(self, number, keys);
    uint64_t place = 0;
    const int target = owner_of(key);
    MPI_Fetch_and_op(&one, &place, MPI_UINT64_T, target, 0, MPI_SUM, window);
    MPI_Win_flush(target, window);
    MPI_Put(&key, 1, MPI_UINT64_T, target, (MPI_Aint)place + 1, 1, MPI_UINT64_T, window);
    MPI_Win_flush_local(target, window);
  }
  MPI_Win_flush_all(window);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_sync(window);
  for (uint64_t each = 0; each < inbox[0]; ++each) {
    insert(inbox[each + 1]);
  }
  MPI_Win_unlock_all(window);
  MPI_Win_free(&window);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &self);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const uint64_t keys = argc == 3 ? strtoull(argv[2], NULL, 10) : 0;
  if (keys < 2) {
    fprintf(stderr, "usage: mpiexec -n RANKS hash_table pipes|messages|windows KEYS_OF_A_RANK\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  for (mask = 1; mask < 4 * keys; mask *= 2) {
  }
  slots = calloc(mask--, sizeof *slots);
  MPI_Barrier(MPI_COMM_WORLD);
  const double began = MPI_Wtime();
  if (strcmp(argv[1], "pipes") == 0) {
    by_pipes(keys);
  } else if (strcmp(argv[1], "windows") == 0) {
    by_windows(keys);
  } else {
    by_messages(keys);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  const double seconds = MPI_Wtime() - began;
  uint64_t own[2] = {inserted, 0}, all[2];
  for (uint64_t each = 0; each <= mask; ++each) {
    own[1] += slots[each];
  }
  MPI_Reduce(own, all, 2, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
  if (self == 0) {
    printf("%lu keys, sum %016lx\n", (unsigned long)all[0], (unsigned long)all[1]);
    fprintf(stderr, "%s: %.3f us an insertion of each rank\n", argv[1], seconds / (double)keys * 1e6);
  }
  MPI_Finalize();
  return 0;
}
