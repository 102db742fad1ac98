/* The benchmark's lower bound of what is read, of passes told on standard input: least_reads RANKS GRANULES FROM
 *
 * A line is `array SIZE`, `walk NUMBER...` (of arrays, in step), or `meet`; sizes in granules. Prints how many granules must be
 * read after the meeting FROM.
 */
#include <string.h>

#include "../../../python/headroom/bench/least_reads.h"

int main(int argc, char** argv) {
  static char places[kMostArrays]; /* what tells arrays from each other */
  static uint64_t sizes[kMostArrays];
  int count = 0;
  char line[256];
  if (argc != 4) {
    return 2;
  }
  while (fgets(line, sizeof line, stdin) != NULL) {
    const char* word = strtok(line, " \n");
    if (strcmp(word, "meet") == 0) {
      meet();
    } else if (strcmp(word, "array") == 0) {
      sizes[count] = strtoull(strtok(NULL, " \n"), NULL, 10) * kGranule;
      know_array(&places[count], sizes[count]);
      ++count;
    } else {
      struct Walked walked[kWalkedAtOnce];
      int walks = 0;
      while ((word = strtok(NULL, " \n")) != NULL) {
        const int array = atoi(word);
        walked[walks++] = (struct Walked){&places[array], sizes[array]};
      }
      walk(walks, walked);
    }
  }
  const uint32_t ranks = (uint32_t)atoi(argv[1]);
  printf("%.0f\n", least_reads(atoi(argv[3]), ranks, atof(argv[2]) * kGranule) / kGranule);
  return 0;
}
