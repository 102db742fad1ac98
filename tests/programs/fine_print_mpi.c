/* What MPI promises, one promise a run. usage: fine_print_mpi CASE. Rank 0 prints "ok", every rank what is wrong. */
#define _GNU_SOURCE
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static int rank, ranks;
static const char* wrong;

static void must(int holds, const char* what) {
  if (!holds && wrong == NULL) {
    wrong = what;
  }
}

static long sum_on(MPI_Comm comm, long own) {
  long sum = 0;
  MPI_Allreduce(&own, &sum, 1, MPI_LONG, MPI_SUM, comm);
  return sum;
}

/// Rank 0 frees a communicator and goes on with another one, while a rank of the first still reads there. 6 ranks.
static void tallies(void) {
  const int of_first[] = {0, 1, 2}, of_second[] = {0, 2, 3, 4, 5};
  MPI_Group world, first_group, second_group;
  MPI_Comm first, second;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_incl(world, 3, of_first, &first_group);
  MPI_Group_incl(world, 5, of_second, &second_group);
  MPI_Comm_create(MPI_COMM_WORLD, first_group, &first);
  MPI_Comm_create(MPI_COMM_WORLD, second_group, &second);
  int pids[6], pid = getpid();
  MPI_Allgather(&pid, 1, MPI_INT, pids, 1, MPI_INT, MPI_COMM_WORLD);
  if (first != MPI_COMM_NULL) {
    MPI_Barrier(first);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    usleep(200000);
    kill(pids[1], SIGSTOP);
  }
  if (rank == 2) {
    usleep(100000);
  }
  if (first != MPI_COMM_NULL) {
    must(sum_on(first, 100 + rank) == 303, "a sum is wrong");
    MPI_Comm_free(&first);
  }
  if (second != MPI_COMM_NULL) {
    MPI_Barrier(second);
    for (int round = 0; round < 4; ++round) {
      must(sum_on(second, 1000 + rank) == 5014, "the other sum is wrong");
    }
  }
  if (rank == 0) {
    kill(pids[1], SIGCONT);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (second != MPI_COMM_NULL) {
    MPI_Comm_free(&second);
  }
}

static MPI_Request kept;
static int deleted;

static int end_what_is_kept(MPI_Comm comm, int key, void* value, void* extra) {
  (void)comm, (void)key, (void)extra;
  int* content = value;
  must(*content == 7, "the attribute's value");
  if (rank < 2) {
    MPI_Status status;
    MPI_Start(&kept);
    MPI_Wait(&kept, &status);
    MPI_Request_free(&kept);
  }
  ++deleted;
  return MPI_SUCCESS;
}

static int comes_first(MPI_Comm comm, int key, void* value, void* extra) {
  (void)comm, (void)key, (void)value, (void)extra;
  must(deleted == 0, "attributes are not deleted in reverse order");
  return MPI_SUCCESS;
}

/// Libraries end what they have under way when MPI_COMM_SELF is freed, as the first thing in MPI_Finalize.
static void attributes(void) {
  static int value = 7;
  static int content[1000];
  if (rank == 0) {
    MPI_Send_init(content, 1000, MPI_INT, 1, 5, MPI_COMM_WORLD, &kept);
  } else if (rank == 1) {
    MPI_Recv_init(content, 1000, MPI_INT, 0, 5, MPI_COMM_WORLD, &kept);
  }
  int key, later;
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, end_what_is_kept, &key, NULL);
  MPI_Comm_set_attr(MPI_COMM_SELF, key, &value);
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, comes_first, &later, NULL);
  MPI_Comm_set_attr(MPI_COMM_SELF, later, &value);
  MPI_Comm_free_keyval(&key);
  int gone;
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &gone, NULL);
  MPI_Comm_set_attr(MPI_COMM_SELF, gone, &value);
  MPI_Comm_delete_attr(MPI_COMM_SELF, gone);
  MPI_Comm_free_keyval(&gone);
}

