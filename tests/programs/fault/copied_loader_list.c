/* Looks into the loader's list of objects by name, so that a program without PIE has a copy of it. Prints how many there are.
 */
#include <link.h>
#include <stdio.h>

int main(void) {
  int count = 0;
  for (const struct link_map* object = _r_debug.r_map; object != NULL; object = object->l_next) {
    ++count;
  }
  printf("%s\n", count > 2 ? "right" : "wrong");
  return 0;
}
