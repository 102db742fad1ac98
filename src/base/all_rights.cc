// See all_rights.h.
#include "base/all_rights.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>

#include "base/line_reader.h"
#include "base/own_descriptors.h"

namespace headroom::base {
namespace {

uintptr_t read_hexadecimal(const char*& at) {
  uintptr_t value = 0;
  for (;; ++at) {
    const char digit = *at;
    const int worth = digit >= '0' && digit <= '9' ? digit - '0' : digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
    if (worth < 0) {
      return value;
    }
    value = value * 16 + static_cast<uintptr_t>(worth);
  }
}

}  // namespace

void with_all_rights(uintptr_t address, uint64_t bytes, void (*function)(uintptr_t begin, uint64_t bytes)) {
  const uintptr_t end = address + bytes;
  const int file = own(system_call(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC));
  LineReader mappings(file);
  while (const char* line = mappings.next()) {
    const uintptr_t from = read_hexadecimal(line);
    const uintptr_t to = *line == '-' ? read_hexadecimal(++line) : 0;
    const uintptr_t first = std::max(from, address);
    const uintptr_t last = std::min(to, end);
    if (first >= last) {
      continue;
    }
    const char* rights = line + 1;  // "r-xp"
    const long before =
        (rights[0] == 'r' ? PROT_READ : 0) | (rights[1] == 'w' ? PROT_WRITE : 0) | (rights[2] == 'x' ? PROT_EXEC : 0);
    const bool lacks = (before & (PROT_READ | PROT_WRITE)) != (PROT_READ | PROT_WRITE);
    const uintptr_t page = first & ~uintptr_t{4095};
    if (lacks &&
        is_error(system_call(SYS_mprotect, page, (last - page + 4095) & ~uint64_t{4095}, before | PROT_READ | PROT_WRITE))) {
      continue;  // a file of the program's that may only be read
    }
    function(first, last - first);
    if (lacks) {
      (void)system_call(SYS_mprotect, page, (last - page + 4095) & ~uint64_t{4095}, before);
    }
  }
  close_own(file);
}

}  // namespace headroom::base
