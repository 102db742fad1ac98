/* What handing a message over costs, by pipes and by the ways of MPI, between two ranks of a node. For `headroom bench rpipe`.
 *
 * One line a figure: what, way, bytes, microseconds one way (tab-separated). Each figure is the median of batches in which the
 * ways take turns, so what disturbs the machine disturbs all of them.
 *
 *   copied in     the content is elsewhere and is copied; over when the reader knows that it is there
 *   handed over   the content was built in place before; rpipe and bare only
 *   filled, read  the content is built, handed over, and every word of it is read
 *
 * bare: the same content at one fixed place that both have, and a flag; up to 48 bytes in the flag's own cache line. No
 * allocation, no order, nothing that keeps the content until it was read: the least that the machine takes. */
#define _GNU_SOURCE
#include <stdint.h>
#include <string.h>

#include "rpipe_ranks.h"

enum { kMostBytes = 64 << 20, kMostBatches = 400, kWays = 7 };
enum what { kCopied, kHandedOver, kFilled, kWhats };
static const char* const what_names[] = {"copied in", "handed over", "filled, read"};
static const size_t sizes[] = {1, 8, 48, 64, 256, 1024, 4096, 16384, 65536, 262144, 1 << 20, 4 << 20, 16 << 20, 64 << 20};

static int peer;
static char *content, *arrived;
static uint64_t sink;

static void fill(char* at, size_t bytes, uint64_t value) {
  uint64_t* words = (uint64_t*)at;
  for (size_t each = 0; each < bytes / 8; ++each) {
    words[each] = value;
  }
  memset(at + bytes / 8 * 8, (int)value, bytes % 8);
}
static void add_up(const char* at, size_t bytes) {
  const uint64_t* words = (const uint64_t*)at;
  for (size_t each = 0; each < bytes / 8; ++each) {
    sink += words[each];
  }
  for (size_t each = bytes / 8 * 8; each < bytes; ++each) {
    sink += (unsigned char)at[each];
  }
}
/* ---- the ways: one message from rank `from` to the other ---- */

static rpipe_t both;
static void by_rpipe(enum what what, int from, size_t bytes) {
  raddr_t buffer;
  if (self == from) {
    check(rpipe_alloc(both, bytes, &buffer, RPIPE_FOREVER), "rpipe_alloc");
    if (what == kCopied) {
      memcpy(rpipe_at(buffer), content, bytes);
    } else if (what == kFilled) {
      fill(rpipe_at(buffer), bytes, bytes);
    }
    check(rpipe_write(buffer, RPIPE_ALL, RPIPE_FOREVER), "rpipe_write");
  } else {
    check(rpipe_read(both, &buffer, NULL, RPIPE_FOREVER), "rpipe_read");
    if (what == kFilled) {
      add_up(rpipe_at(buffer), bytes);
    }
    check(rpipe_free(buffer), "rpipe_free");
  }
}

struct bare {
  volatile uint64_t flag __attribute__((aligned(64)));
  char in_line[56];
  char content[kMostBytes] __attribute__((aligned(4096)));
};
static struct bare* bares; /* one for each direction */
static uint64_t bare_count[2];
static void by_bare(enum what what, int from, size_t bytes) {
  struct bare* const here = &bares[from];
  char* const at = bytes <= 48 ? here->in_line : here->content;
  const uint64_t number = ++bare_count[from];
  if (self == from) {
    if (what == kCopied) {
      memcpy(at, content, bytes);
    } else if (what == kFilled) {
      fill(at, bytes, bytes);
    }
    __atomic_store_n(&here->flag, number, __ATOMIC_RELEASE);
  } else {
    while (__atomic_load_n(&here->flag, __ATOMIC_ACQUIRE) != number) {
    }
    if (what == kFilled) {
      add_up(at, bytes);
    }
  }
}