/// The error of a call about several requests is raised where the first of them that failed belongs.
static void errors(void) {
  MPI_Comm returning;
  MPI_Comm_dup(MPI_COMM_WORLD, &returning);
  MPI_Comm_set_errhandler(returning, MPI_ERRORS_RETURN);
  for (int some = 0; some < 2; ++some) {
    if (rank == 1) {
      int one = 0, two[2] = {0, 0};
      MPI_Request requests[2];
      MPI_Status statuses[2];
      MPI_Irecv(&one, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, &requests[0]);
      MPI_Irecv(two, 1, MPI_INT, 0, 0, returning, &requests[1]);
      MPI_Barrier(MPI_COMM_WORLD);
      usleep(100000);
      int done = 0, indices[2], error = MPI_SUCCESS;
      if (some) {
        for (int all = 0; all < 2 && error == MPI_SUCCESS; all += done) {
          error = MPI_Waitsome(2, requests, &done, indices, statuses);
        }
      } else {
        error = MPI_Waitall(2, requests, statuses);
      }
      int class = MPI_SUCCESS;
      MPI_Error_class(error, &class);
      must(class == MPI_ERR_IN_STATUS && one == 3, "the error of several");
    } else {
      MPI_Barrier(MPI_COMM_WORLD);
      if (rank == 0) {
        const int sent[2] = {3, 4};
        MPI_Send(sent, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
        MPI_Send(sent, 2, MPI_INT, 1, 0, returning);
      }
    }
  }
  MPI_Comm_free(&returning);
}

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

static int own_errors, errors_of_others;

static void count_own(MPI_Comm* comm, int* error, ...) {
  (void)comm, (void)error;
  ++own_errors;
}

static void count_of_others(MPI_Comm* comm, int* error, ...) {
  (void)comm, (void)error;
  ++errors_of_others;
}

static int class_of(int error) {
  int class = MPI_SUCCESS;
  MPI_Error_class(error, &class);
  return class;
}

/// Receives too little on a communicator that is freed meanwhile; returns the error.
static int receive_too_little(int way, MPI_Comm* comm, MPI_Comm* other, MPI_Errhandler of_others) {
  int little = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  if (way == 4) {
    MPI_Mprobe(0, 1, *comm, &message, &status);
  } else if (way == 5) {
    MPI_Recv_init(&little, 1, MPI_INT, 0, 1, *comm, &request);
  } else {
    MPI_Irecv(&little, 1, MPI_INT, 0, 1, *comm, &request);
  }
  MPI_Comm_free(comm);
  MPI_Comm_dup(MPI_COMM_WORLD, other);
  MPI_Comm_set_errhandler(*other, of_others);
  MPI_Barrier(MPI_COMM_WORLD);
  int index, error = MPI_SUCCESS, flag = 0;
  switch (way) {
    case 1:
      error = MPI_Waitall(1, &request, &status);
      must(class_of(error) == MPI_ERR_IN_STATUS, "the error of all");
      return status.MPI_ERROR;
    case 2:
      return MPI_Waitany(1, &request, &index, &status);
    case 3:
      while (error == MPI_SUCCESS && !flag) {
        error = MPI_Test(&request, &flag, &status);
      }
      return error;
    case 4:
      return MPI_Mrecv(&little, 1, MPI_INT, &message, &status);
    case 5:
      MPI_Start(&request);
      error = MPI_Wait(&request, &status);
      MPI_Request_free(&request);
      return error;
    default:
      return MPI_Wait(&request, &status);
  }
}

/// The error of a request is raised by its communicator's handler, though that was freed and another one may have its handle.
static void freed(void) {
  MPI_Errhandler own, of_others;
  MPI_Comm_create_errhandler(count_own, &own);
  MPI_Comm_create_errhandler(count_of_others, &of_others);
  for (int round = 0; round < 12; ++round) {
    const int way = round / 2, returns = round % 2;
    MPI_Comm comm, other;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, returns ? MPI_ERRORS_RETURN : own);
    own_errors = 0;
    if (rank == 1) {
      const int error = receive_too_little(way, &comm, &other, of_others);
      must(class_of(error) == MPI_ERR_TRUNCATE, "the error");
      must(own_errors == 1 - returns, "the handler was not called once");
    } else {
      const int much[2] = {1, 2};
      MPI_Request request = MPI_REQUEST_NULL;
      if (rank == 0) {
        MPI_Send_init(much, 2, MPI_INT, 1, 1, comm, &request);
        if (way == 4) {
          MPI_Start(&request);
        }
      }
      MPI_Comm_free(&comm);
      MPI_Comm_dup(MPI_COMM_WORLD, &other);
      MPI_Comm_set_errhandler(other, of_others);
      MPI_Barrier(MPI_COMM_WORLD);
      if (rank == 0) {
        if (way != 4) {
          MPI_Start(&request);
        }
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Request_free(&request);
      }
    }
    MPI_Comm_free(&other);
  }
  must(errors_of_others == 0, "another communicator's handler was called");
  MPI_Errhandler_free(&own);
  MPI_Errhandler_free(&of_others);
}

