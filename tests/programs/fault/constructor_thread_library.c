/* Stands for a library whose constructor starts a thread and waits for it, while the loader's lock is held; wrapped functions
   are what the thread calls first. */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>

static void* calls(void* unused) {
  struct epoll_event event;
  stack_t stack;
  (void)epoll_wait(-1, &event, 1, 0);
  (void)sigaltstack(NULL, &stack);
  void* object = malloc(10);
  (void)malloc_usable_size(object);
  free(object);
  return unused;
}

__attribute__((constructor)) static void begin(void) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, calls, NULL) == 0) {
    pthread_join(thread, NULL);
  }
}
