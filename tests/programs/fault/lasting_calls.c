/* Calls that last: what they hold of evictable memory is bounded, whoever makes them, and ends with them, also when their
   thread is cancelled; other threads see one call where there is one; what they are given and what they fill in may be on
   storage; and the program's handlers run in them. Prints "ok" or what went wrong. usage: lasting_calls MIB [crash]: or a
   handler for one time, and an access that nothing allows */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pressure.h"

enum { kMiB = 1 << 20, kReaders = 12, kEach = 2 * kMiB, kWriters = 4, kRecords = 12, kRecordBytes = 100000 };
static char* place;

/* A piece of evictable memory, each in blocks of its own. */
static char* piece(int index) { return place + (size_t)index * kEach; }

static int ends[kReaders][2];

static void* reads_for_ever(void* number) {
  (void)!read(ends[*(int*)number][0], piece(*(int*)number), kEach);
  return NULL;
}

static void cancelled(void) {
  int numbers[kReaders];
  for (int each = 0; each < kReaders; ++each) {
    pthread_t reader;
    numbers[each] = each;
    CHECK(pipe(ends[each]) == 0);
    CHECK(pthread_create(&reader, NULL, reads_for_ever, &numbers[each]) == 0);
    usleep(20000);
    CHECK(pthread_cancel(reader) == 0 && pthread_join(reader, NULL) == 0);
    CHECK(close(ends[each][0]) == 0 && close(ends[each][1]) == 0);
  }
  press(); /* needs what they held */
}

static void* receives(void* number) {
  const int each = *(int*)number;
  const ssize_t got = recv(ends[each][0], piece(each), kEach, 0);
  return (void*)(got == 5 && memcmp(piece(each), "hello", 5) == 0 ? 0L : 1L);
}

static void many_wait(void) {
  pthread_t readers[kReaders];
  int numbers[kReaders];
  for (int each = 0; each < kReaders; ++each) {
    numbers[each] = each;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends[each]) == 0);
    CHECK(pthread_create(&readers[each], NULL, receives, &numbers[each]) == 0);
  }
  usleep(100000);
  press(); /* while all of them wait */
  for (int each = 0; each < kReaders; ++each) {
    void* wrong = NULL;
    CHECK(send(ends[each][1], "hello", 5, 0) == 5);
    CHECK(pthread_join(readers[each], &wrong) == 0 && wrong == NULL);
    CHECK(close(ends[each][0]) == 0 && close(ends[each][1]) == 0);
  }
}

static FILE* records;

static void* writes_records(void* number) {
  const int each = *(int*)number;
  char* record = memset(piece(each), 'a' + each, kRecordBytes);
  for (int round = 0; round < kRecords; ++round) {
    CHECK(fwrite(record, 1, kRecordBytes, records) == kRecordBytes);
  }
  return NULL;
}

static void* reads_records(void* number) {
  char* record = piece(*(int*)number);
  for (int round = 0; round < kRecords; ++round) {
    CHECK(fread(record, 1, kRecordBytes, records) == kRecordBytes);
    for (int at = 1; at < kRecordBytes; ++at) {
      CHECK(record[at] == record[0]);
    }
  }
  return NULL;
}

static void one_stream(void) {
  records = tmpfile();
  CHECK(records != NULL);
  for (int reading = 0; reading < 2; ++reading) {
    pthread_t threads[kWriters];
    int numbers[kWriters];
    for (int each = 0; each < kWriters; ++each) {
      numbers[each] = each;
      CHECK(pthread_create(&threads[each], NULL, reading ? reads_records : writes_records, &numbers[each]) == 0);
    }
    for (int each = 0; each < kWriters; ++each) {
      CHECK(pthread_join(threads[each], NULL) == 0);
    }
    rewind(records);
  }
  fclose(records);
}

static volatile sig_atomic_t handled;

static void on_signal(int number) {
  (void)number;
  for (int each = 0; each < kReaders; ++each) {
    handled += piece(each)[kEach / 2] == 7;
  }
}

static void* sends_signal(void* receiver) {
  usleep(20000);
  pthread_kill(*(pthread_t*)receiver, SIGUSR1);
  return NULL;
}