static void by_messages(enum what what, int from, size_t bytes) {
  if (self == from) {
    if (what == kFilled) {
      fill(content, bytes, bytes);
    }
    MPI_Send(content, (int)bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD);
  } else {
    MPI_Recv(arrived, (int)bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (what == kFilled) {
      add_up(arrived, bytes);
    }
  }
}

static MPI_Win fenced, posted, locked, flushed;
static MPI_Group other;
static char *windows, *flags; /* windows: the part that is written here; flags: behind it in those that have none of MPI's */
static uint64_t flag_count[2][2];

static void before_put(enum what what, size_t bytes) {
  if (what == kFilled) {
    fill(content, bytes, bytes);
  }
}
static void after_put(enum what what, size_t bytes) {
  if (what == kFilled) {
    add_up(windows, bytes);
  }
}
static void by_fence(enum what what, int from, size_t bytes) {
  if (self == from) {
    before_put(what, bytes);
    MPI_Put(content, (int)bytes, MPI_BYTE, peer, 0, (int)bytes, MPI_BYTE, fenced);
  }
  MPI_Win_fence(0, fenced);
  if (self != from) {
    after_put(what, bytes);
  }
}
static void by_post(enum what what, int from, size_t bytes) {
  if (self == from) {
    before_put(what, bytes);
    MPI_Win_start(other, 0, posted);
    MPI_Put(content, (int)bytes, MPI_BYTE, peer, 0, (int)bytes, MPI_BYTE, posted);
    MPI_Win_complete(posted);
  } else {
    MPI_Win_post(other, 0, posted);
    MPI_Win_wait(posted);
    after_put(what, bytes);
  }
}
/* Passive target: the content, and then a number beside it that the target looks at. It gives the library progress now and
 * then, without which the number may never show. */
static void await_flag(int kind, uint64_t number) {
  volatile uint64_t* const flag = (volatile uint64_t*)(flags + 64 * kind);
  for (int look = 1; *flag != number; ++look) {
    if (kind == 0) {
      MPI_Win_sync(flushed); /* the other one is in no epoch here */
    }
    if (look % 64 == 0) {
      int there;
      MPI_Iprobe(MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
    }
  }
}
static void by_flush(enum what what, int from, size_t bytes) {
  const uint64_t number = ++flag_count[0][from];
  if (self == from) {
    before_put(what, bytes);
    MPI_Put(content, (int)bytes, MPI_BYTE, peer, 0, (int)bytes, MPI_BYTE, flushed);
    MPI_Win_flush(peer, flushed);
    MPI_Put(&number, 8, MPI_BYTE, peer, kMostBytes, 8, MPI_BYTE, flushed);
    MPI_Win_flush(peer, flushed);
  } else {
    await_flag(0, number);
    after_put(what, bytes);
  }
}
static void by_lock(enum what what, int from, size_t bytes) {
  const uint64_t number = ++flag_count[1][from];
  if (self == from) {
    before_put(what, bytes);
    MPI_Win_lock(MPI_LOCK_SHARED, peer, 0, locked);
    MPI_Put(content, (int)bytes, MPI_BYTE, peer, 0, (int)bytes, MPI_BYTE, locked);
    MPI_Win_unlock(peer, locked);
    MPI_Win_lock(MPI_LOCK_SHARED, peer, 0, locked);
    MPI_Put(&number, 8, MPI_BYTE, peer, kMostBytes + 64, 8, MPI_BYTE, locked);
    MPI_Win_unlock(peer, locked);
  } else {
    await_flag(1, number);
    after_put(what, bytes);
  }
}

struct way {
  const char* name;
  void (*one)(enum what, int, size_t);
};
static const struct way ways[kWays] = {{"rpipe", by_rpipe}, {"bare", by_bare}, {"send/recv", by_messages}, {"fence", by_fence},
                                       {"pscw", by_post},   {"lock", by_lock}, {"flush", by_flush}};

static int compare(const void* left, const void* right) {
  const double a = *(const double*)left, b = *(const double*)right;
  return a < b ? -1 : a > b;
}

static int repetitions(size_t bytes) { return bytes <= 4096 ? 40 : bytes <= 65536 ? 8 : bytes <= 1 << 20 ? 2 : 1; }

static void measure(enum what what, size_t bytes, double seconds) {
  static double times[kWays][kMostBatches];
  const int count = what == kHandedOver ? 2 : kWays;
  const int turns = repetitions(bytes);
  int batches = 0;
  const double began = MPI_Wtime();
  for (int go_on = 1; go_on;) {
    for (int way = 0; way < count; ++way) {
      ways[way].one(what, 0, bytes); /* meet, and let the library do what it has put off */
      ways[way].one(what, 1, bytes);
      const double start = MPI_Wtime();
      for (int turn = 0; turn < turns; ++turn) {
        ways[way].one(what, 0, bytes);
        ways[way].one(what, 1, bytes);
      }
      times[way][batches] = (MPI_Wtime() - start) / turns / 2 * 1e6;
      MPI_Barrier(MPI_COMM_WORLD); /* a window's last access may need its target in MPI */
    }
    ++batches;
    go_on = batches < kMostBatches && (batches < 5 || MPI_Wtime() - began < seconds);
    MPI_Bcast(&go_on, 1, MPI_INT, 0, MPI_COMM_WORLD);
  }
  for (int way = 0; way < count && self == 0; ++way) {
    qsort(times[way], (size_t)batches, sizeof(double), compare);
    printf("%s\t%s\t%zu\t%.4f\n", what_names[what], ways[way].name, bytes, times[way][batches / 2]);
  }
  fflush(stdout);
}

static MPI_Win make_window(void) {
  MPI_Win window;
  MPI_Win_create(windows, kMostBytes + 4096, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
  return window;
}

/* usage: rpipe LARGEST_BYTES SECONDS_A_FIGURE BACKEND */
int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int ranks = 0;
  check(rpipe_init(&self, &ranks), "rpipe_init");
  if (argc != 4 || ranks != 2) {
    fprintf(stderr, "usage: mpiexec -n 2 rpipe LARGEST_BYTES SECONDS_A_FIGURE BACKEND\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  peer = 1 - self;
  const size_t largest = (size_t)atoll(argv[1]);
  content = malloc(kMostBytes);
  arrived = malloc(kMostBytes);
  windows = malloc(kMostBytes + 4096);
  memset(content, 1, kMostBytes);
  memset(arrived, 1, kMostBytes);
  memset(windows, 0, kMostBytes + 4096);
  flags = windows + kMostBytes;
  bares = shared_memory(2 * sizeof(struct bare));
  struct rpipe_options options = {.size = sizeof options, .heap_bytes = 2 * (uint64_t)kMostBytes};
  options.backend = (uint32_t)atoi(argv[3]);
  check(rpipe_open(&both, peer, RPIPE_BOTH, &options), "rpipe_open");
  MPI_Group world;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_incl(world, 1, &peer, &other);
  fenced = make_window();
  posted = make_window();
  locked = make_window();
  flushed = make_window();
  MPI_Win_fence(0, fenced);
  MPI_Win_lock_all(0, flushed);
  for (int what = 0; what < kWhats; ++what) {
    for (size_t each = 0; each < sizeof sizes / sizeof *sizes && sizes[each] <= largest; ++each) {
      measure((enum what)what, sizes[each], atof(argv[2]));
    }
  }
  MPI_Win_unlock_all(flushed);
  MPI_Win_fence(MPI_MODE_NOSUCCEED, fenced);
  MPI_Win_free(&fenced);
  MPI_Win_free(&posted);
  MPI_Win_free(&locked);
  MPI_Win_free(&flushed);
  check(rpipe_close(both, RPIPE_FOREVER), "rpipe_close");
  check(rpipe_finalize(RPIPE_FOREVER), "rpipe_finalize");
  if (sink == 1) {
    printf("\n"); /* the sums are used */
  }
  MPI_Finalize();
  return 0;
}
