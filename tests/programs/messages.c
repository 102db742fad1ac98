/* Point-to-point messages of every kind, checked by content and status. Every rank sends to the next one, or one further on.
   Prints "ok" and how many messages it received. usage: messages calls|types|order|errors|communicators PRESSURE_MIB [SEED
   COUNT [DISTANCE]] (calls: only each COUNTth combination; DISTANCE: to the rank that is sent to) */
#include <mpi.h>
#include <stdint.h>

#include "pressure.h"

static int rank, ranks, to, from;
static long received;

static void check_status(const MPI_Status* status, int source, int tag, int count) {
  int got = -1;
  MPI_Get_count(status, MPI_BYTE, &got);
  CHECK(status->MPI_SOURCE == source);
  CHECK(status->MPI_TAG == tag);
  CHECK(got == count);
  int cancelled = 1;
  MPI_Test_cancelled(status, &cancelled);
  CHECK(!cancelled);
}

enum { SEND, SSEND, RSEND, BSEND, ISEND, ISSEND, IRSEND, IBSEND, SEND_INIT, SSEND_INIT, SENDS };
enum { RECV, RECV_ANY, IRECV, IRECV_TEST, PROBE, MPROBE, IMPROBE, RECV_INIT, RECEIVES };

static MPI_Request begin_send(int kind, void* out, int count, int tag) {
  MPI_Request request = MPI_REQUEST_NULL;
  switch (kind) {
    case SEND:
      MPI_Send(out, count, MPI_BYTE, to, tag, MPI_COMM_WORLD);
      break;
    case SSEND:
      MPI_Ssend(out, count, MPI_BYTE, to, tag, MPI_COMM_WORLD);
      break;
    case RSEND:
      MPI_Rsend(out, count, MPI_BYTE, to, tag, MPI_COMM_WORLD);
      break;
    case BSEND:
      MPI_Bsend(out, count, MPI_BYTE, to, tag, MPI_COMM_WORLD);
      break;
    case ISEND:
      MPI_Isend(out, count, MPI_BYTE, to, tag, MPI_COMM_WORLD, &request);
      break;
    case ISSEND:
      MPI_Issend(out, count, MPI_BYTE, to, tag, MPI_COMM_WORLD, &request);
      break;
    case IRSEND:
      MPI_Irsend(out, count, MPI_BYTE, to, tag, MPI_COMM_WORLD, &request);
      break;
    case IBSEND:
      MPI_Ibsend(out, count, MPI_BYTE, to, tag, MPI_COMM_WORLD, &request);
      break;
    case SEND_INIT:
      MPI_Send_init(out, count, MPI_BYTE, to, tag, MPI_COMM_WORLD, &request);
      MPI_Start(&request);
      break;
    case SSEND_INIT:
      MPI_Ssend_init(out, count, MPI_BYTE, to, tag, MPI_COMM_WORLD, &request);
      MPI_Startall(1, &request);
      break;
  }
  return request;
}

static void end_send(int kind, MPI_Request* request) {
  MPI_Wait(request, MPI_STATUS_IGNORE);
  if (kind == SEND_INIT || kind == SSEND_INIT) {
    CHECK(*request != MPI_REQUEST_NULL);
    MPI_Request_free(request);
  }
  CHECK(*request == MPI_REQUEST_NULL);
}