/// Receives from any source get their messages though their communicator was freed. 2 nodes, 4 ranks.
static void freed_on_nodes(void) {
  MPI_Comm comm, other;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Request requests[4], kept_ones[2];
  int got[4] = {0}, sum = 0, own = 1 << rank;
  if (rank == 0) {
    for (int index = 0; index < 4; ++index) {
      (index < 2 ? MPI_Recv_init : MPI_Irecv)(&got[index], 1, MPI_INT, MPI_ANY_SOURCE, 1, comm, &requests[index]);
    }
  } else {
    MPI_Send_init(&own, 1, MPI_INT, 0, 1, comm, &kept_ones[0]);
    MPI_Send_init(&own, 1, MPI_INT, 0, 1, comm, &kept_ones[1]);
  }
  MPI_Comm_free(&comm);
  MPI_Comm_dup(MPI_COMM_WORLD, &other);
  for (int from = 1; from <= 3; ++from) { /* first of another node, then of this one */
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0 && from == 2) {
      MPI_Startall(2, requests);
    }
    if (rank == from) {
      usleep(50000);
      MPI_Startall(rank == 2 ? 2 : 1, kept_ones);
      MPI_Waitall(rank == 2 ? 2 : 1, kept_ones, MPI_STATUSES_IGNORE);
    }
  }
  if (rank == 0) {
    MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
    for (int index = 0; index < 4; ++index) {
      sum += got[index];
    }
    must(sum == 2 + 4 + 4 + 8, "what was received");
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
  } else {
    MPI_Request_free(&kept_ones[0]);
    MPI_Request_free(&kept_ones[1]);
  }
  MPI_Comm_free(&other);
}

/// What an operation is not defined for is an error, or what the library makes of it, in every reduction.
static void operations(void) {
  const struct {
    const char* name;
    MPI_Op op;
    MPI_Datatype datatype;
  } cases[] = {{"sum of bytes", MPI_SUM, MPI_BYTE},
               {"product of C's truths", MPI_PROD, MPI_C_BOOL},
               {"sum of Fortran's truths", MPI_SUM, MPI_LOGICAL},
               {"truth of Fortran's integers", MPI_LAND, MPI_INTEGER},
               {"bits of doubles", MPI_BAND, MPI_DOUBLE},
               {"largest of complex", MPI_MAX, MPI_C_DOUBLE_COMPLEX},
               {"place of an integer", MPI_MAXLOC, MPI_INT},
               {"largest of pairs", MPI_MAX, MPI_2INT},
               {"sum of integers", MPI_SUM, MPI_INT},
               {"truth of C's truths", MPI_LAND, MPI_C_BOOL},
               {"bits of bytes", MPI_BXOR, MPI_BYTE},
               {"sum of addresses", MPI_SUM, MPI_AINT},
               {"product of complex", MPI_PROD, MPI_C_DOUBLE_COMPLEX},
               {"place of a pair", MPI_MINLOC, MPI_2INT}};
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  for (size_t at = 0; at < sizeof cases / sizeof cases[0]; ++at) {
    const MPI_Op op = cases[at].op;
    const MPI_Datatype datatype = cases[at].datatype;
    char own[64] = {1}, sum[64] = {1}, got[4][64] = {{0}};
    const int possible = MPI_Reduce_local(own, sum, 1, datatype, op) == MPI_SUCCESS; /* of two alike */
    MPI_Request request = MPI_REQUEST_NULL;
    int errors[4];
    errors[0] = MPI_Allreduce(own, got[0], 1, datatype, op, MPI_COMM_WORLD);
    errors[1] = MPI_Reduce(own, got[1], 1, datatype, op, 0, MPI_COMM_WORLD);
    errors[2] = MPI_Scan(own, got[2], 1, datatype, op, MPI_COMM_WORLD);
    errors[3] = MPI_Iallreduce(own, got[3], 1, datatype, op, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int call = 0; call < 4; ++call) {
      must((errors[call] == MPI_SUCCESS) == possible, cases[at].name);
      must(possible || class_of(errors[call]) == MPI_ERR_OP, cases[at].name);
      const int gets = call == 1 ? rank == 0 : call == 2 ? rank == 1 : 1;
      must(!possible || !gets || memcmp(sum, got[call], sizeof sum) == 0, cases[at].name);
    }
  }
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

/// Calls about several requests write the error of a status only if one has failed; then that of each.
static void statuses(void) {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  for (int round = 0; round < 8; ++round) {
    const int way = round / 2, fails = round % 2;
    const int sent[3] = {1, 2, 3};
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
      for (int tag = 0; tag < 3; ++tag) {
        MPI_Send(sent, fails && tag == 1 ? 2 : 1, MPI_INT, 1, tag, MPI_COMM_WORLD);
      }
      MPI_Barrier(MPI_COMM_WORLD);
      continue;
    }
    int got[3], indices[3], flag = 0, done = 0, error = MPI_SUCCESS;
    MPI_Request requests[3];
    MPI_Status all[3];
    for (int tag = 0; tag < 3; ++tag) {
      MPI_Irecv(&got[tag], 1, MPI_INT, 0, tag, MPI_COMM_WORLD, &requests[tag]);
      all[tag].MPI_ERROR = 77;
    }
    MPI_Barrier(MPI_COMM_WORLD); /* all have come */
    if (way == 0) {
      error = MPI_Waitall(3, requests, all);
    } else if (way == 1) {
      while (!flag && error == MPI_SUCCESS) {
        error = MPI_Testall(3, requests, &flag, all);
      }
    } else if (way == 2) {
      error = MPI_Waitsome(3, requests, &done, indices, all);
    } else {
      error = MPI_Testsome(3, requests, &done, indices, all);
    }
    must(way < 2 || done == 3, "not all are there");
    must(class_of(error) == (fails ? MPI_ERR_IN_STATUS : MPI_SUCCESS), "the error of several");
    for (int tag = 0; tag < 3; ++tag) {
      const int wanted = !fails ? 77 : tag == 1 ? MPI_ERR_TRUNCATE : MPI_SUCCESS;
      must(all[tag].MPI_ERROR == 77 ? wanted == 77 : class_of(all[tag].MPI_ERROR) == wanted, "the error of a status");
    }
  }
}

