/* Stands for a library that registers handlers of fork() before anybody else can, and writes to the program's memory there. */
#include <pthread.h>
#include <stddef.h>

volatile long* written_at_forks; /* the program's */

static void write_there(void) {
  if (written_at_forks != NULL) {
    ++*written_at_forks;
  }
}

__attribute__((constructor)) static void begin(void) { pthread_atfork(write_there, write_there, write_there); }
