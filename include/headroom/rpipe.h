/* rpipe: memory on another rank, allocated, written and handed over without fences, epochs or locks.
 *
 * A pipe joins two ranks. The writer allocates a buffer, builds the message in it, and writes it: from then on it is the
 * reader's, which gives it back by freeing it. Messages of one direction arrive in the order of rpipe_write(). A buffer's
 * owners:
 *
 *             rpipe_alloc            rpipe_write            rpipe_read              rpipe_free        seen by the writer
 *     FREE ───────────────► WRITER'S ───────────► ON ITS WAY ──────────► READER'S ───────────► RETURNED ───────────► FREE
 *                               └──── rpipe_free: taken back, nobody hears of it ────────────────────────────────────┘
 *
 * Only the owner named may use the memory behind rpipe_at(); ON ITS WAY and RETURNED nobody may. All of a buffer's content,
 * written at WRITER'S, is there for the reader once rpipe_read() has returned it; the reader's use of the buffer happens before
 * the writer gets that memory again. The reader may write in it. Ownership never returns by itself: a reader that does not free
 * leaves the writer with a full heap.
 *
 * After Wickramasinghe and Lumsdaine, "rmalloc() and rpipe()"; rpipe_paper.h has the paper's names.
 *
 * All functions return 0 or a negative error number, unless something else is said, and never touch errno. Errors of any
 * function: -EINVAL argument; -EBADF the pipe is closed, or not of this process (in a forked child: every pipe); -EPERM wrong
 * direction; -EPIPE the peer has died or closed (messages that it had written can still be read; rpipe_reason() names the peer
 * and the reason). A call that waits is told within about a tenth of a second that the peer has died; one that does not wait,
 * after some hundred of them. On another node a dead peer's messages are there if the network had them; by RPIPE_OFI its death
 * is seen in half a second, that of its node in ten (over networks with addresses of the internet's), by RPIPE_MPI nobody is
 * told, and the launcher ends the job. Threads: of each direction of a pipe one thread may write and one may read at a time;
 * RPIPE_THREADS allows any number. A call on a pipe by RPIPE_MPI counts as one of MPI: with MPI_THREAD_FUNNELED messages and
 * frees of other threads go when the main thread is in such a call, with MPI_THREAD_SERIALIZED one thread at a time may be in
 * them. rpipe_read_state() counts as writing. rpipe_free(), rpipe_at() and rpipe_of() may be called by any thread; different
 * pipes may be used by different ones. No thread may be in a call on a pipe that another one closes. Nothing may be called in
 * signal handlers. After rpipe_close() a pipe and its buffers must not be used: -EBADF at first, and after a thousand others
 * were closed they may be another pipe's. */
#ifndef HEADROOM_RPIPE_H
#define HEADROOM_RPIPE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RPIPE_VERSION 1 /* symbols are versioned RPIPE_1 */

typedef struct rpipe* rpipe_t;
typedef uint64_t raddr_t; /* a buffer; says which pipe it is of. Good on both sides, may be sent to the peer. 0: none */

/* A time in nanoseconds that a call waits at most: then it returns -ETIMEDOUT, or -EAGAIN for RPIPE_NOWAIT. */
#define RPIPE_NOWAIT INT64_C(0)
#define RPIPE_FOREVER INT64_C(-1)
#define RPIPE_ALL ((size_t)-1) /* of a buffer: as much as was allocated */

enum rpipe_role {
  RPIPE_READER = 0,
  RPIPE_WRITER = 1,
  RPIPE_BOTH = 2 /* full duplex: each way heap, width and order of its own */
};

/* Where in the heap a buffer is placed. First fit is the default: it uses warm memory, where next fit walks through the whole
 * heap and finds every buffer cold (16 KiB: 3.8 times a bare copy in a heap of 4 MiB). */
enum rpipe_policy { RPIPE_FIRST_FIT = 0, RPIPE_NEXT_FIT, RPIPE_BEST_FIT, RPIPE_WORST_FIT };

/* When the writer looks for what was freed: before each allocation, or when there is no room (and from 8 KiB on, but for next
 * fit, at the oldest ones). By policy: first and next fit are deferred, best and worst fit immediate. */