static void receive(int kind, void* in, int count, int room, int tag) {
  MPI_Status status;
  MPI_Message message;
  MPI_Request request;
  int flag = 0;
  switch (kind) {
    case RECV:
      MPI_Recv(in, room, MPI_BYTE, from, tag, MPI_COMM_WORLD, &status);
      break;
    case RECV_ANY:
      MPI_Recv(in, room, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
      break;
    case IRECV:
      MPI_Irecv(in, room, MPI_BYTE, from, tag, MPI_COMM_WORLD, &request);
      MPI_Wait(&request, &status);
      break;
    case IRECV_TEST:
      MPI_Irecv(in, room, MPI_BYTE, from, MPI_ANY_TAG, MPI_COMM_WORLD, &request);
      while (!flag) {
        MPI_Test(&request, &flag, &status);
      }
      break;
    case PROBE:
      MPI_Probe(from, tag, MPI_COMM_WORLD, &status);
      check_status(&status, from, tag, count);
      MPI_Recv(in, room, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD, &status);
      break;
    case MPROBE:
      MPI_Mprobe(MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &message, &status);
      check_status(&status, from, tag, count);
      MPI_Mrecv(in, room, MPI_BYTE, &message, &status);
      CHECK(message == MPI_MESSAGE_NULL);
      break;
    case IMPROBE:
      while (!flag) {
        MPI_Improbe(from, tag, MPI_COMM_WORLD, &flag, &message, &status);
      }
      MPI_Imrecv(in, room, MPI_BYTE, &message, &request);
      MPI_Waitall(1, &request, &status);
      break;
    case RECV_INIT:
      MPI_Recv_init(in, room, MPI_BYTE, from, tag, MPI_COMM_WORLD, &request);
      MPI_Start(&request);
      MPI_Wait(&request, &status);
      MPI_Request_free(&request);
      break;
  }
  check_status(&status, from, tag, count);
  ++received;
}

static void calls(unsigned stride) {
  const int sizes[] = {0,    1,    8,    39,   40,    41,     127,    128,     129,
                       4096, 8167, 8168, 8169, 65536, 262143, 262145, 1 << 20, (3 << 20) + 17};
  const int most = 4 << 20;
  unsigned char *large_out = malloc(most), *large_in = malloc(most), *small_out = malloc(512 << 10),
                *small_in = malloc(512 << 10);
  unsigned char* attached = malloc(16 << 20);
  MPI_Buffer_attach(attached, 16 << 20);
  unsigned seed = 0;
  for (unsigned s = 0; s < sizeof sizes / sizeof *sizes; ++s) {
    for (int sends = 0; sends < SENDS; ++sends) {
      for (int receives = 0; receives < RECEIVES; ++receives) {
        if (++seed % stride != 0) {
          continue;
        }
        const int count = sizes[s], tag = (int)(seed % 30000), ready = sends == RSEND || sends == IRSEND;
        const int small = count < (512 << 10) && seed % 3 == 0;
        unsigned char *out = small ? small_out : large_out, *in = small ? small_in : large_in;
        const int room = count + (seed % 2 == 0 ? 0 : 1000);
        fill(out, (size_t)count, seed + (unsigned)rank);
        memset(in, 0x5a, (size_t)room);
        if (received % 16 == 0) {
          press();
        }
        MPI_Request request = MPI_REQUEST_NULL;
        if (ready) {
          MPI_Request posted;
          MPI_Status status;
          MPI_Irecv(in, room, MPI_BYTE, from, tag, MPI_COMM_WORLD, &posted);
          MPI_Barrier(MPI_COMM_WORLD);
          request = begin_send(sends, out, count, tag);
          end_send(sends, &request);
          MPI_Wait(&posted, &status);
          check_status(&status, from, tag, count);
          ++received;
        } else if (rank % 2 == 0) {
          request = begin_send(sends, out, count, tag);
          receive(receives, in, count, room, tag);
          end_send(sends, &request);
        } else {
          receive(receives, in, count, room, tag);
          request = begin_send(sends, out, count, tag);
          end_send(sends, &request);
        }
        CHECK(same(in, (size_t)count, seed + (unsigned)from));
        CHECK(room == count || in[count] == 0x5a);
        CHECK(same(out, (size_t)count, seed + (unsigned)rank));
      }
    }
    MPI_Status status;
    const int count = sizes[s];
    fill(large_out, (size_t)count, 7 + (unsigned)rank);
    MPI_Sendrecv(large_out, count, MPI_BYTE, to, 1, large_in, most, MPI_BYTE, from, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
    check_status(&status, from, 1, count);
    CHECK(same(large_in, (size_t)count, 7 + (unsigned)from));
    MPI_Sendrecv_replace(large_in, count, MPI_BYTE, to, 2, from, 2, MPI_COMM_WORLD, &status);
    check_status(&status, from, 2, count);
    CHECK(same(large_in, (size_t)count, 7 + (unsigned)((from + ranks - 1) % ranks)));
    received += 2;
  }
  int size;
  void* detached;
  MPI_Buffer_detach(&detached, &size);
}

/* Random datatypes. Both sides of a message are made of as many atoms of one signature, each side of its own layout. */
static uint64_t state;
static unsigned pick(unsigned below) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (unsigned)(state >> 33) % below;
}

enum { ATOMS = 9 };
/* Plain Open MPI 5.0.11 packs overlapping parts and complex numbers of 16 bytes differently from how it sends them, in 1 of 300
   such datatypes; MPICH does not, and agrees with Headroom about the same ones. */
#ifdef OPEN_MPI
#define ANOTHER_BASIC MPI_LONG_LONG
enum { kPacksOverlaps = 0 };
#else
#define ANOTHER_BASIC MPI_C_DOUBLE_COMPLEX
enum { kPacksOverlaps = 1 };
#endif

/* A basic datatype, or several: the same ones for the same `kind`, with gaps as it happens. */
static MPI_Datatype atom_of(unsigned kind) {
  const MPI_Datatype basic[] = {MPI_INT, MPI_CHAR, MPI_DOUBLE, MPI_SHORT, ANOTHER_BASIC, MPI_2INT, MPI_DOUBLE_INT};
  MPI_Datatype made;
  if (kind == 6 && pick(2) == 0) { /* what MPI_DOUBLE_INT consists of */
    int lengths[2] = {1, 1};
    MPI_Aint places[2] = {8 * (MPI_Aint)pick(2), 16 + 4 * (MPI_Aint)pick(3)};
    MPI_Datatype types[2] = {MPI_DOUBLE, MPI_INT};
    MPI_Type_create_struct(2, lengths, places, types, &made);
  } else if (kind < 7) {
    MPI_Type_dup(basic[kind], &made);
  } else if (kind == 7) {
    int lengths[4] = {1, 3, 1, 2};
    const MPI_Aint gap = pick(3), first = 24 * (MPI_Aint)pick(2);
    MPI_Aint places[4] = {first, first + 4 + gap, first + 8 + 8 * gap, gap == 0 ? first + 17 : first + 40};
    MPI_Datatype types[4] = {MPI_INT, MPI_CHAR, MPI_DOUBLE, MPI_SHORT};
    MPI_Type_create_struct(4, lengths, places, types, &made);
  } else {
    MPI_Datatype precise;
    MPI_Type_create_f90_real(12, 100, &precise);
    MPI_Type_dup(precise, &made);
  }
  return made;
}

/* `overlaps`: parts may lie over each other, and runs may repeat; only what is sent may be so. */
static MPI_Datatype random_type(int depth, unsigned kind, int overlaps) {
  MPI_Datatype old, made;
  if (depth == 0) {
    return atom_of(kind);
  }
  const int count = 1 + (int)pick(4);
  old = random_type(depth - 1, kind, overlaps);
  MPI_Aint lower, extent, true_lower, true_extent;
  MPI_Type_get_extent(old, &lower, &extent);
  MPI_Type_get_true_extent(old, &true_lower, &true_extent);
  if (extent < true_extent && !(overlaps && extent > 0)) { /* would overlap itself */
    MPI_Datatype wider;
    MPI_Type_create_resized(old, true_lower, true_extent, &wider);
    MPI_Type_free(&old);
    old = wider;
    extent = true_extent;
  }
  const int over = overlaps && pick(3) == 0;
  int lengths[4], places[4];
  MPI_Aint offsets[4];
  MPI_Datatype types[4];
  for (int i = 0; i < count; ++i) {
    lengths[i] = (int)pick(3);
    places[i] = over ? (int)pick(4) : (i * 4 + (int)pick(2));
    offsets[i] = places[i] * extent;
    types[i] = old;
  }
  const int blocks = 1 + (int)pick(3), stride = over ? (int)pick(3) - 1 : 3 + (int)pick(3);
  const MPI_Aint bytes_between = over ? (MPI_Aint)pick(2) * extent : (pick(2) ? 2 : -3) * extent;
  const int large_counts = pick(2) == 0; /* where the library has them; the same datatypes where not */
#if MPI_VERSION >= 4
  MPI_Count long_lengths[4], long_places[4], long_offsets[4];
  for (int i = 0; i < count; ++i) {
    long_lengths[i] = lengths[i];
    long_places[i] = places[i];
    long_offsets[i] = offsets[i];
  }
#define MADE(plain, large) (large_counts ? (large) : (plain))
#else
  (void)large_counts;
#define MADE(plain, large) (plain)
#endif
  switch (pick(depth == 1 ? 12 : 11)) {
    case 0:
      MADE(MPI_Type_contiguous(count, old, &made), MPI_Type_contiguous_c(count, old, &made));
      break;
    case 1:
      MADE(MPI_Type_vector(count, blocks, stride, old, &made), MPI_Type_vector_c(count, blocks, stride, old, &made));
      break;
    case 2:
      MADE(MPI_Type_create_hvector(count, 2, bytes_between, old, &made),
           MPI_Type_create_hvector_c(count, 2, bytes_between, old, &made));
      break;
    case 3:
      MADE(MPI_Type_indexed(count, lengths, places, old, &made),
           MPI_Type_indexed_c(count, long_lengths, long_places, old, &made));
      break;
    case 4:
      MADE(MPI_Type_create_hindexed(count, lengths, offsets, old, &made),
           MPI_Type_create_hindexed_c(count, long_lengths, long_offsets, old, &made));
      break;
    case 5:
      MADE(MPI_Type_create_indexed_block(count, 2, places, old, &made),
           MPI_Type_create_indexed_block_c(count, 2, long_places, old, &made));
      break;
    case 6:
      MADE(MPI_Type_create_hindexed_block(count, 1, offsets, old, &made),
           MPI_Type_create_hindexed_block_c(count, 1, long_offsets, old, &made));
      break;
    case 7:
      MADE(MPI_Type_create_struct(count, lengths, offsets, types, &made),
           MPI_Type_create_struct_c(count, long_lengths, long_offsets, types, &made));
      break;
    case 8: {
      const MPI_Aint wider = extent + 4 * (MPI_Aint)pick(3) + 4;
      MADE(MPI_Type_create_resized(old, lower - 4, wider, &made), MPI_Type_create_resized_c(old, lower - 4, wider, &made));
      break;
    }
    case 9: {
      const int sizes[3] = {2 + (int)pick(3), 3, 2 + (int)pick(2)}, parts[3] = {2, 1 + (int)pick(2), 1},
                starts[3] = {0, 1, (int)pick(2)};
      MPI_Type_create_subarray(3, sizes, parts, starts, pick(2) ? MPI_ORDER_C : MPI_ORDER_FORTRAN, old, &made);
      break;
    }
    case 11: {
      const int sizes[2] = {4 + (int)pick(4), 4}, kinds[2] = {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC};
      const int arguments[2] = {MPI_DISTRIBUTE_DFLT_DARG, 1}, grid[2] = {2, 2};
      MPI_Type_create_darray(4, (int)pick(4), 2, sizes, kinds, arguments, grid, MPI_ORDER_C, old, &made);
      break;
    }
    default:
      MPI_Type_dup(old, &made);
  }
  MPI_Type_free(&old);
  return made;
}

static MPI_Datatype bounded_type(int* atoms, unsigned kind, int overlaps) {
  int atom_bytes;
  MPI_Datatype atom = atom_of(kind);
  MPI_Type_size(atom, &atom_bytes);
  MPI_Type_free(&atom);
  for (;;) {
    MPI_Datatype made = random_type(1 + (int)pick(3), kind, overlaps);
    MPI_Aint lower, extent;
    MPI_Type_get_extent(made, &lower, &extent);
    MPI_Type_size(made, atoms);
    *atoms /= atom_bytes;
    if (*atoms > 0 && *atoms <= 150 && extent > -(64 << 10) && extent < (64 << 10) && lower > -(64 << 10)) {
      MPI_Type_commit(&made);
      return made;
    }
    MPI_Type_free(&made);
  }
}

static void types(uint64_t seed, int count) {
  const size_t area = 48 << 20, middle = 24 << 20;
  unsigned char *out = malloc(area), *in = malloc(area), *expected = malloc(area);
  for (int round = 0; round < count; ++round) {
    state = seed + (uint64_t)round * 977;
    if (round % 10 == 0) {
      press();
    }
    int sent_atoms, kept_atoms, sent_bytes;
    const unsigned kind = pick(ATOMS);
    MPI_Datatype sent = bounded_type(&sent_atoms, kind, kPacksOverlaps), kept = bounded_type(&kept_atoms, kind, 0);
    MPI_Type_size(sent, &sent_bytes);
    /* As many atoms on both sides. */
    const int times = 1 + (int)pick(3), sent_count = kept_atoms * times, kept_count = sent_atoms * times;
    const int bytes_packed = sent_bytes * sent_count;
    MPI_Aint lower, extent, true_lower, true_extent;
    MPI_Type_get_extent(kept, &lower, &extent);
    MPI_Type_get_true_extent(kept, &true_lower, &true_extent);
    MPI_Aint sent_lower, sent_extent;
    MPI_Type_get_extent(sent, &sent_lower, &sent_extent);
    if (extent < true_extent || kept_count * (extent > 0 ? extent : -extent) > (20 << 20) ||
        sent_count * (sent_extent > 0 ? sent_extent : -sent_extent) > (20 << 20)) {
      MPI_Type_free(&sent);
      MPI_Type_free(&kept);
      continue;
    }
    const size_t reach = (size_t)(kept_count * extent) + (256 << 10),
                 sent_reach = (size_t)(sent_count * (sent_extent > 0 ? sent_extent : -sent_extent)) + (256 << 10);
    unsigned char* packed = malloc((size_t)bytes_packed);
    /* What the previous rank sends, and what that must become here. */
    for (size_t i = 0; i < 2 * sent_reach; ++i) {
      out[middle - sent_reach + i] = (unsigned char)(i * 7 + (size_t)from + (i >> 9));
    }
    int position = 0;
    MPI_Pack(out + middle, sent_count, sent, packed, bytes_packed, &position, MPI_COMM_WORLD);
    memset(in + middle - (256 << 10), 0x33, reach + (256 << 10));
    memset(expected + middle - (256 << 10), 0x33, reach + (256 << 10));
    position = 0;
    MPI_Unpack(packed, bytes_packed, &position, expected + middle, kept_count, kept, MPI_COMM_WORLD);
    for (size_t i = 0; i < 2 * sent_reach; ++i) {
      out[middle - sent_reach + i] = (unsigned char)(i * 7 + (size_t)rank + (i >> 9));
    }
    MPI_Request request;
    MPI_Status status;
    MPI_Irecv(in + middle, kept_count, kept, from, 3, MPI_COMM_WORLD, &request);
    if (round % 2 == 0) {
      MPI_Send(out + middle, sent_count, sent, to, 3, MPI_COMM_WORLD);
    } else {
      MPI_Request sending;
      MPI_Issend(out + middle, sent_count, sent, to, 3, MPI_COMM_WORLD, &sending);
      MPI_Type_free(&sent); /* may be freed in flight */
      MPI_Wait(&sending, MPI_STATUS_IGNORE);
    }
    MPI_Wait(&request, &status);
    int got;
    MPI_Get_count(&status, kept, &got);
    CHECK(got == kept_count);
    CHECK(memcmp(in + middle - (256 << 10), expected + middle - (256 << 10), reach + (256 << 10)) == 0);
    ++received;
    free(packed);
    if (sent != MPI_DATATYPE_NULL) {
      MPI_Type_free(&sent);
    }
    MPI_Type_free(&kept);
  }
}

/* Rank 0 gets messages from all, by wildcards in the order in which each was sent, and by tag in reverse. */
static void order(int count) {
  int number[2];
  if (rank == 0) {
    int* next = calloc((size_t)ranks, sizeof(int));
    for (int i = 0; i < count * (ranks - 1); ++i) {
      MPI_Status status;
      MPI_Recv(number, 2, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
      CHECK(number[0] == status.MPI_SOURCE && number[1] == next[number[0]]++ && status.MPI_TAG == number[1] % 5);
      ++received;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD); /* all are there, and none was asked for */
    press();
    for (int i = count - 1; i >= 0; --i) {
      for (int other = 1; other < ranks; ++other) {
        MPI_Recv(number, 2, MPI_INT, other, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        CHECK(number[0] == other && number[1] == i);
        ++received;
      }
    }
  } else {
    for (int i = 0; i < count; ++i) {
      number[0] = rank;
      number[1] = i;
      MPI_Send(number, 2, MPI_INT, 0, i % 5, MPI_COMM_WORLD);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < count; ++i) {
      number[1] = i;
      MPI_Send(number, 2, MPI_INT, 0, i, MPI_COMM_WORLD);
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

static void errors(void) {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  unsigned char *out = malloc(2 << 20), *in = malloc(2 << 20);
  MPI_Status status;
  MPI_Request request, sending;
  int flag = 0, class = 0;
  for (int large = 0; large < 2; ++large) {
    const int count = large ? 1 << 20 : 100;
    memset(in, 1, (size_t)count);
    memset(out, 2, (size_t)count);
    MPI_Isend(out, count, MPI_BYTE, to, 0, MPI_COMM_WORLD, &sending);
    const int error = MPI_Recv(in, count / 2, MPI_BYTE, from, 0, MPI_COMM_WORLD, &status);
    MPI_Error_class(error, &class);
    CHECK(class == MPI_ERR_TRUNCATE);
    CHECK(in[count / 2] == 1);
    MPI_Wait(&sending, MPI_STATUS_IGNORE);
    MPI_Isend(out, count, MPI_BYTE, to, 0, MPI_COMM_WORLD, &sending);
    MPI_Irecv(in, count / 2, MPI_BYTE, from, 0, MPI_COMM_WORLD, &request);
    MPI_Request both[2] = {sending, request};
    MPI_Status statuses[2];
    MPI_Error_class(MPI_Waitall(2, both, statuses), &class);
    CHECK(class == MPI_ERR_IN_STATUS);
    MPI_Error_class(statuses[1].MPI_ERROR, &class);
    CHECK(class == MPI_ERR_TRUNCATE && statuses[0].MPI_ERROR == MPI_SUCCESS);
    /* A message to oneself, sent before anybody asks for it. */
    MPI_Send(out, count, MPI_BYTE, rank, 5, MPI_COMM_WORLD);
    MPI_Recv(in, count, MPI_BYTE, MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, &status);
    check_status(&status, rank, 5, count);
    CHECK(in[0] == 2 && in[count - 1] == 2);
    /* Taken back. */
    MPI_Irecv(in, count, MPI_BYTE, from, 77, MPI_COMM_WORLD, &request);
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &flag);
    CHECK(flag);
    MPI_Barrier(MPI_COMM_WORLD);
    received += 3;
  }
  CHECK(MPI_Send(out, 1, MPI_BYTE, ranks, 0, MPI_COMM_WORLD) != MPI_SUCCESS);
  CHECK(MPI_Send(out, -1, MPI_BYTE, 0, 0, MPI_COMM_WORLD) != MPI_SUCCESS);
  CHECK(MPI_Send(out, 1, MPI_BYTE, 0, -5, MPI_COMM_WORLD) != MPI_SUCCESS);
  CHECK(MPI_Send(out, 1, MPI_DATATYPE_NULL, 0, 0, MPI_COMM_WORLD) != MPI_SUCCESS);
  MPI_Recv(in, 1, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &status);
  CHECK(status.MPI_SOURCE == MPI_PROC_NULL);
  /* A receive that waits here must not keep the sender from the collective that this rank is in, which is the library's. */
  double one = 1, sum;
  for (int i = 0; i < 50; ++i) {
    MPI_Irecv(in, 1 << 20, MPI_BYTE, from, 9, MPI_COMM_WORLD, &request);
    if (rank % 2 == 0) {
      MPI_Allreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
      MPI_Ssend(out, 1 << 20, MPI_BYTE, to, 9, MPI_COMM_WORLD);
    } else {
      MPI_Ssend(out, 1 << 20, MPI_BYTE, to, 9, MPI_COMM_WORLD);
      MPI_Allreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    ++received;
  }
}

/* One datatype whose parts lie in the heap, in static data and on the stack. */
static int static_part[100];
static void scattered(void) {
  int stack_part[100], lengths[3] = {200000, 100, 100};
  int* heap_part = malloc(1 << 20);
  MPI_Aint places[3];
  MPI_Datatype types[3] = {MPI_INT, MPI_INT, MPI_INT}, all;
  for (int i = 0; i < 200000; ++i) {
    heap_part[i] = rank + i;
    if (i < 100) {
      static_part[i] = rank + 2 * i;
      stack_part[i] = rank + 3 * i;
    }
  }
  MPI_Get_address(heap_part, &places[0]);
  MPI_Get_address(static_part, &places[1]);
  MPI_Get_address(stack_part, &places[2]);
  MPI_Type_create_struct(3, lengths, places, types, &all);
  MPI_Type_commit(&all);
  for (int i = 0; i < 3; ++i) {
    MPI_Sendrecv_replace(MPI_BOTTOM, 1, all, to, 0, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    const int distance = (to - rank + ranks) % ranks, came_from = (rank + (ranks - distance) * (i + 1)) % ranks;
    CHECK(heap_part[0] == came_from && heap_part[199999] == came_from + 199999);
    CHECK(static_part[99] == came_from + 198 && stack_part[99] == came_from + 297);
    int* straight = malloc(200200 * sizeof(int));
    MPI_Request request;
    MPI_Irecv(straight, 200200, MPI_INT, from, 1, MPI_COMM_WORLD, &request);
    MPI_Send(MPI_BOTTOM, 1, all, to, 1, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    const int now = (came_from + ranks - distance) % ranks;
    CHECK(straight[0] == now && straight[200000] == now && straight[200199] == now + 297);
    received += 2;
    free(straight);
  }
  MPI_Type_free(&all);
  free(heap_part);
}

/* The same tags on many communicators at once. */
static void communicators(void) {
  MPI_Comm all[12];
  int n = 0;
  MPI_Group world, odd;
  MPI_Request request;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  int range[1][3] = {{0, ranks - 1, 1}};
  MPI_Group_range_incl(world, 1, range, &odd);
  MPI_Comm_dup(MPI_COMM_WORLD, &all[n++]);
  MPI_Comm_dup_with_info(all[0], MPI_INFO_NULL, &all[n++]);
  MPI_Comm_idup(MPI_COMM_WORLD, &all[n++], &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &all[n++]);
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &all[n++]);
  MPI_Comm_create(MPI_COMM_WORLD, odd, &all[n++]);
  MPI_Comm_create_group(MPI_COMM_WORLD, odd, 4, &all[n++]);
  MPI_Comm_create_group(MPI_COMM_WORLD, odd, 4, &all[n++]);
  const int yes = 1, next = to;
  int dims[2] = {ranks, 1}, periods[2] = {1, 0}, remain[2] = {1, 0};
  MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &all[n++]);
  MPI_Cart_sub(all[n - 1], remain, &all[n]);
  ++n;
  MPI_Dist_graph_create(MPI_COMM_WORLD, 1, &rank, &yes, &next, &yes, MPI_INFO_NULL, 0, &all[n++]);
  for (int i = n - 1; i >= 0; --i) {
    int mine, size, value[2] = {i, rank};
    MPI_Comm_rank(all[i], &mine);
    MPI_Comm_size(all[i], &size);
    MPI_Send(value, 2, MPI_INT, (mine + 1) % size, 0, all[i]);
  }
  for (int i = 0; i < n; ++i) {
    int mine, size, value[2] = {-1, -1};
    MPI_Comm_rank(all[i], &mine);
    MPI_Comm_size(all[i], &size);
    MPI_Status status;
    MPI_Recv(value, 2, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, all[i], &status);
    CHECK(value[0] == i && status.MPI_SOURCE == (mine + size - 1) % size);
    ++received;
  }
  /* Made and freed again and again: handles come back. */
  for (int i = 0; i < 50; ++i) {
    MPI_Comm made;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &made);
    int mine, size, value = i;
    MPI_Comm_rank(made, &mine);
    MPI_Comm_size(made, &size);
    MPI_Sendrecv_replace(&value, 1, MPI_INT, (mine + 1) % size, i, (mine + size - 1) % size, i, made, MPI_STATUS_IGNORE);
    CHECK(value == i);
    MPI_Comm_free(&made);
    ++received;
  }
  for (int i = 0; i < n; ++i) {
    MPI_Comm_free(&all[i]);
  }
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int distance = argc > 5 ? atoi(argv[5]) : 1;
  to = (rank + distance) % ranks;
  from = (rank + ranks - distance) % ranks;
  bytes = (size_t)atoi(argv[2]) << 20;
  pressure = malloc(bytes + 1);
  press();
  const uint64_t seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
  const int count = argc > 4 ? atoi(argv[4]) : 0;
  if (strcmp(argv[1], "calls") == 0) {
    calls(count > 1 ? (unsigned)count : 1);
  } else if (strcmp(argv[1], "types") == 0) {
    types(seed, count);
    scattered();
  } else if (strcmp(argv[1], "order") == 0) {
    order(count);
  } else if (strcmp(argv[1], "errors") == 0) {
    errors();
  } else {
    communicators();
  }
  long sum = 0;
  MPI_Reduce(&received, &sum, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    printf("ok %ld\n", sum);
  }
  MPI_Finalize();
  return 0;
}