static void probe_at_error(MPI_Comm* comm, int* error, ...) {
  int flag;
  (void)error;
  MPI_Iprobe(MPI_ANY_SOURCE, 5, *comm, &flag, MPI_STATUS_IGNORE);
  ++own_errors;
}

static void* send_to_oneself(void* content) {
  MPI_Sendrecv(content, 1, MPI_INT, rank, 9, (int*)content + 1, 1, MPI_INT, rank, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  return NULL;
}

/// An error handler may call MPI. 2 nodes, 4 ranks, several threads.
static void handlers(void) {
  int content[2] = {1, 2};
  if (rank == 0) {
    pthread_t other; /* from now on locks are taken */
    pthread_create(&other, NULL, send_to_oneself, content);
    pthread_join(other, NULL);
    MPI_Errhandler handler;
    MPI_Comm_create_errhandler(probe_at_error, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    MPI_Request request;
    MPI_Irecv(content, 1, MPI_INT, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &request);
    MPI_Send(content, 0, MPI_INT, 1, 2, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE); /* MPICH says MPI_SUCCESS once a handler was called */
    must(own_errors == 1, "the handler was not called once");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Errhandler_free(&handler);
  } else if (rank == 1) {
    MPI_Recv(content, 0, MPI_INT, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(content, 2, MPI_INT, 0, 1, MPI_COMM_WORLD);
  }
}

int main(int argc, char** argv) {
  int provided;
  if (argc > 1 && (strcmp(argv[1], "probes") == 0 || strcmp(argv[1], "handlers") == 0)) {
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  } else {
    MPI_Init(&argc, &argv);
  }
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const char* name = argc > 1 ? argv[1] : "";
  if (strcmp(name, "tallies") == 0) {
    tallies();
  } else if (strcmp(name, "attributes") == 0) {
    attributes();
  } else if (strcmp(name, "errors") == 0) {
    errors();
  } else if (strcmp(name, "successes") == 0) {
    successes();
  } else if (strcmp(name, "probes") == 0) {
    probes();
  } else if (strcmp(name, "freed") == 0) {
    freed();
  } else if (strcmp(name, "freed_on_nodes") == 0) {
    freed_on_nodes();
  } else if (strcmp(name, "operations") == 0) {
    operations();
  } else if (strcmp(name, "floods") == 0) {
    floods();
  } else if (strcmp(name, "statuses") == 0) {
    statuses();
  } else if (strcmp(name, "handlers") == 0) {
    handlers();
  } else if (strncmp(name, "leave", 5) != 0) {
    wrong = "no such case";
  }
  int first_process = getpid();
  MPI_Bcast(&first_process, 1, MPI_INT, 0, MPI_COMM_WORLD);
  MPI_Finalize();
  must(strcmp(name, "attributes") != 0 || deleted == 1, "the attribute was not deleted once");
  const int leaves = strncmp(name, "leave", 5) == 0;
  if (leaves && rank == 0) {
    printf("ok\n");
    fflush(stdout);
    usleep(strcmp(name, "leave_last") == 0 ? 300000 : 0);
    if (strcmp(name, "leave_replaced") == 0) {
      execl("/bin/sleep", "sleep", "0.5", (char*)NULL);
    } else if (strcmp(name, "leave_unseen") == 0) {
      syscall(SYS_exit_group, 0);
    }
    _exit(0); /* as Python's os._exit() does */
  }
  if (leaves) {
    usleep(strcmp(name, "leave") == 0 ? 500000 : 0);
    while (strcmp(name, "leave_unseen") == 0 && kill(first_process, 0) == 0) {
    }
  } else if (rank == 0 || wrong != NULL) {
    printf("%s\n", wrong == NULL ? "ok" : wrong);
  }
  return wrong == NULL ? 0 : 1;
}
