// stdio hands large buffers straight to the kernel from inside the C library. Where the kernel may not touch them, they are
// passed through a buffer on the stack, piece by piece.
#include <stdio.h>

#include <algorithm>

#include "heap/held_calls.h"
#include "trace/counters.h"

namespace {

using namespace headroom;
using heap::is_ours;

HEADROOM_REAL(fread);
HEADROOM_REAL(fwrite);
HEADROOM_REAL(fread_unlocked);
HEADROOM_REAL(fwrite_unlocked);
HEADROOM_REAL(fputs);
HEADROOM_REAL(fputs_unlocked);
HEADROOM_REAL(puts);
HEADROOM_REAL(setvbuf);

bool needs_bounce(const void* buffer, size_t size, size_t count) {
  return size != 0 && count != 0 && is_ours(buffer, size * count) && !pager::engine_serves_kernel();
}

/// Other threads see one call, as they would of the C library's; also if this one is cancelled in it.
class StreamLock {
 public:
  explicit StreamLock(FILE* stream) : stream_(stream) { flockfile(stream_); }
  ~StreamLock() {
    const int saved_errno = errno;
    funlockfile(stream_);
    errno = saved_errno;
  }
  StreamLock(const StreamLock&) = delete;
  StreamLock& operator=(const StreamLock&) = delete;

 private:
  FILE* stream_;
};

/// Moves size * count bytes through a small buffer; `transfer(bounce, at, bytes)` does one piece and returns what it moved.
template <typename Transfer>
size_t bounced(size_t size, size_t count, Transfer transfer) {
  char bounce[32768];
  const size_t total = size * count;
  size_t done = 0;
  while (done < total) {
    const size_t piece = std::min<size_t>(total - done, sizeof bounce);
    const size_t moved = transfer(bounce, done, piece);
    trace::count(trace::Counter::kBouncedBytes, moved);
    done += moved;
    if (moved < piece) {
      break;
    }
  }
  return done / size;
}

template <typename Function>
size_t bounced_read(Function real, void* buffer, size_t size, size_t count, FILE* stream) {
  return bounced(size, count, [=](char* bounce, size_t at, size_t piece) {
    const size_t got = real(bounce, 1, piece, stream);
    memcpy(static_cast<char*>(buffer) + at, bounce, got);
    return got;
  });
}

template <typename Function>
size_t bounced_write(Function real, const void* buffer, size_t size, size_t count, FILE* stream) {
  return bounced(size, count, [=](char* bounce, size_t at, size_t piece) {
    memcpy(bounce, static_cast<const char*>(buffer) + at, piece);
    return real(bounce, 1, piece, stream);
  });
}

}  // namespace

HEADROOM_EXPORT size_t fread(void* buffer, size_t size, size_t count, FILE* stream) {
  if (!needs_bounce(buffer, size, count)) {
    return real_fread.get()(buffer, size, count, stream);
  }
  const StreamLock lock(stream);
  return bounced_read(real_fread.get(), buffer, size, count, stream);
}
HEADROOM_EXPORT size_t fread_unlocked(void* buffer, size_t size, size_t count, FILE* stream) {
  const auto real = real_fread_unlocked.get();
  return needs_bounce(buffer, size, count) ? bounced_read(real, buffer, size, count, stream)
                                           : real(buffer, size, count, stream);
}
HEADROOM_EXPORT size_t fwrite(const void* buffer, size_t size, size_t count, FILE* stream) {
  if (!needs_bounce(buffer, size, count)) {
    return real_fwrite.get()(buffer, size, count, stream);
  }
  const StreamLock lock(stream);
  return bounced_write(real_fwrite.get(), buffer, size, count, stream);
}
HEADROOM_EXPORT size_t fwrite_unlocked(const void* buffer, size_t size, size_t count, FILE* stream) {
  const auto real = real_fwrite_unlocked.get();
  return needs_bounce(buffer, size, count) ? bounced_write(real, buffer, size, count, stream)
                                           : real(buffer, size, count, stream);
}
HEADROOM_EXPORT int fputs(const char* text, FILE* stream) {
  if (!needs_bounce(text, 1, 1)) {
    return real_fputs.get()(text, stream);
  }
  const size_t bytes = strlen(text);
  return fwrite(text, 1, bytes, stream) == bytes ? 1 : EOF;
}

HEADROOM_EXPORT int fputs_unlocked(const char* text, FILE* stream) {
  if (!needs_bounce(text, 1, 1)) {
    return real_fputs_unlocked.get()(text, stream);
  }
  const size_t bytes = strlen(text);
  return fwrite_unlocked(text, 1, bytes, stream) == bytes ? 1 : EOF;
}
HEADROOM_EXPORT int puts(const char* text) {
  if (!needs_bounce(text, 1, 1)) {
    return real_puts.get()(text);
  }
  const StreamLock lock(stdout);
  return fputs(text, stdout) < 0 || fputc('\n', stdout) < 0 ? EOF : 1;
}

/// A stream's buffer is the C library's to pass to the kernel at any time: it stays resident. If that is too much, the stream
/// has a buffer of the C library's own: the program cannot tell which one it has.
HEADROOM_EXPORT int setvbuf(FILE* stream, char* buffer, int mode, size_t bytes) {
  if (buffer != nullptr && is_ours(buffer, bytes) && !pager::is_forked_child() && !pager::try_pin(buffer, bytes)) {
    buffer = nullptr;
  }
  return real_setvbuf.get()(stream, buffer, mode, bytes);
}
/// Older programs call this instead.
HEADROOM_EXPORT void setbuffer(FILE* stream, char* buffer, size_t bytes) noexcept {
  (void)setvbuf(stream, buffer, buffer != nullptr ? _IOFBF : _IONBF, bytes);
}
HEADROOM_EXPORT void setbuf(FILE* stream, char* buffer) noexcept { setbuffer(stream, buffer, BUFSIZ); }
