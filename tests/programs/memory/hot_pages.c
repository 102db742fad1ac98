/* Four of five accesses are to every fifth page of an array of MIB, the others anywhere; each word that is read is checked, and
   with "update" added to. Prints "wrong 0". usage: hot_pages MIB ACCESSES read|update|anywhere (all accesses are) */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { WORDS_OF_PAGE = 512, HOT = 5 };

static uint64_t state = 88172645463325252u;

static uint64_t draw(void) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state >> 11;
}

int main(int argc, char** argv) {
  const uint64_t words = argc == 4 ? strtoull(argv[1], NULL, 10) << 17 : WORDS_OF_PAGE, pages = words / WORDS_OF_PAGE;
  const long accesses = argc == 4 ? atol(argv[2]) : 0;
  const int updates = argc == 4 && argv[3][0] == 'u', anywhere = argc == 4 && argv[3][0] == 'a';
  uint64_t *array = malloc(words * sizeof *array), wrong = 0;
  for (uint64_t i = 0; i < words; ++i) {
    array[i] = i * 31;
  }
  for (long access = 0; access < accesses; ++access) {
    const int hot = !anywhere && draw() % 5 != 0;
    const uint64_t page = hot ? draw() % (pages / HOT) * HOT : draw() % pages,
                   i = page * WORDS_OF_PAGE + draw() % WORDS_OF_PAGE;
    wrong += array[i] % 31 != i * 31 % 31;
    if (updates) {
      array[i] += 31;
    }
  }
  for (uint64_t i = 0; i < words; ++i) {
    wrong += array[i] % 31 != i * 31 % 31;
  }
  printf("wrong %llu\n", (unsigned long long)wrong);
  free(array);
  return wrong != 0;
}
