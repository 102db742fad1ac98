// Reads a file of /proc line by line through a small buffer, without allocating.
#pragma once

#include <fcntl.h>
#include <string.h>

#include "base/system_calls.h"

namespace headroom::pager {

class LineReader {
 public:
  explicit LineReader(const char* path) : file_(base::system_call(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC)) {}
  ~LineReader() {
    if (!base::is_error(file_)) {
      (void)base::system_call(SYS_close, file_);
    }
  }
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
      const long bytes =
          base::is_error(file_) ? 0 : base::system_call(SYS_read, file_, buffer_ + filled_, sizeof buffer_ - filled_);
      if (bytes <= 0) {
        return nullptr;
      }
      filled_ += static_cast<size_t>(bytes);
    }
  }

 private:
  long file_;
  size_t at_ = 0;
  size_t filled_ = 0;
  char buffer_[8192] = {};
};

}  // namespace headroom::pager