enum rpipe_frees { RPIPE_FREES_BY_POLICY = 0, RPIPE_DEFERRED, RPIPE_IMMEDIATE };

enum rpipe_backend {
  RPIPE_ANY = 0, /* RPIPE_NODE on a node; to others RPIPE_MPI after rpipe_init(), RPIPE_OFI after rpipe_init_with() */
  RPIPE_NODE,    /* between processes of a node, through memory that both have */
  RPIPE_MPI,     /* by messages of the MPI library; to any rank but this one. Both ends must choose it */
  RPIPE_OFI /* the same by libfabric, which is looked for when pipes begin. RPIPE_BETWEEN=ofi in the environment of any rank
               takes it instead of RPIPE_MPI, for all pipes to other nodes */
};

enum rpipe_flags {
  RPIPE_THREADS = 1,
  /* Buffers lie with their writer until they are read (the paper's rread() of slides 29 to 33). On a node they always do, to
   * other nodes never. */
  RPIPE_PULL = 2
};

struct rpipe_options {
  uint32_t size; /* sizeof(struct rpipe_options): more may be added at the end. All else 0: defaults */
  uint32_t flags;
  uint32_t width; /* buffers of a direction not FREE at a time, up to 65535, which is what 0 means */
  /* Pairs the two ends: the n-th open of this channel with that peer meets the peer's n-th. Two one-way pipes between the same
   * ranks need different channels. To this rank itself the first meets the second, the third the fourth. */
  uint32_t channel;
  uint64_t heap_bytes; /* each direction's heap grows to; up to 64 GiB; 0: 64 MiB */
  uint32_t policy, frees, backend, padding;
};

/* rpipe_init(): by all ranks of MPI_COMM_WORLD, between MPI_Init() and MPI_Finalize(), whether they will use pipes or not.
 * rpipe_init_with(): by all ranks of the bootstrap; allgather is called once or twice, before it returns, and gives each rank's
 * bytes in the order of ranks; its error becomes -EPROTO. `rank`, `ranks`: may be NULL. -EALREADY: done before. -ENOTSUP,
 * with a line on stderr: no MPI library is loaded, or initialized; or the backend that RPIPE_BETWEEN asks for is not to be had.
 * Not thread-safe. */
int rpipe_init(int* rank, int* ranks);
struct rpipe_bootstrap { /* for programs whose ranks know each other by other means than MPI */
  uint32_t size;         /* sizeof(struct rpipe_bootstrap) */
  int rank, ranks;
  int (*allgather)(void* context, const void* mine, void* all, size_t bytes); /* 0 or an error */
  void* context;
};
int rpipe_init_with(const struct rpipe_bootstrap* bootstrap);
/* Closes all pipes, as rpipe_close() does and each for up to timeout_ns; 0 also where a peer died or closed before it had read
 * all. -EBUSY: buffers were still READER'S here; they are gone. -ETIMEDOUT: something that was written was not read in time.
 * Not thread-safe; before or after MPI_Finalize(). */
int rpipe_finalize(int64_t timeout_ns);

/* Local, returns at once: both ends must call it; the first other call meets the peer. -EPROTO (from there): the ends do not
 * fit: two writers, different duplex, RPIPE_PULL or backend. -ENOTSUP, with a line on stderr: the backend does not reach the
 * peer. `peer` may be this rank. */
int rpipe_open(rpipe_t* pipe, int peer, enum rpipe_role role, const struct rpipe_options* options);
/* Waits until the peer has read all that was written here. Messages that are not read here are dropped, and the writer gets
 * -EPIPE; so do two that close while each has something of the other's unread. -EPIPE, -ETIMEDOUT (of RPIPE_NOWAIT, too):
 * content may be lost. In any case the pipe is gone, and the memory of its buffers. */
int rpipe_close(rpipe_t pipe, int64_t timeout_ns);

/* ---- the writer ---- */
/* FREE -> WRITER'S. Aligned to 16 bytes, to 64 from 64 bytes on; content undefined. 0 bytes: a buffer without memory, only
 * notice. -EAGAIN, -ETIMEDOUT: no room (yet); -EMSGSIZE: more than the heap may ever hold; -ENOMEM: it could grow, and the
 * budget or the system refuses; -EDEADLK: waiting is for nothing, since the peer waits for this rank in the same way: each for
 * room towards the other, or the peer for a message, both for ever. (Not looked for where several threads of a process have
 * waited in pipes or freed, or with RPIPE_THREADS.) */
