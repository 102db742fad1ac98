// Reads a file of /proc line by line through a small buffer, without allocating.
#pragma once

#include <string.h>

#include "base/system_calls.h"

namespace headroom::base {

class LineReader {
 public:
  /// Of a file that is open (or negative: it has no lines), from its beginning.
  explicit LineReader(int file) : file_(file) {}
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  /// The next line without its end (cut off where it is longer than the buffer), or nullptr.
  const char* next() {
    for (;;) {
      if (char* end = static_cast<char*>(memchr(buffer_ + at_, '\n', filled_ - at_))) {
        *end = 0;
        const char* line = buffer_ + at_;
        at_ = static_cast<size_t>(end - buffer_) + 1;
        return line;
      }
      memmove(buffer_, buffer_ + at_, filled_ - at_);
      filled_ -= at_;
      at_ = 0;
      if (filled_ == sizeof buffer_) {
        filled_ = 0;
      }
      const long bytes = system_call(SYS_pread64, file_, buffer_ + filled_, sizeof buffer_ - filled_, position_);
      if (bytes <= 0) {
        return nullptr;
      }
      position_ += bytes;
      filled_ += static_cast<size_t>(bytes);
    }
  }

 private:
  int file_;
  long position_ = 0;
  size_t at_ = 0;
  size_t filled_ = 0;
  char buffer_[8192] = {};
};

/// The number in "Pss:     12 kB" in bytes, or -1 if the line is another.
inline int64_t bytes_in_field(const char* line, const char* name) {
  const size_t length = strlen(name);
  if (strncmp(line, name, length) != 0) {
    return -1;
  }
  int64_t value = 0;
  for (line += length; *line != 0; ++line) {
    value = *line >= '0' && *line <= '9' ? value * 10 + (*line - '0') : value;
  }
  return value * 1024;
}

}  // namespace headroom::base
