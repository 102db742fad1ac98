// The ways to become another program: exec and its kin.
//
// The kernel reads what the new program is given while the old one is still there. Where that lies in evictable memory it is
// copied first: some engines do not serve the kernel, and while a limit of the program's is in effect (limits.h) nothing is
// served. Of arguments elsewhere, nearly all, each costs a comparison. posix_spawn() does not come here: with an engine that
// does not serve the kernel, its arguments must not be on storage.
//
// The search along PATH is written anew: the C library's would read the environment in that moment.
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/system_calls.h"
#include "heap/held_calls.h"
#include "heap/leaving.h"
#include "heap/limits.h"

namespace {

using namespace headroom;

HEADROOM_REAL(execve);
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

size_t count_of(char* const* texts) {
  size_t count = 0;
  while (texts != nullptr && texts[count] != nullptr) {
    ++count;
  }
  return count;
}

/// A list of texts, or a copy of it outside evictable memory if any of it lies there. (What a child by vfork copies stays with
/// its parent.)
class TextsOutside {
 public:
  explicit TextsOutside(char* const* texts) : texts_(texts) {
    if (texts != nullptr && pager::is_running()) {
      copy(count_of(texts));
    }
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

  /// False if there was no memory for a copy.
  [[nodiscard]] bool has_all() const { return has_all_; }
  [[nodiscard]] char* const* get() const { return texts_; }

 private:
  void copy(size_t count) {
    bool ours = heap::is_ours(texts_, (count + 1) * sizeof *texts_);
    bytes_ = (count + 1) * sizeof *texts_;
    for (size_t index = 0; index < count; ++index) {
      const size_t length = strlen(texts_[index]) + 1;
      ours = ours || heap::is_ours(texts_[index], length);
      bytes_ += length;
    }
    if (!ours) {
      return;
    }
    copy_ = static_cast<char**>(base::reserve_memory(bytes_));
    has_all_ = copy_ != nullptr;
    char* to = reinterpret_cast<char*>(copy_ + count + 1);
    char* const end = reinterpret_cast<char*>(copy_) + bytes_;
    for (size_t index = 0; index < count && has_all_ && to < end; ++index) {
      const size_t length = strnlen(texts_[index], static_cast<size_t>(end - to) - 1);  // another thread may write to it
      copy_[index] = static_cast<char*>(memcpy(to, texts_[index], length));
      to += length + 1;
    }
    texts_ = has_all_ ? copy_ : texts_;
  }

  char* const* texts_;
  char** copy_ = nullptr;
  size_t bytes_ = 0;
  bool has_all_ = true;
};

int become(const char* path, char* const* arguments, char* const* environment) {
  heap::complete_children();
  char* const paths[] = {const_cast<char*>(path), nullptr};
  const TextsOutside outside(paths);
  const TextsOutside arguments_outside(arguments);
  const TextsOutside environment_outside(environment);
  if (!outside.has_all() || !arguments_outside.has_all() || !environment_outside.has_all()) {
    errno = ENOMEM;
    return -1;
  }
  // Limits that were lowered cannot always be raised again, so not for what will not be executed.
  if (heap::has_kept_limits() && faccessat(AT_FDCWD, outside.get()[0], X_OK, AT_EACCESS) != 0) {
    return -1;
  }
  const heap::LimitsInEffect limits;
  return real_execve.get()(outside.get()[0], arguments_outside.get(), environment_outside.get());
}

/// A script without an interpreter's name is the shell's, as execvp() has it.
int become_or_shell(const char* path, char* const* arguments, char* const* environment) {
  (void)become(path, arguments, environment);
  if (errno != ENOEXEC) {
    return -1;
  }
  const size_t count = count_of(arguments);
  const uint64_t bytes = (count + 3) * sizeof *arguments;
  auto* const words = static_cast<char**>(base::reserve_memory(bytes));
  if (words == nullptr) {
    errno = ENOMEM;
    return -1;
  }
  words[0] = const_cast<char*>("/bin/sh");
  words[1] = const_cast<char*>(path);
  for (size_t index = 1; index < count; ++index) {
    words[index + 1] = arguments[index];
  }
  (void)become(words[0], words, environment);
  const int error = errno;
  (void)base::system_call(SYS_munmap, words, bytes);
  errno = error;
  return -1;
}

int search_and_become(const char* name, char* const* arguments, char* const* environment) {
  if (strchr(name, '/') != nullptr || *name == 0) {
    return *name != 0 ? become_or_shell(name, arguments, environment) : become(name, arguments, environment);
  }
  const char* path = getenv("PATH");
  path = path != nullptr ? path : "/bin:/usr/bin";
  const size_t length = strlen(name);
  int error = ENOENT;
  for (bool more = true; more;) {
    const size_t folder = strcspn(path, ":");
    char whole[PATH_MAX];
    if (folder + 1 + length < sizeof whole) {
      memcpy(whole, path, folder);
      whole[folder] = '/';
      memcpy(whole + folder + (folder > 0 ? 1 : 0), name, length + 1);
      (void)become_or_shell(whole, arguments, environment);
      if (errno == EACCES) {
        error = EACCES;  // there may be another further on, but if not, it is what is said
      } else if (errno != ENOENT && errno != ENOTDIR && errno != ESTALE && errno != ENODEV && errno != ETIMEDOUT) {
        return -1;
      }
    }
    more = path[folder] == ':';
    path += folder + 1;
  }
  errno = error;
  return -1;
}

}  // namespace

HEADROOM_EXPORT int execve(const char* path, char* const arguments[], char* const environment[]) noexcept {
  return become(path, arguments, environment);
}
HEADROOM_EXPORT int execv(const char* path, char* const arguments[]) noexcept { return become(path, arguments, environ); }
HEADROOM_EXPORT int execvpe(const char* file, char* const arguments[], char* const environment[]) noexcept {
  return search_and_become(file, arguments, environment);
}
HEADROOM_EXPORT int execvp(const char* file, char* const arguments[]) noexcept {
  return search_and_become(file, arguments, environ);
}
HEADROOM_EXPORT int fexecve(int file, char* const arguments[], char* const environment[]) noexcept {
  heap::complete_children();
  const TextsOutside arguments_outside(arguments);
  const TextsOutside environment_outside(environment);
  if (!arguments_outside.has_all() || !environment_outside.has_all()) {
    errno = ENOMEM;
    return -1;
  }
  const heap::LimitsInEffect limits;
  return real_fexecve.get()(file, arguments_outside.get(), environment_outside.get());
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
