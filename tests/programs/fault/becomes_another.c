/* Goes over memory, after two seconds and stays, or at once and becomes another program. usage: becomes_another MIB stay|exec
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char** argv) {
  const size_t words = (size_t)atoi(argv[1]) << 17;
  uint64_t* array = malloc(words * 8);
  int wrong = 0;
  if (argc > 2 && strcmp(argv[2], "stay") == 0) {
    array[0] = 1;
    sleep(2);
  }
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < words; ++i) {
      wrong |= round > 0 && array[i] != i + round - 1;
      array[i] = i + round;
    }
  }
  printf("%s\n", wrong ? "wrong" : "ok");
  fflush(stdout);
  if (argc > 2 && strcmp(argv[2], "exec") == 0) {
    execl("/no/such/program", "program", (char*)NULL); /* fails: everything stays */
    execl("/bin/sleep", "sleep", "4", (char*)NULL);
  }
  return wrong;
}
