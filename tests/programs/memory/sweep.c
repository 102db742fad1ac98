/* Sweeps an array again and again: first touch, then half of the sweeps reading, half updating, checking content.
   usage: sweep MIB SWEEPS; prints the median bandwidth of each kind. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int ascending(const void* a, const void* b) {
  const double left = *(const double*)a, right = *(const double*)b;
  return (left > right) - (left < right);
}

int main(int argc, char** argv) {
  const size_t mib = strtoul(argv[1], NULL, 10), words = mib << 17;
  const int sweeps = atoi(argv[2]);
  volatile unsigned long* array = malloc(words * 8);
  double speeds[2][64], started = now();
  unsigned long wrong = 0;
  int counts[2] = {0, 0};
  (void)argc;
  for (size_t i = 0; i < words; ++i) {
    array[i] = i;
  }
  printf("first touch: %.0f MiB/s\n", (double)mib / (now() - started));
  unsigned long added = 0;
  for (int sweep = 0; sweep < sweeps && sweep < 64; ++sweep) {
    const int update = sweep >= sweeps / 2;
    started = now();
    for (size_t i = 0; i < words; ++i) {
      wrong += array[i] != i + added;
      if (update) {
        array[i] = i + added + 1;
      }
    }
    added += (unsigned long)update;
    speeds[update][counts[update]++] = (double)mib / (now() - started);
  }
  for (int update = 0; update < 2; ++update) {
    qsort(speeds[update], (size_t)counts[update], sizeof(double), ascending);
    printf("%s: %.0f MiB/s\n", update ? "update" : "read", speeds[update][counts[update] / 2]);
  }
  if (wrong != 0) {
    fprintf(stderr, "%lu words wrong\n", wrong);
  }
  return wrong != 0;
}
