/* The paper's names (Wickramasinghe and Lumsdaine) for rpipe.h. Macros and inline functions, so that the library has no symbols
 * of these names: rread, rwrite and rpoll are librdmacm's. Not together with <rdma/rsocket.h>. A pipe is named, not pointed
 * to, as in the paper's program: rpipe(pipe, peer, is_writer, width, kind), where is_writer counts for HD_PIPE alone. All pipes
 * are of channel 0, so both ranks open them in the same order. rread's bytes are not looked at; rmalloc is 0 on any error. */
#ifndef HEADROOM_RPIPE_PAPER_H
#define HEADROOM_RPIPE_PAPER_H

#include <string.h>

#include "rpipe.h"

#define HD_PIPE 0
#define FD_PIPE 1

static inline int rpipe_paper_open(rpipe_t* pipe, int peer, int is_writer, int width, int kind) {
  struct rpipe_options options;
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.width = (uint32_t)width;
  return rpipe_open(pipe, peer, kind == FD_PIPE ? RPIPE_BOTH : is_writer ? RPIPE_WRITER : RPIPE_READER, &options);
}
static inline raddr_t rpipe_paper_alloc(rpipe_t pipe, size_t bytes) {
  raddr_t buffer = 0;
  return rpipe_alloc(pipe, bytes, &buffer, RPIPE_FOREVER) == 0 ? buffer : 0;
}

#define rinit(rank, ranks) rpipe_init(rank, ranks)
#define rfinalize() rpipe_finalize(RPIPE_FOREVER)
#define rpipe(pipe, peer, is_writer, width, kind) rpipe_paper_open(&(pipe), peer, is_writer, width, kind)
#define rmalloc(pipe, bytes) rpipe_paper_alloc(pipe, bytes)
#define rmem(pipe, buffer) ((void)(pipe), rpipe_at(buffer))
#define rwrite(pipe, buffer) ((void)(pipe), rpipe_write(buffer, RPIPE_ALL, RPIPE_FOREVER))
#define rread(pipe, buffer, bytes) ((void)(bytes), rpipe_read(pipe, &(buffer), NULL, RPIPE_FOREVER))
#define rfree(buffer) rpipe_free(buffer)

#endif
