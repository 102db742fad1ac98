/* Part of mpi_promises.c: nobody waits for ever, for another thread, or for who computes. */
#pragma once

#include "mpi_promises_job.h"

static volatile sig_atomic_t told;

static void hear(int signal) {
  (void)signal;
  told = 1;
}

/// What rank 0 does again and again, which succeeds at once each time.
static void succeed(int way, int token) {
  MPI_Request request;
  MPI_Status status;
  int flag = 0;
  switch (way) {
    case 0:
      MPI_Recv(&token, 1, MPI_INT, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      break;
    case 1:
      MPI_Irecv(&token, 1, MPI_INT, 1, 1, MPI_COMM_WORLD, &request);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      break;
    case 2:
      MPI_Irecv(&token, 1, MPI_INT, 1, 1, MPI_COMM_WORLD, &request);
      MPI_Waitall(1, &request, &status);
      break;
    case 3:
      MPI_Iprobe(1, 1, MPI_COMM_WORLD, &flag, &status);
      must(flag, "what was there is not found");
      break;
    case 4:
      MPI_Send(&token, 1, MPI_INT, 1, 2, MPI_COMM_WORLD);
      break;
    default:
      MPI_Isend(&token, 1, MPI_INT, 1, 2, MPI_COMM_WORLD, &request);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
}

/// Calls that succeed at once, and never wait, give progress to what is under way elsewhere: a long message of the library's
/// (an intercommunicator is the library's) ends meanwhile. 3 ranks.
static void successes(void) {
  enum { WAYS = 6, TOKENS = 200000, BYTES = 1 << 20 };
  MPI_Comm half, inter, merged;
  MPI_Comm_split(MPI_COMM_WORLD, rank < 2, rank, &half);
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank < 2 ? 2 : 0, 7, &inter);
  MPI_Intercomm_merge(inter, rank == 2, &merged);
  int pids[3], pid = getpid();
  MPI_Allgather(&pid, 1, MPI_INT, pids, 1, MPI_INT, MPI_COMM_WORLD);
  signal(SIGUSR1, hear);
  char* content = calloc(1, BYTES);
  for (int way = 0; way < WAYS; ++way) {
    MPI_Request request;
    told = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1) {
      for (int token = 0; way < 4 && token < TOKENS; ++token) {
        MPI_Send(&token, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
      }
    }
    if (rank == 0) {
      MPI_Irecv(content, BYTES, MPI_CHAR, 2, 3, merged, &request);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 2) {
      MPI_Send(content, BYTES, MPI_CHAR, 0, 3, merged);
      kill(pids[0], SIGUSR1);
    }
    int calls = 0;
    if (rank == 0) {
      usleep(100000); /* it has begun */
      while (calls < TOKENS && !told) {
        succeed(way, calls++);
      }
      must(told, "calls that succeed keep others waiting");
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Bcast(&calls, 1, MPI_INT, 0, MPI_COMM_WORLD);
    int rest = way < 3 ? TOKENS - calls : way == 3 ? TOKENS : calls, token;
    for (; rank == (way < 4 ? 0 : 1) && rest > 0; --rest) {
      MPI_Recv(&token, 1, MPI_INT, way < 4 ? 1 : 0, way < 4 ? 1 : 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
  }
  free(content);
  MPI_Comm_free(&merged);
  MPI_Comm_free(&inter);
  MPI_Comm_free(&half);
}

enum { PROBED = 1600, AT_ONCE = 4, PROBING = 3, LONG_BYTES = 200000, LAST = 77 };
static atomic_int came;

static void note_message(const MPI_Status* status) {
  must(status->MPI_SOURCE != rank, "a message of nobody's");
  atomic_fetch_add(&came, 1);
}

static void receive_from_anywhere(char* content, MPI_Request* request) {
  MPI_Irecv(content, LONG_BYTES, MPI_CHAR, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, request);
}

static void* receive_many(void* memory) {
  char* content = memory;
  MPI_Request requests[AT_ONCE];
  for (int index = 0; index < AT_ONCE; ++index) {
    receive_from_anywhere(content + index * LONG_BYTES, &requests[index]);
  }
  for (int left = AT_ONCE; left > 0;) {
    int index;
    MPI_Status status;
    MPI_Waitany(AT_ONCE, requests, &index, &status);
    if (status.MPI_TAG == LAST) {
      --left;
    } else {
      note_message(&status);
      receive_from_anywhere(content + index * LONG_BYTES, &requests[index]);
    }
  }
  return NULL;
}

static void* probe_for_any(void* unused) {
  char* content = malloc(LONG_BYTES);
  while (atomic_load(&came) < PROBED * (ranks - 1)) {
    int flag = 0;
    MPI_Message message;
    MPI_Status status;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &status);
    must(!flag || status.MPI_SOURCE != 0, "a probe found what is no message");
    MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &message, &status);
    if (flag) {
      note_message(&status);
      MPI_Mrecv(content, LONG_BYTES, MPI_CHAR, &message, MPI_STATUS_IGNORE);
    }
  }
  free(content);
  return unused;
}

/// What ends a receive that waits for messages of this node and of others is no message that a probe finds. 2 nodes, 4 ranks.
static void probes(void) {
  char* content = calloc(AT_ONCE, LONG_BYTES);
  MPI_Request requests[AT_ONCE];
  for (int message = 0; rank != 0 && message < PROBED; ++message) {
    if (rank % 2 == 0) {
      usleep(100); /* receives have begun */
      MPI_Send(content, 8, MPI_CHAR, 0, 1 + message % 3, MPI_COMM_WORLD);
    } else {
      /* several are under way for long: their senders have no time for them */
      MPI_Isend(content, LONG_BYTES, MPI_CHAR, 0, 1 + message % 3, MPI_COMM_WORLD, &requests[message % AT_ONCE]);
      if ((message + 1) % AT_ONCE == 0) {
        usleep(2000);
        MPI_Waitall(AT_ONCE, requests, MPI_STATUSES_IGNORE);
      }
    }
  }
  if (rank == 0) {
    pthread_t receiver, probing[PROBING];
    pthread_create(&receiver, NULL, receive_many, content);
    for (int index = 0; index < PROBING; ++index) {
      pthread_create(&probing[index], NULL, probe_for_any, NULL);
    }
    for (int index = 0; index < PROBING; ++index) {
      pthread_join(probing[index], NULL);
    }
    for (int index = 0; index < AT_ONCE; ++index) {
      MPI_Send(content, 0, MPI_CHAR, 0, LAST, MPI_COMM_WORLD);
    }
    pthread_join(receiver, NULL);
  }
  free(content);
}

/// A rank that sends and sends to one that computes waits for it some time: what it has sent does not fill memory.
static void floods(void) {
  enum { MESSAGES = 1200, BYTES = 200000 };
  int pids[2], pid = getpid();
  MPI_Allgather(&pid, 1, MPI_INT, pids, 1, MPI_INT, MPI_COMM_WORLD);
  signal(SIGUSR1, hear);
  char here[BYTES];                        /* on the stack */
  char* const elsewhere = malloc(4 << 20); /* in memory that others can read */
  for (int way = 0; way < 2; ++way) {
    char* const content = way == 0 ? here : elsewhere;
    long early = 0;
    told = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1) {
      usleep(1500000);
      kill(pids[0], SIGUSR1);
    }
    for (int message = 0; message < MESSAGES; ++message) {
      if (rank == 0) {
        memset(content, message, BYTES);
        MPI_Send(content, BYTES, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
        early += told ? 0 : BYTES;
      } else {
        MPI_Recv(content, BYTES, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        must(content[0] == (char)message && content[BYTES - 1] == (char)message, "the content");
      }
    }
    must(early <= 80 << 20, "a sender fills memory"); /* 64 MiB, and what was denied for long enough */
    must(rank != 0 || early > 1 << 20, "a sender waits at once");
  }
  free(elsewhere);
}

/// A send ends though its message has only been taken out of the queue: to oneself, and to a rank that first waits for a
/// sign of the sender. From memory that receivers read, and by a buffered send, which ends without anybody.
static void probed(void) {
  enum { COUNT = 1000, BUFFER = 1 << 20 };
  char* sent = calloc(1, 1 << 20);
  char* buffer = malloc(BUFFER);
  char received[COUNT] = {0};
  MPI_Message message;
  MPI_Request request;
  MPI_Status status;
  sent[COUNT - 1] = 7;
  MPI_Isend(sent, COUNT, MPI_CHAR, rank, 1, MPI_COMM_WORLD, &request);
  MPI_Mprobe(rank, 1, MPI_COMM_WORLD, &message, &status);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Mrecv(received, COUNT, MPI_CHAR, &message, &status);
  must(received[COUNT - 1] == 7, "a message to oneself is not what was sent");
  MPI_Buffer_attach(buffer, BUFFER);
  for (int round = 0; round < 20; ++round) {
    received[COUNT - 1] = 0;
    sent[COUNT - 1] = (char)(round + 1);
    if (rank == 0) {
      if (round % 2 == 0) {
        MPI_Isend(sent, COUNT, MPI_CHAR, 1, 2, MPI_COMM_WORLD, &request);
        usleep(round < 10 ? 2000 : 0);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
      } else {
        MPI_Bsend(sent, COUNT, MPI_CHAR, 1, 2, MPI_COMM_WORLD);
      }
      sent[COUNT - 1] = 0; /* it is the sender's again */
    } else {
      MPI_Mprobe(0, 2, MPI_COMM_WORLD, &message, &status);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1) {
      MPI_Mrecv(received, COUNT, MPI_CHAR, &message, &status);
      must(received[COUNT - 1] == round + 1, "a message that was probed is not what was sent");
    }
  }
  int size = 0;
  MPI_Buffer_detach(&buffer, &size);
  free(buffer);
  free(sent);
}

/// A rank that polls for the end of a send to a receive that is posted gets it, though the receiver is in a blocking call of
/// the library's that it reaches itself only then.
static void polls(void) {
  enum { COUNT = 1000, ROUNDS = 5 };
  char* content = calloc(1, 1 << 20);
  for (int round = 0; round < ROUNDS; ++round) {
    MPI_Request request;
    MPI_Comm made;
    content[COUNT - 1] = rank == 1 ? (char)(round + 1) : 0;
    if (rank == 0) {
      MPI_Irecv(content, COUNT, MPI_CHAR, 1, 1, MPI_COMM_WORLD, &request);
    } else {
      usleep(50000); /* the other is in the call by now */
      MPI_Issend(content, COUNT, MPI_CHAR, 0, 1, MPI_COMM_WORLD, &request);
      for (int flag = 0; !flag;) {
        MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
      }
    }
    MPI_Comm_dup(MPI_COMM_WORLD, &made);
    if (rank == 0) {
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    must(content[COUNT - 1] == round + 1, "what was received while its receiver was in another call is not what was sent");
    MPI_Comm_free(&made);
  }
  free(content);
}
