/* How content gets to a rank on another node: by MPI's messages (mpi_world.c), by libfabric's (ofi.h), or by a test's own
 * means. C, since mpi_world.c is compiled for each MPI library's binary interface.
 *
 * Messages of one tag from one rank to another arrive in the order of send(). No two threads are in it at a time. */
#ifndef HEADROOM_RPIPE_TRANSPORT_H
#define HEADROOM_RPIPE_TRANSPORT_H

#include <stddef.h>
#include <stdint.h>

enum {
  RPIPE_MOST_BYTES_OF_MESSAGE = 16 << 20, /* MPI counts with an int */
  RPIPE_TAG_OF_FRAMES = 1                 /* other tags are of content that frames have announced; never 3 */
};

/* The calls that a transport makes when it is about to end. MPI's ends in MPI_Finalize(), in all ranks: messages that were sent
 * are received by then, by ranks that have no pipes any more, too. */
struct rpipe_at_end {
  /* Goes on with what is on its way; `sends`: with what waits to be sent, too. 1: all was sent. */
  int (*move)(int sends);
  /* How many frames were sent to the rank. */
  uint64_t (*sent_to)(int rank);
  /* Whether all came, of as many frames as each rank has sent here. */
  int (*look_for_received)(const uint64_t* frames);
  void (*stop)(void); /* NOLINT(modernize-redundant-void-arg): C */
};

struct rpipe_transport {
  uint32_t backend;    /* RPIPE_MPI or RPIPE_OFI */
  const char* name;    /* whose messages they are */
  const char* failure; /* of a rank from which nothing comes any more: what it has done */
  /* NULL, or whether a thread of the transport makes the calls given to at_end() now and then, so that frames that can wait may
   * be sent later. */
  int (*moves_by_itself)(void); /* NOLINT(modernize-redundant-void-arg): C */
  /* NULL, or: goes on with what is on its way, before some of it is asked for by test(). */
  void (*move)(void); /* NOLINT(modernize-redundant-void-arg): C */
  /* Whether this thread may call the others now: MPI may want its main thread, and ends. `expects_it`: the program has called a
   * function on a pipe that goes this way; else it may be in MPI with another thread meanwhile. */
  int (*may_call)(int expects_it);
  /* Begin to send and to receive: up to RPIPE_MOST_BYTES_OF_MESSAGE, of exactly that length, or up to it for what is received.
   * The memory is the transport's until test() says that it is over. 0 or -EIO. */
  int (*send)(int rank, int tag, const void* from, size_t bytes, uint64_t* request);
  int (*receive)(int rank, int tag, void* into, size_t bytes, uint64_t* request);
  /* 1: it is over, or was before; 0: not yet; -EIO: nothing more comes from there, but the memory may be touched once more. */
  int (*test)(uint64_t* request);
  /* Ends a receive that nothing came for. */
  void (*cancel)(uint64_t* request);
  void (*at_end)(const struct rpipe_at_end* calls);
  /* NULL, or: the transport ends with the pipes, in rpipe_finalize(). Waits for what is on its way, but not for long. */
  void (*end)(int64_t timeout_ns);
  /* NULL, or: this process is a forked child, which has none. */
  void (*leave_to_parent)(void); /* NOLINT(modernize-redundant-void-arg): C */
};

#endif
