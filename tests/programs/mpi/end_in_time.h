/* MPI_Finalize does not always end over cards that are made of software: it has as many seconds as MOST_SECONDS_TO_END says. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void end_now(int number) {
  (void)number;
  _exit(0);
}

static void end_in_time(void) {
  if (getenv("MOST_SECONDS_TO_END") != NULL) {
    fflush(stdout);
    signal(SIGALRM, end_now);
    alarm((unsigned)atoi(getenv("MOST_SECONDS_TO_END")));
  }
}
