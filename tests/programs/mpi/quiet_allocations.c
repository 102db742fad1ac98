/* Allocates, fills and frees memory of one size in batches, between each of which it calls sched_getparam() for a process that
   is not there: marks for who looks at system calls. From the second batch on the memory is one that was used before. Prints
   "right 1". usage: quiet_allocations BYTES BATCHES ALLOCATIONS */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char** argv) {
  if (argc != 4) {
    return 2;
  }
  const size_t bytes = (size_t)atoll(argv[1]);
  const int batches = atoi(argv[2]), allocations = atoi(argv[3]);
  int right = 1;
  for (int batch = 0; batch < batches; ++batch) {
    for (int each = 0; each < allocations; ++each) {
      char* first = malloc(bytes);
      char* second = calloc(1, bytes);
      right &= first != NULL && second != NULL && second[0] == 0 && second[bytes - 1] == 0;
      memset(first, each + 1, bytes);
      memset(second, each + 2, bytes);
      right &= first[bytes - 1] == (char)(each + 1);
      free(first);
      free(second);
    }
    struct sched_param nothing;
    (void)sched_getparam(0x7ffffffe, &nothing);
  }
  printf("right %d\n", right);
  return 0;
}
