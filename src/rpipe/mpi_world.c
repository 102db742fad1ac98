/* MPI's world as the ranks that share pipes, and its messages as the way to those on other nodes; compiled once for each binary
 * interface, and opened by find_mpi.cc.
 *
 * All goes on a communicator of its own: the program's calls on the world may be on their way in another order, and its
 * receives may take from any tag. It lives until MPI_Finalize(): so may messages. */
#include <errno.h>
#include <mpi.h>
#include <stdlib.h>

#include "headroom/rpipe.h"
#include "rpipe/transport.h"

static MPI_Comm ours;
static int has_ours;
static int has_ended;
static int thread_level;
static const struct rpipe_at_end* calls_at_end;

/* A request is a number with one library, a pointer with another. */
union word {
  MPI_Request request;
  uint64_t bits;
};

static MPI_Request request_of(uint64_t bits) {
  const union word word = {.bits = bits};
  return word.request;
}

static uint64_t bits_of(MPI_Request request) {
  union word word = {.bits = 0};
  word.request = request;
  return word.bits;
}

static int may_call(int expects_it) {
  int may = 1;
  if (has_ended) {
    return 0;
  }
  if (thread_level < MPI_THREAD_SERIALIZED) {
    MPI_Is_thread_main(&may);
  } else if (thread_level < MPI_THREAD_MULTIPLE) {
    may = expects_it;
  }
  return may;
}

static int start_send(int rank, int tag, const void* from, size_t bytes, uint64_t* request) {
  MPI_Request made;
  const int result = MPI_Isend(from, (int)bytes, MPI_BYTE, rank, tag, ours, &made);
  *request = bits_of(made);
  return result == MPI_SUCCESS ? 0 : -EIO;
}

static int start_receive(int rank, int tag, void* into, size_t bytes, uint64_t* request) {
  MPI_Request made;
  const int result = MPI_Irecv(into, (int)bytes, MPI_BYTE, rank, tag, ours, &made);
  *request = bits_of(made);
  return result == MPI_SUCCESS ? 0 : -EIO;
}

static int test(uint64_t* request) {
  MPI_Request tested = request_of(*request);
  int is_over = 0;
  const int result = MPI_Test(&tested, &is_over, MPI_STATUS_IGNORE);
  *request = bits_of(tested);
  return result != MPI_SUCCESS ? -EIO : is_over;
}

static void cancel(uint64_t* request) {
  MPI_Request cancelled = request_of(*request);
  if (MPI_Cancel(&cancelled) == MPI_SUCCESS) {
    MPI_Wait(&cancelled, MPI_STATUS_IGNORE);
  }
  *request = bits_of(cancelled);
}

static void at_end(const struct rpipe_at_end* calls) { calls_at_end = calls; }

static void receive_all(void) {
  int ranks;
  MPI_Comm_size(ours, &ranks);
  uint64_t* const sent = calloc(2 * (size_t)ranks, sizeof *sent);
  if (sent == NULL) {
    MPI_Abort(ours, 1); /* a rank that does not take part leaves the others waiting */
    return;
  }
  uint64_t* const expected = sent + ranks;
  MPI_Request told;
  int is_told = 0;
  while (!calls_at_end->move(1)) {
  }
  for (int rank = 0; rank < ranks; ++rank) {
    sent[rank] = calls_at_end->sent_to(rank);
  }
  if (MPI_Ialltoall(sent, sizeof *sent, MPI_BYTE, expected, sizeof *sent, MPI_BYTE, ours, &told) == MPI_SUCCESS) {
    while (!is_told && MPI_Test(&told, &is_told, MPI_STATUS_IGNORE) == MPI_SUCCESS) {
      (void)calls_at_end->move(0); /* another rank may wait until what it has sent is received */
    }
    while (is_told && !calls_at_end->look_for_received(expected)) {
      (void)calls_at_end->move(0);
    }
  }
  calls_at_end->stop();
  free(sent);
}

/* MPI_Finalize() begins by this, in all ranks. */
static int finalize(MPI_Comm comm, int key, void* value, void* state) {
  (void)comm, (void)key, (void)value, (void)state;
  if (calls_at_end != NULL) {
    receive_all();
  }
  has_ended = 1;
  MPI_Comm_free(&ours);
  return MPI_SUCCESS;
}

static int copy_nothing(MPI_Comm comm, int key, void* state, void* value, void* copy, int* is_copied) {
  (void)comm, (void)key, (void)state, (void)value, (void)copy;
  *is_copied = 0;
  return MPI_SUCCESS;
}

static int make_ours(void) {
  int key;
  if (has_ours) {
    return MPI_SUCCESS;
  }
  if (MPI_Comm_dup(MPI_COMM_WORLD, &ours) != MPI_SUCCESS || MPI_Comm_set_errhandler(ours, MPI_ERRORS_RETURN) != MPI_SUCCESS ||
      MPI_Query_thread(&thread_level) != MPI_SUCCESS ||
      MPI_Comm_create_keyval(copy_nothing, finalize, &key, NULL) != MPI_SUCCESS ||
      MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL) != MPI_SUCCESS) {
    return MPI_ERR_OTHER;
  }
  has_ours = 1;
  return MPI_SUCCESS;
}

static int allgather(void* context, const void* mine, void* all, size_t bytes) {
  (void)context;
  const int result =
      make_ours() != MPI_SUCCESS ? MPI_ERR_OTHER : MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, ours);
  return result == MPI_SUCCESS ? 0 : -EPROTO;
}

static const struct rpipe_transport transport = {.backend = RPIPE_MPI,
                                                 .name = "MPI",
                                                 .failure = "cannot be reached any more: MPI has ended, or failed",
                                                 .may_call = may_call,
                                                 .send = start_send,
                                                 .receive = start_receive,
                                                 .test = test,
                                                 .cancel = cancel,
                                                 .at_end = at_end};

__attribute__((visibility("default"))) int rpipe_join_mpi_world(struct rpipe_bootstrap* bootstrap,
                                                                const struct rpipe_transport** messages) {
  int begun = 0;
  int ended = 0;
  MPI_Initialized(&begun);
  MPI_Finalized(&ended);
  if (!begun || ended) {
    return -ENOTSUP;
  }
  bootstrap->size = sizeof *bootstrap;
  MPI_Comm_rank(MPI_COMM_WORLD, &bootstrap->rank);
  MPI_Comm_size(MPI_COMM_WORLD, &bootstrap->ranks);
  bootstrap->allgather = allgather;
  *messages = &transport;
  return 0;
}
