/* How content gets to a rank on another node: by MPI's messages (mpi_world.c), or what a test has instead. C, since mpi_world.c
 * is compiled for each MPI library's binary interface.
 *
 * Messages of one tag from one rank to another arrive in the order of send(). No two threads are in it at a time. */
#ifndef HEADROOM_RPIPE_TRANSPORT_H
#define HEADROOM_RPIPE_TRANSPORT_H

#include <stddef.h>
#include <stdint.h>

struct rpipe_transport {
  /* Whether this thread may call the others now: MPI may want its main thread, and ends. */
  int (*may_call)(void); /* NOLINT(modernize-redundant-void-arg): C */
  /* Begin to send and to receive: `bytes` up to 1 GiB, of exactly that length, or up to it for what is received. The memory is
   * the transport's until test() says that it is over. 0 or -EIO. */
  int (*send)(int rank, int tag, const void* from, size_t bytes, uint64_t* request);
  int (*receive)(int rank, int tag, void* into, size_t bytes, uint64_t* request);
  /* 1: it is over, or was before; 0: not yet; -EIO. */
  int (*test)(uint64_t* request);
  /* Ends a receive that nothing came for. */
  void (*cancel)(uint64_t* request);
  /* Has these called when the transport is about to end: move() until it says that all was sent, and on until all ranks have
   * come so far; then stop(). */
  void (*at_end)(int (*move)(void), void (*stop)(void)); /* NOLINT(modernize-redundant-void-arg): C */
};

#endif
