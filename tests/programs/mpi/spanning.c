/* Messages on communicators that span nodes: each rank sends to every other one; receives name their source, any source, any
   tag, or both, and are posted before and after the messages come. Checked: content, and that what one rank sent with one tag
   came in the order in which the receives were posted. Prints "ok" and how many messages were sent, and how many of them
   between ranks of one node. usage: spanning NODES ROUNDS SEED PRESSURE_MIB (rank r is on node r % NODES) */
#include <mpi.h>
#include <stdint.h>

#include "pressure.h"

enum { TAGS = 3, PER_PAIR = 12, LARGEST = 300 << 10 };
static int rank, ranks, nodes;
static long sent_all, sent_here;
static uint64_t state;

static unsigned pick(unsigned below) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (unsigned)(state >> 33) % below;
}

static int same_node(int other) { return other % nodes == rank % nodes; }
static void count(int to) {
  ++sent_all;
  sent_here += same_node(to);
}

/* What message `number` from `from` to `to` is: its size and tag are known to both. */
static uint64_t hash_of(int round, int from, int to, int number) {
  uint64_t value = ((uint64_t)round << 40) + ((uint64_t)from << 28) + ((uint64_t)to << 16) + (uint64_t)number;
  value *= 0xff51afd7ed558ccd;
  value ^= value >> 33;
  return value * 0xc4ceb9fe1a85ec53;
}
static int size_of(uint64_t hash) {
  static const int sizes[] = {8, 40, 600, 9000, 70000, LARGEST};
  return sizes[(hash >> 20) % 6];
}
static int tag_of(uint64_t hash) { return (int)(hash >> 50) % TAGS; }

struct header {
  int from, number;
};

static void write_message(unsigned char* buffer, int round, int from, int to, int number) {
  const int size = size_of(hash_of(round, from, to, number));
  fill(buffer, (size_t)size, (unsigned)(from * 7 + number));
  const struct header header = {from, number};
  memcpy(buffer, &header, sizeof header);
}

/* All pairs at once, by nonblocking calls; receives of random kinds. */
static void all_pairs(MPI_Comm comm, int round) {
  const int messages = (ranks - 1) * PER_PAIR;
  unsigned char *out = malloc((size_t)messages * LARGEST), *in = malloc((size_t)messages * LARGEST);
  MPI_Request* sends = malloc(sizeof *sends * (size_t)messages);
  MPI_Request* receives = malloc(sizeof *receives * (size_t)messages);
  MPI_Status* statuses = malloc(sizeof *statuses * (size_t)messages);
  /* As many receives of each kind as there are messages for them. */
  int posted = 0, from_source[64] = {0}, of_tag[TAGS] = {0}, of_both[64][TAGS] = {{0}};
  int* wanted_source = malloc(sizeof(int) * (size_t)messages);
  int* wanted_tag = malloc(sizeof(int) * (size_t)messages);
  const unsigned kind = pick(4);
  for (int from = 0; from < ranks; ++from) {
    for (int number = 0; from != rank && number < PER_PAIR; ++number) {
      const int tag = tag_of(hash_of(round, from, rank, number));
      ++from_source[from];
      ++of_tag[tag];
      ++of_both[from][tag];
      /* kind 0: any, any; 1: any source; 2: any tag; 3: each names both */
      wanted_source[posted] = kind == 0 || kind == 1 ? MPI_ANY_SOURCE : from;
      wanted_tag[posted] = kind == 0 || kind == 2 ? MPI_ANY_TAG : tag;
      ++posted;
    }
  }
  /* Among receives that leave both open, one from each source may be named: what it takes, another does not miss. */
  if (kind == 3) {
    for (int at = 0; at < posted; ++at) {
      if (pick(3) == 0) {
        /* all receives of this source become "any tag" */
        for (int other = 0; other < posted; ++other) {
          if (wanted_source[other] == wanted_source[at]) {
            wanted_tag[other] = MPI_ANY_TAG;
          }
        }
        break;
      }
    }
  }
  for (int at = posted - 1; at > 0; --at) { /* in any order */
    const int other = (int)pick((unsigned)at + 1);
    const int source = wanted_source[at], tag = wanted_tag[at];
    wanted_source[at] = wanted_source[other];
    wanted_tag[at] = wanted_tag[other];
    wanted_source[other] = source;
    wanted_tag[other] = tag;
  }
  int next_receive = (int)pick((unsigned)posted + 1);
  for (int at = 0; at < next_receive; ++at) {
    MPI_Irecv(in + (size_t)at * LARGEST, LARGEST, MPI_BYTE, wanted_source[at], wanted_tag[at], comm, &receives[at]);
  }
  int done = 0;
  for (int number = 0; number < PER_PAIR; ++number) {
    for (int to = 0; to < ranks; ++to) {
      if (to == rank) {
        continue;
      }
      const uint64_t hash = hash_of(round, rank, to, number);
      unsigned char* buffer = out + (size_t)done * LARGEST;
      write_message(buffer, round, rank, to, number);
      (hash % 5 == 0 ? MPI_Issend : MPI_Isend)(buffer, size_of(hash), MPI_BYTE, to, tag_of(hash), comm, &sends[done++]);
      count(to);
      if (next_receive < posted && pick(2) == 0) {
        MPI_Irecv(in + (size_t)next_receive * LARGEST, LARGEST, MPI_BYTE, wanted_source[next_receive], wanted_tag[next_receive],
                  comm, &receives[next_receive]);
        ++next_receive;
      }
    }
  }
  for (; next_receive < posted; ++next_receive) {
    MPI_Irecv(in + (size_t)next_receive * LARGEST, LARGEST, MPI_BYTE, wanted_source[next_receive], wanted_tag[next_receive],
              comm, &receives[next_receive]);
  }
  if (pick(2) == 0) {
    MPI_Waitall(posted, receives, statuses);
  } else {
    for (int left = posted; left > 0; --left) {
      int index = 0;
      MPI_Status status;
      MPI_Waitany(posted, receives, &index, &status);
      statuses[index] = status;
    }
  }
  MPI_Waitall(done, sends, MPI_STATUSES_IGNORE);
  int last[64][TAGS];
  memset(last, -1, sizeof last);
  for (int at = 0; at < posted; ++at) {
    const unsigned char* buffer = in + (size_t)at * LARGEST;
    struct header header;
    memcpy(&header, buffer, sizeof header);
    const uint64_t hash = hash_of(round, header.from, rank, header.number);
    int size = 0;
    MPI_Get_count(&statuses[at], MPI_BYTE, &size);
    CHECK(statuses[at].MPI_SOURCE == header.from && statuses[at].MPI_TAG == tag_of(hash) && size == size_of(hash));
    CHECK(wanted_source[at] == MPI_ANY_SOURCE || wanted_source[at] == header.from);
    CHECK(wanted_tag[at] == MPI_ANY_TAG || wanted_tag[at] == tag_of(hash));
    CHECK(same_between(buffer, sizeof header, (size_t)size, (unsigned)(header.from * 7 + header.number)));
    CHECK(header.number > last[header.from][tag_of(hash)]);
    last[header.from][tag_of(hash)] = header.number;
  }
  free(out);
  free(in);
  free(sends);
  free(receives);
  free(statuses);
  free(wanted_source);
  free(wanted_tag);
}

