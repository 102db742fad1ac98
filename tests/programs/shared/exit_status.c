/* Sends itself a message before it has any large memory, and ends with the status that it is told. No MPI. */
#include <stdlib.h>
#include <sys/socket.h>

int main(int argc, char** argv) {
  int ends[2];
  char byte = 1;
  struct iovec vector = {&byte, 1};
  struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0 || sendmsg(ends[0], &message, 0) != 1 ||
      recvmsg(ends[1], &message, 0) != 1) {
    return 99;
  }
  volatile char* memory = malloc(8 << 20);
  for (long at = 0; at < 8 << 20; at += 4096) {
    memory[at] = 1;
  }
  const int status = argc > 1 ? atoi(argv[1]) : 0;
  free((void*)memory);
  return status;
}