int rpipe_alloc(rpipe_t pipe, size_t bytes, raddr_t* buffer, int64_t timeout_ns);
/* WRITER'S -> ON ITS WAY, as many bytes of it as are said. Never waits on a node, and does not look whether the peer is there.
 * -EALREADY, -EFAULT: as rpipe_free(); -EPERM: it is READER'S; -EINVAL: more than was allocated; -ENOMEM: it stays WRITER'S. */
int rpipe_write(raddr_t buffer, size_t bytes, int64_t timeout_ns);
/* rpipe_alloc, a copy, rpipe_write. The content may be anywhere, and is the caller's again at once. */
int rpipe_send(rpipe_t pipe, const void* content, size_t bytes, int64_t timeout_ns);

/* ---- the reader ---- */
/* The next message: ON ITS WAY -> READER'S. `bytes` may be NULL. -ENOMEM: it cannot be mapped; from another node: there was no
 * memory for it, and it is lost. */
int rpipe_read(rpipe_t pipe, raddr_t* buffer, size_t* bytes, int64_t timeout_ns);
/* Waits until one of the pipes has a message, is broken, or (where `write` is given and write[i]) could take a message of up to
 * 48 bytes; for longer ones let rpipe_alloc() wait. Says which. Fair if one set of pipes is waited for: begins after the last
 * one that any call found. For both directions name a pipe twice. */
int rpipe_wait_any(const rpipe_t* pipes, const unsigned char* write, int count, int* which, int64_t timeout_ns);
/* For poll(), epoll and event loops: a descriptor, the process's until rpipe_finalize(). After rpipe_arm() has returned 0 it
 * becomes readable when one of the pipes may be ready in the sense of rpipe_wait_any(); then, or if rpipe_arm() returns 1, take
 * what there is with RPIPE_NOWAIT and arm it again. It may be readable for nothing: ten times a second, and with any pipe to
 * another node twice a millisecond, since nobody rings from there. Arm it by one thread; without RPIPE_THREADS that counts as
 * reading the pipes, or writing. -EMFILE: it cannot be made. */
int rpipe_descriptor(void);
int rpipe_arm(const rpipe_t* pipes, const unsigned char* write, int count);
/* READER'S -> RETURNED, or WRITER'S -> FREE. -EALREADY: freed or written before, or the peer's now; -EFAULT: never a buffer
 * here. Never waits. */
int rpipe_free(raddr_t buffer);
/* rpipe_read, a copy, rpipe_free. -EMSGSIZE: it is longer (`bytes` says how long) and stays the next message. */
int rpipe_receive(rpipe_t pipe, void* into, size_t room, size_t* bytes, int64_t timeout_ns);

/* ---- either ---- */
/* Where the owner finds the buffer; NULL if it is not this rank's now. Resident until given back, whatever is on storage. Of 0
 * bytes: an address that must not be used. */
void* rpipe_at(raddr_t buffer);
/* The pipe of a buffer that is this rank's now; else NULL. */
rpipe_t rpipe_of(raddr_t buffer);

struct rpipe_state {
  uint32_t size;    /* sizeof(struct rpipe_state), set by the caller */
  uint32_t backend; /* RPIPE_NODE, RPIPE_MPI or RPIPE_OFI; RPIPE_ANY: the peer was not met yet */
  uint32_t peer, padding;
  uint64_t written, read, freed, bytes_written, bytes_read; /* messages, and their content */
  uint64_t waits_for_room, sleeps;                          /* of calls on this pipe, here */
  uint64_t heap_bytes, heap_used, largest_free;             /* of the direction that is written here */
};
int rpipe_read_state(rpipe_t pipe, struct rpipe_state* state);
/* A sentence on why it is broken, once a call has said so; good until rpipe_close(). NULL: no call has. */
const char* rpipe_reason(rpipe_t pipe);
const char* rpipe_error(int error); /* of a negative number; never NULL, thread-safe */

#ifdef __cplusplus
}
#endif
#endif