/* A receive from anybody that is there first takes what comes first; later ones that name a source get the rest. */
static void earlier_receive_first(MPI_Comm comm) {
  for (int other = 0; other < ranks; ++other) {
    MPI_Barrier(comm);
    if (rank == 0 && other > 0) {
      int first = 0, second = 0;
      MPI_Request requests[2];
      MPI_Irecv(&first, 1, MPI_INT, MPI_ANY_SOURCE, 5, comm, &requests[0]);
      MPI_Irecv(&second, 1, MPI_INT, other, MPI_ANY_TAG, comm, &requests[1]);
      MPI_Barrier(comm);
      MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
      CHECK(first == 100 + other && second == 200 + other);
    } else {
      MPI_Barrier(comm);
      if (rank == other && other > 0) {
        const int values[2] = {100 + rank, 200 + rank};
        MPI_Send(&values[0], 1, MPI_INT, 0, 5, comm);
        MPI_Send(&values[1], 1, MPI_INT, 0, 5, comm);
        count(0);
        count(0);
      }
    }
  }
}

/* Nobody leaves before all have come, and the library does it. (Barriers go in stages.) */
static void wait_in_library(MPI_Comm comm) {
  int all[64];
  MPI_Allgather(&rank, 1, MPI_INT, all, 1, MPI_INT, comm);
}

/* A synchronous send to a receive from anybody must end although the receiver is in a collective of the library. */
static void while_in_a_collective(MPI_Comm comm, int size) {
  unsigned char* buffer = malloc((size_t)size + 1);
  for (int from = 1; from < ranks; ++from) {
    MPI_Request request = MPI_REQUEST_NULL;
    if (rank == 0) {
      memset(buffer, 0, (size_t)size + 1);
      MPI_Irecv(buffer, size, MPI_BYTE, MPI_ANY_SOURCE, 9, comm, &request);
    }
    MPI_Barrier(comm); /* the receive is there */
    if (rank == from) {
      fill(buffer, (size_t)size, 3);
      MPI_Ssend(buffer, size, MPI_BYTE, 0, 9, comm);
      count(0);
    }
    wait_in_library(comm);
    if (rank == 0) {
      MPI_Status status;
      MPI_Wait(&request, &status);
      CHECK(status.MPI_SOURCE == from && same(buffer, (size_t)size, 3));
    }
  }
  free(buffer);
}

