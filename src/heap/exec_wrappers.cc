// The ways to become another program: exec and its kin.
//
// The kernel reads what the new program is given while the old one is still there. Where that lies in evictable memory it is
// copied first: some engines do not serve the kernel, and while a limit of the program's is in effect (limits.h) nothing is
// served. Of arguments elsewhere, nearly all, each costs a comparison. posix_spawn() does not come here: with an engine that
// does not serve the kernel, its arguments must not be on storage.
#include <stdarg.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/system_calls.h"
#include "heap/held_calls.h"
#include "heap/leaving.h"
#include "heap/limits.h"

namespace {

using namespace headroom;

HEADROOM_REAL(execve);
HEADROOM_REAL(execvpe);
HEADROOM_REAL(fexecve);

constexpr size_t kMostArguments = 4096;

/// The arguments of execl() and its kin; false if there are too many.
bool collect(const char* first, va_list arguments, const char** out) {
  size_t count = 0;
  for (const char* argument = first; count < kMostArguments; argument = va_arg(arguments, const char*)) {
    out[count++] = argument;
    if (argument == nullptr) {
      return true;
    }
  }
  errno = E2BIG;
  return false;
}

/// A list of texts, or a copy of it outside evictable memory if any of it lies there. (What a child by vfork copies stays with
/// its parent.)
class TextsOutside {
 public:
  explicit TextsOutside(char* const* texts) : texts_(texts) {
    if (texts == nullptr) {
      return;
    }
    size_t count = 0;
    bool ours = false;
    for (; texts[count] != nullptr; ++count) {
      ours = ours || is_in_evictable_memory(texts[count]);
      bytes_ += strlen(texts[count]) + 1;
    }
    bytes_ += (count + 1) * sizeof *texts;
    if (!ours && !heap::is_ours(texts, (count + 1) * sizeof *texts)) {
      return;
    }
    copy_ = static_cast<char**>(base::reserve_memory(bytes_));
    if (copy_ == nullptr) {
      return;
    }
    auto* to = reinterpret_cast<char*>(copy_ + count + 1);
    for (size_t index = 0; index < count; ++index) {
      copy_[index] = to;
      to = stpcpy(to, texts[index]) + 1;
    }
    texts_ = copy_;
  }
  ~TextsOutside() {
    if (copy_ != nullptr) {
      const int saved_errno = errno;
      (void)base::system_call(SYS_munmap, copy_, bytes_);
      errno = saved_errno;
    }
  }
  TextsOutside(const TextsOutside&) = delete;
  TextsOutside& operator=(const TextsOutside&) = delete;
  [[nodiscard]] char* const* get() const { return texts_; }

 private:
  static bool is_in_evictable_memory(const char* text) {
    return heap::is_ours(text, 1) || heap::is_ours(text, strlen(text) + 1);
  }

  char* const* texts_;
  char** copy_ = nullptr;
  size_t bytes_ = 0;
};

template <typename Target, typename Function>
int become(Function real, Target target, char* const* arguments, char* const* environment) {
  heap::complete_children();
  const TextsOutside outside(arguments);
  const TextsOutside environment_outside(environment);
  const heap::LimitsInEffect limits;
  return real(target, outside.get(), environment_outside.get());
}

template <typename Function>
int become_by_name(Function real, const char* name, char* const* arguments, char* const* environment) {
  char* const names[] = {const_cast<char*>(name), nullptr};
  const TextsOutside outside(names);
  return become<const char*>(real, outside.get()[0], arguments, environment);
}

}  // namespace

HEADROOM_EXPORT int execve(const char* path, char* const arguments[], char* const environment[]) noexcept {
  return become_by_name(real_execve.get(), path, arguments, environment);
}
HEADROOM_EXPORT int execv(const char* path, char* const arguments[]) noexcept { return execve(path, arguments, environ); }
HEADROOM_EXPORT int execvpe(const char* file, char* const arguments[], char* const environment[]) noexcept {
  return become_by_name(real_execvpe.get(), file, arguments, environment);
}
HEADROOM_EXPORT int execvp(const char* file, char* const arguments[]) noexcept { return execvpe(file, arguments, environ); }
HEADROOM_EXPORT int fexecve(int file, char* const arguments[], char* const environment[]) noexcept {
  return become(real_fexecve.get(), file, arguments, environment);
}
HEADROOM_EXPORT int execl(const char* path, const char* first, ...) noexcept {
  const char* words[kMostArguments];
  va_list arguments;
  va_start(arguments, first);
  const bool fits = collect(first, arguments, words);
  va_end(arguments);
  return fits ? execv(path, const_cast<char* const*>(words)) : -1;
}
HEADROOM_EXPORT int execlp(const char* file, const char* first, ...) noexcept {
  const char* words[kMostArguments];
  va_list arguments;
  va_start(arguments, first);
  const bool fits = collect(first, arguments, words);
  va_end(arguments);
  return fits ? execvp(file, const_cast<char* const*>(words)) : -1;
}
HEADROOM_EXPORT int execle(const char* path, const char* first, ...) noexcept {
  const char* words[kMostArguments];
  va_list arguments;
  va_start(arguments, first);
  const bool fits = collect(first, arguments, words);
  char* const* environment = fits ? va_arg(arguments, char* const*) : nullptr;
  va_end(arguments);
  return fits ? execve(path, const_cast<char* const*>(words), environment) : -1;
}
