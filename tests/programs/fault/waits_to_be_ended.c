/* Has some memory, until it is told to end. */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static void end(int number) {
  (void)number;
  exit(0);
}

int main(void) {
  signal(SIGTERM, end);
  volatile char* memory = malloc(4 << 20);
  memory[0] = 1;
  for (;;) {
    pause();
  }
}
