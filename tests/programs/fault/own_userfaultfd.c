/* Watches memory of its own with a userfaultfd, as user-space pagers do: what is missing it fills with 7. Prints what came of
   it: "refused 16" (EBUSY), or "filled", or "wrong".
   usage: own_userfaultfd MIB ioctl|syscall */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static int watch;

static void* serve(void* unused) {
  (void)unused;
  static char page[4096] __attribute__((aligned(4096)));
  memset(page, 7, sizeof page);
  for (;;) {
    struct uffd_msg message;
    struct pollfd wanted = {watch, POLLIN, 0};
    poll(&wanted, 1, -1);
    if (read(watch, &message, sizeof message) == sizeof message && message.event == UFFD_EVENT_PAGEFAULT) {
      struct uffdio_copy copy = {message.arg.pagefault.address & ~4095ULL, (unsigned long)page, 4096, 0, 0};
      ioctl(watch, UFFDIO_COPY, &copy);
    }
  }
  return NULL;
}

int main(int argc, char** argv) {
  if (argc != 3) {
    return 2;
  }
  const size_t bytes = (size_t)atol(argv[1]) << 20;
  char* memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  watch = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
  struct uffdio_api api = {.api = UFFD_API};
  if (memory == MAP_FAILED || watch < 0 || ioctl(watch, UFFDIO_API, &api) != 0) {
    printf("not here\n");
    return 0;
  }
  struct uffdio_register request = {.range = {(unsigned long)memory, bytes}, .mode = UFFDIO_REGISTER_MODE_MISSING};
  const int result = strcmp(argv[2], "ioctl") == 0 ? ioctl(watch, UFFDIO_REGISTER, &request)
                                                   : (int)syscall(SYS_ioctl, watch, UFFDIO_REGISTER, &request);
  if (result != 0) {
    printf("refused %d\n", errno);
    return 0;
  }
  pthread_t server;
  pthread_create(&server, NULL, serve, NULL);
  size_t wrong = 0;
  for (size_t at = 0; at < bytes; at += 4096) {
    wrong += memory[at] != 7;
  }
  printf("%s\n", wrong == 0 ? "filled" : "wrong");
  return 0;
}