/* Blocking calls, probes, calls of two parts, persistent and cancelled receives. */
static void calls(MPI_Comm comm) {
  const int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
  int out = rank, in = -1;
  MPI_Status status;
  MPI_Sendrecv(&out, 1, MPI_INT, to, 1, &in, 1, MPI_INT, MPI_ANY_SOURCE, 1, comm, &status);
  CHECK(in == from && status.MPI_SOURCE == from && status.MPI_TAG == 1);
  count(to);
  MPI_Barrier(comm);
  in = rank;
  MPI_Sendrecv_replace(&in, 1, MPI_INT, to, 2, from, 2, comm, &status);
  CHECK(in == from && status.MPI_SOURCE == from);
  count(to);
  MPI_Request request;
#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
  in = -1;
  MPI_Isendrecv(&out, 1, MPI_INT, to, 3, &in, 1, MPI_INT, from, 3, comm, &request);
  MPI_Wait(&request, &status);
  CHECK(in == from); /* MPICH itself says nothing in its status */
  count(to);
  in = rank;
  MPI_Isendrecv_replace(&in, 1, MPI_INT, to, 4, from, 4, comm, &request);
  MPI_Wait(&request, &status);
  CHECK(in == from);
  count(to);
#endif
  MPI_Barrier(comm);
  /* probes */
  MPI_Message message;
  for (int way = 0; way < 4; ++way) {
    MPI_Isend(&out, 1, MPI_INT, to, 20 + way, comm, &request);
    count(to);
    int flag = 0;
    in = -1;
    switch (way) {
      case 0:
        MPI_Probe(MPI_ANY_SOURCE, 20 + way, comm, &status);
        break;
      case 1:
        while (!flag) {
          MPI_Iprobe(MPI_ANY_SOURCE, 20 + way, comm, &flag, &status);
        }
        break;
      case 2:
        MPI_Mprobe(MPI_ANY_SOURCE, 20 + way, comm, &message, &status);
        break;
      default:
        while (!flag) {
          MPI_Improbe(from, 20 + way, comm, &flag, &message, &status);
        }
    }
    CHECK(status.MPI_SOURCE == from && status.MPI_TAG == 20 + way);
    if (way < 2) {
      MPI_Recv(&in, 1, MPI_INT, status.MPI_SOURCE, status.MPI_TAG, comm, &status);
    } else {
      MPI_Mrecv(&in, 1, MPI_INT, &message, &status);
    }
    CHECK(in == from && status.MPI_SOURCE == from);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Barrier(comm);
  }
  /* a persistent receive from anybody, started again and again, by both ways */
  MPI_Request persistent;
  MPI_Recv_init(&in, 1, MPI_INT, MPI_ANY_SOURCE, 30, comm, &persistent);
  for (int step = 1; step < ranks; ++step) {
    in = -1;
    const int before = step % 2;
    if (before) {
      MPI_Start(&persistent);
    }
    MPI_Isend(&out, 1, MPI_INT, (rank + step) % ranks, 30, comm, &request);
    count((rank + step) % ranks);
    if (!before) {
      MPI_Start(&persistent);
    }
    MPI_Wait(&persistent, &status);
    CHECK(in == (rank + ranks - step) % ranks && status.MPI_SOURCE == in);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Barrier(comm);
  }
  MPI_Request_free(&persistent);
  /* cancelled ones take nothing */
  int cancelled = 0, never = -1;
  MPI_Irecv(&never, 1, MPI_INT, MPI_ANY_SOURCE, 40, comm, &request);
  MPI_Cancel(&request);
  MPI_Wait(&request, &status);
  MPI_Test_cancelled(&status, &cancelled);
  CHECK(cancelled);
  MPI_Barrier(comm);
  MPI_Isend(&out, 1, MPI_INT, to, 40, comm, &request);
  count(to);
  MPI_Recv(&in, 1, MPI_INT, MPI_ANY_SOURCE, 40, comm, &status);
  CHECK(in == from && never == -1);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Barrier(comm);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  CHECK(argc > 4 && ranks <= 64);
  nodes = atoi(argv[1]);
  bytes = (size_t)atoi(argv[4]) << 20;
  pressure = malloc(bytes + 1);
  MPI_Comm turned;
  MPI_Comm_split(MPI_COMM_WORLD, 0, rank, &turned); /* spans too */
  for (int round = 0; round < atoi(argv[2]); ++round) {
    state = (uint64_t)round * 1000 + strtoull(argv[3], NULL, 10) + (uint64_t)rank * 77;
    press();
    all_pairs(round % 2 == 0 ? MPI_COMM_WORLD : turned, round);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  calls(MPI_COMM_WORLD);
  earlier_receive_first(turned);
  while_in_a_collective(MPI_COMM_WORLD, 8);
  while_in_a_collective(turned, 100000);
  while_in_a_collective(turned, 2 << 20);
  if (bytes > (size_t)32 << 20) {
    while_in_a_collective(turned, 20 << 20); /* more than may be held at one time while memory is short */
  }
  long sums[2] = {0, 0}, mine[2] = {sent_all, sent_here};
  MPI_Reduce(mine, sums, 2, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    printf("ok %ld %ld\n", sums[0], sums[1]);
  }
  MPI_Comm_free(&turned);
  MPI_Finalize();
  return 0;
}
