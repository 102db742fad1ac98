/* What MPI promises, one promise a run. usage: mpi_promises CASE. Rank 0 prints "ok", every rank what is wrong. */
#include <errno.h>
#include <sys/stat.h>

#include "mpi_promises_errors.h"
#include "mpi_promises_job.h"
#include "mpi_promises_orders.h"
#include "mpi_promises_parts.h"
#include "mpi_promises_progress.h"
#include "mpi_promises_requests.h"

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

/* Becomes none of these: two are not there, and one is no program. */
static void become_nothing(void) {
  char name[] = "/tmp/no_program_XXXXXX";
  const int file = mkstemp(name);
  must(file >= 0 && write(file, "\1", 1) == 1 && fchmod(file, 0700) == 0 && close(file) == 0, "no file");
  char* arguments[] = {name, NULL};
  for (int round = 0; round < 2; ++round) {
    must(execv("/nowhere/to/be/found", arguments) == -1 && errno == ENOENT, "something else than what is not there");
    must(execvp("is_nowhere_to_be_found", arguments) == -1 && errno == ENOENT, "something else than what is nowhere");
    must(execv(name, arguments) == -1 && errno == ENOEXEC, "something else than what is no program");
  }
  unlink(name);
}

int main(int argc, char** argv) {
  int provided;
  if (argc > 1 &&
      (strcmp(argv[1], "probes") == 0 || strncmp(argv[1], "handlers", 8) == 0 || strcmp(argv[1], "orders_of_threads") == 0)) {
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
  } else if (strcmp(name, "many_requests") == 0) {
    many_requests();
  } else if (strcmp(name, "forgotten_errors") == 0) {
    forgotten_errors();
  } else if (strcmp(name, "handlers_talk") == 0) {
    handlers_talk();
  } else if (strcmp(name, "orders_of_threads") == 0) {
    orders_of_threads();
  } else if (strcmp(name, "orders_again") == 0) {
    orders_again();
  } else if (strcmp(name, "handlers_beside_a_flood") == 0) {
    handlers_beside_a_flood();
  } else if (strcmp(name, "wrong_parts") == 0) {
    wrong_parts();
  } else if (strcmp(name, "errors_of_both") == 0) {
    errors_of_both();
  } else if (strcmp(name, "probed") == 0) {
    probed();
  } else if (strcmp(name, "polls") == 0) {
    polls();
  } else if (strcmp(name, "many_freed") == 0) {
    many_freed();
  } else if (strncmp(name, "leave", 5) != 0) {
    wrong = "no such case";
  }
  int first_process = getpid();
  MPI_Bcast(&first_process, 1, MPI_INT, 0, MPI_COMM_WORLD);
  MPI_Finalize();
  must(strcmp(name, "attributes") != 0 || deleted == 1, "the attribute was not deleted once");
  const int leaves = strncmp(name, "leave", 5) == 0;
  if (strcmp(name, "leave_refused") == 0 && rank == 0) {
    usleep(300000);
    become_nothing();
    printf("%s\n", wrong == NULL ? "ok" : wrong);
    return 0;
  }
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