/* In each of the calls that wait under a mask, here one of everything else. */
static void handlers_in_masked_waits(void) {
  sigset_t mask, one;
  sigemptyset(&one);
  sigaddset(&one, SIGUSR1);
  CHECK(sigprocmask(SIG_BLOCK, &one, NULL) == 0);
  sigfillset(&mask);
  sigdelset(&mask, SIGUSR1);
  struct sigaction action = {.sa_handler = on_signal};
  CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
  const int epoll = epoll_create1(0);
  for (int call = 0; call < 4; ++call) {
    for (int each = 0; each < kReaders; ++each) {
      piece(each)[kEach / 2] = 7;
    }
    press();
    handled = 0;
    pthread_t self = pthread_self(), sender;
    CHECK(pthread_create(&sender, NULL, sends_signal, &self) == 0);
    struct epoll_event event;
    const int result = call == 0   ? sigsuspend(&mask)
                       : call == 1 ? ppoll(NULL, 0, NULL, &mask)
                       : call == 2 ? pselect(0, NULL, NULL, NULL, NULL, &mask)
                                   : epoll_pwait(epoll, &event, 1, -1, &mask);
    CHECK(result == -1 && errno == EINTR && handled == kReaders);
    CHECK(pthread_join(sender, NULL) == 0);
  }
  close(epoll);
  CHECK(sigprocmask(SIG_UNBLOCK, &one, NULL) == 0);
}

static void arguments_of_messages(void) {
  struct sockaddr_in* address = (struct sockaddr_in*)piece(0);
  socklen_t* length = (socklen_t*)piece(1);
  struct sockaddr_in* from = (struct sockaddr_in*)piece(2);
  struct msghdr* message = (struct msghdr*)piece(3);
  struct iovec* vector = (struct iovec*)piece(4);
  struct timespec* timeout = (struct timespec*)piece(5);
  const int one = socket(AF_INET, SOCK_DGRAM, 0), other = socket(AF_INET, SOCK_DGRAM, 0);
  char text[8] = "";
  memset(address, 0, sizeof *address);
  address->sin_family = AF_INET;
  address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  *length = sizeof *address;
  CHECK(bind(one, (struct sockaddr*)address, sizeof *address) == 0);
  CHECK(getsockname(one, (struct sockaddr*)address, length) == 0);
  memset(from, 0, sizeof *from);
  press();
  CHECK(sendto(other, "first", 6, 0, (struct sockaddr*)address, sizeof *address) == 6);
  press();
  CHECK(recvfrom(one, text, sizeof text, 0, (struct sockaddr*)from, length) == 6);
  CHECK(strcmp(text, "first") == 0 && from->sin_family == AF_INET && *length == sizeof *from);
  *vector = (struct iovec){text, 6};
  *message = (struct msghdr){.msg_name = address, .msg_namelen = sizeof *address, .msg_iov = vector, .msg_iovlen = 1};
  press();
  CHECK(sendmsg(other, message, 0) == 6);
  memset(from, 0, sizeof *from);
  memset(text, 0, sizeof text);
  message->msg_name = from;
  press();
  CHECK(recvmsg(one, message, 0) == 6 && strcmp(text, "first") == 0 && from->sin_family == AF_INET);
  *timeout = (struct timespec){0, 1000};
  press();
  CHECK(ppoll(NULL, 0, timeout, NULL) == 0);
  close(one);
  close(other);
}

static void on_crash(int number) {
  (void)number;
  (void)!write(STDOUT_FILENO, "handled\n", 8);
}

int main(int count, char** arguments) {
  bytes = (size_t)atoi(arguments[1]) << 20;
  pressure = malloc(bytes);
  place = malloc((size_t)kReaders * kEach);
  CHECK(pressure != NULL && place != NULL);
  memset(place, 1, (size_t)kReaders * kEach);
  press();
  if (count > 2) {
    struct sigaction action = {.sa_handler = on_crash, .sa_flags = (int)SA_RESETHAND};
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    volatile int* nowhere = NULL;
    *nowhere = 1;
  }
  cancelled();
  many_wait();
  one_stream();
  handlers_in_masked_waits();
  arguments_of_messages();
  puts("ok");
  return 0;
}
