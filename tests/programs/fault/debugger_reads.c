/* What a debugger does: reads all pages of an array by /proc/self/mem while part of it is on storage. A page
   that cannot be read so is refused by the kernel; afterwards the program's own reads must find what it wrote, and nothing
   else. Prints how many pages were read with their content, refused, and read as something else, and "wrong 0". usage:
   debugger_reads MIB */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PAGE = 4096 };

static unsigned char value_of(size_t page) { return (unsigned char)(page % 251 + 1); }

int main(int argc, char** argv) {
  const size_t pages = (size_t)(argc > 1 ? atoi(argv[1]) : 64) << 8;
  unsigned char* array = malloc(pages * PAGE);
  for (size_t page = 0; page < pages; ++page) {
    memset(array + page * PAGE, value_of(page), PAGE);
  }
  const int file = open("/proc/self/mem", O_RDONLY);
  if (file < 0) {
    perror("/proc/self/mem");
    return 1;
  }
  size_t right = 0, refused = 0, other = 0, wrong = 0;
  for (size_t page = 0; page < pages; ++page) {
    unsigned char found[16];
    const ssize_t got = pread(file, found, sizeof found, (off_t)(uintptr_t)(array + page * PAGE));
    if (got != sizeof found) {
      ++refused;
      continue;
    }
    const int is_right = found[0] == value_of(page) && found[15] == value_of(page);
    right += is_right;
    other += !is_right;
  }
  close(file);
  for (size_t page = 0; page < pages; ++page) {
    const unsigned char* at = array + page * PAGE;
    wrong += at[0] != value_of(page) || at[PAGE / 2] != value_of(page) || at[PAGE - 1] != value_of(page);
  }
  printf("right %zu refused %zu other %zu\nwrong %zu\n", right, refused, other, wrong);
  return wrong != 0;
}
