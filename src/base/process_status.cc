// See process_status.h.
#include "base/process_status.h"

#include "base/kept_open.h"
#include "base/line_reader.h"

namespace headroom::base {

int64_t size_in_status(const char* name) {
  static KeptOpen file("/proc/self/status");
  LineReader lines(file.descriptor());
  while (const char* line = lines.next()) {
    const int64_t bytes = bytes_in_field(line, name);
    if (bytes >= 0) {
      return bytes;
    }
  }
  return 0;
}

}  // namespace headroom::base
