// The ways to become another program: exec and its kin.
//
// The kernel reads the new program's arguments while the old one is still there. Arguments that lie in evictable memory are
// copied first: some engines do not serve the kernel, and while a limit of the program's is in effect (limits.h) nothing is
// served. Of arguments elsewhere, nearly all, each costs a comparison. posix_spawn() does not come here: with an engine that
// does not serve the kernel, its arguments must not be on storage.
//
// The search along PATH is written anew: the C library's would read the environment in that moment.
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/system_calls.h"
#include "heap/held_calls.h"
#include "heap/leaving.h"
#include "heap/limits.h"

namespace {

using namespace headroom;

HEADROOM_REAL(execve);
HEADROOM_REAL(fexecve);

/// The arguments of execl() and its kin.
struct ArgumentList {
  va_list list;  // in a structure, since on some processors it is an array, which cannot be handed on by reference
};

/// How many there are, the null that ends them included. `arguments` stays where it is.
size_t count_of(const char* first, ArgumentList& arguments) {
  ArgumentList ahead;
  va_copy(ahead.list, arguments.list);
  size_t count = 1;
  for (const char* argument = first; argument != nullptr; argument = va_arg(ahead.list, const char*)) {
    ++count;
  }
  va_end(ahead.list);
  return count;
}

/// `arguments` goes on behind them.
void collect(const char* first, ArgumentList& arguments, const char** out) {
  for (const char* argument = first; (*out++ = argument) != nullptr; argument = va_arg(arguments.list, const char*)) {
  }
}

/// Room for them on the stack of the thread that calls execl(), no more than they need: it may be a signal handler's, or a
/// small one of a child by vfork.
#define ROOM_FOR(first, arguments) static_cast<const char**>(__builtin_alloca(count_of(first, arguments) * sizeof(const char*)))

size_t count_of(char* const* texts) {
  size_t count = 0;
  while (texts != nullptr && texts[count] != nullptr) {
    ++count;
  }
  return count;
}

/// A list of texts, or a copy of it outside evictable memory if any of it lies there. (Copies that a child by vfork makes stay
/// with its parent.)
class TextsOutside {
 public:
  explicit TextsOutside(char* const* texts) : texts_(texts) {
    if (texts != nullptr && (pager::is_running() || pager::is_forked_child())) {
      copy(count_of(texts));
    }
  }
  ~TextsOutside() {
    if (copy_ != nullptr) {
      const int saved_errno = errno;
      base::give_back_memory(copy_, bytes_);
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
    if (!has_all_) {
      return;
    }
    char* to = reinterpret_cast<char*>(copy_ + count + 1);
    char* const end = reinterpret_cast<char*>(copy_) + bytes_;
    for (size_t index = 0; index < count && to < end; ++index) {
      const size_t length = strnlen(texts_[index], static_cast<size_t>(end - to) - 1);  // another thread may write to it
      copy_[index] = static_cast<char*>(memcpy(to, texts_[index], length));
      to += length + 1;
    }
    texts_ = copy_;
  }

  char* const* texts_;
  char** copy_ = nullptr;
  size_t bytes_ = 0;
  bool has_all_ = true;
};

/// Whether it surely cannot be executed; errno says why.
bool is_refused(const char* path) {
  if (faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) != 0) {
    return errno == ENOENT || errno == ENOTDIR || errno == EACCES;
  }
  struct stat known;
  const bool is_folder = stat(path, &known) == 0 && S_ISDIR(known.st_mode);
  errno = is_folder ? EACCES : 0;
  return is_folder;
}

/// The program is replaced, unless that fails. A rank that has ended MPI leaves the node before, for good: the others may all
/// have left, and the last writes the report. A thread that has not left does not come back either: another one may be leaving.
class Replacing {
 public:
  Replacing() {
    heap::complete_children();
    has_left_ = heap::has_pager() && node::has_finalized(*pager::session().self) && heap::leave_node();
    pager::program_is_replaced(true);
  }
  ~Replacing() {
    pager::program_is_replaced(false);
    if (has_left_) {
      node::return_to_session(pager::session());
    }
  }
  Replacing(const Replacing&) = delete;
  Replacing& operator=(const Replacing&) = delete;

 private:
  bool has_left_ = false;
};

/// The arguments and the environment of a new program, none of it in evictable memory. All memory is taken before the first
/// attempt: limits that were in effect for one may stay.
class Execution {
 public:
  enum Kind { kProgram, kProgramOrScript };
  Execution(char* const* arguments, char* const* environment, Kind kind)
      : arguments_(arguments), environment_(environment), count_(count_of(arguments)) {
    if (kind == kProgramOrScript) {
      words_ = static_cast<char**>(base::reserve_memory(bytes_of_words()));
    }
    has_all_ = arguments_.has_all() && environment_.has_all() && (words_ != nullptr || kind == kProgram);
  }
  ~Execution() {
    if (words_ != nullptr) {
      const int saved_errno = errno;
      base::give_back_memory(words_, bytes_of_words());
      errno = saved_errno;
    }
  }
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  /// Returns only if it fails, with errno. `path` does not lie in evictable memory.
  void attempt(const char* path) const { attempt(path, arguments_.get()); }

  /// The same; a script without an interpreter's name is the shell's, as execvp() has it.
  void attempt_or_shell(const char* path) const {
    attempt(path);
    if (errno == ENOEXEC && has_all_) {
      words_[0] = const_cast<char*>("/bin/sh");
      words_[1] = const_cast<char*>(path);
      for (size_t index = 1; index < count_; ++index) {
        words_[index + 1] = arguments_.get()[index];
      }
      attempt(words_[0], words_);
    }
  }

  void attempt_descriptor(int file) const {
    if (!has_all_) {
      errno = ENOMEM;
      return;
    }
    const Replacing replacing;
    const heap::LimitsInEffect limits;
    (void)real_fexecve.get()(file, arguments_.get(), environment_.get());
  }

 private:
  [[nodiscard]] uint64_t bytes_of_words() const { return (count_ + 3) * sizeof(char*); }

  void attempt(const char* path, char* const* arguments) const {
    if (!has_all_) {
      errno = ENOMEM;
      return;
    }
    // Not for a file that will not be executed, as most files of a search are: limits that were lowered cannot always be raised
    // again, and the last of the node to leave writes the report.
    if (is_refused(path)) {
      return;
    }
    const Replacing replacing;
    const heap::LimitsInEffect limits;
    (void)real_execve.get()(path, arguments, environment_.get());
  }

  TextsOutside arguments_;
  TextsOutside environment_;
  size_t count_;
  char** words_ = nullptr;
  bool has_all_ = false;
};

/// A path, or a copy of it outside evictable memory; nullptr, with errno, if there was no memory for that.
class PathOutside {
 public:
  explicit PathOutside(const char* path) : path_(const_cast<char*>(path)) {}
  [[nodiscard]] const char* get() const {
    errno = outside_.has_all() ? errno : ENOMEM;
    return outside_.has_all() ? outside_.get()[0] : nullptr;
  }

 private:
  char* path_;
  char* const texts_[2] = {path_, nullptr};
  TextsOutside outside_{texts_};
};

int become(const char* path, char* const* arguments, char* const* environment) {
  const Execution execution(arguments, environment, Execution::kProgram);
  if (const PathOutside outside(path); outside.get() != nullptr || path == nullptr) {
    execution.attempt(outside.get());
  }
  return -1;
}

int search_and_become(const char* file, char* const* arguments, char* const* environment) {
  const Execution execution(arguments, environment, Execution::kProgramOrScript);
  const PathOutside outside(file);
  const char* name = outside.get();
  if (name == nullptr) {
    return -1;
  }
  if (*name == 0) {
    errno = ENOENT;
    return -1;
  }
  if (strchr(name, '/') != nullptr) {
    execution.attempt_or_shell(name);
    return -1;
  }
  const size_t length = strlen(name);
  if (length > NAME_MAX) {
    errno = ENAMETOOLONG;
    return -1;
  }
  const char* path = getenv("PATH");
  path = path != nullptr ? path : "/bin:/usr/bin";
  bool is_denied = false;
  for (bool more = true; more;) {
    const size_t folder = strcspn(path, ":");
    char whole[PATH_MAX];
    if (folder + 1 + length < sizeof whole) {
      memcpy(whole, path, folder);
      whole[folder] = '/';
      memcpy(whole + folder + (folder > 0 ? 1 : 0), name, length + 1);
      execution.attempt_or_shell(whole);
      is_denied = is_denied || errno == EACCES;
      if (errno != EACCES && errno != ENOENT && errno != ENOTDIR && errno != ESTALE && errno != ENODEV && errno != ETIMEDOUT) {
        return -1;
      }
    } else {
      errno = ENOENT;
    }
    more = path[folder] == ':';
    path += folder + 1;
  }
  errno = is_denied ? EACCES : errno;  // there may have been another further on; if not, this is the error
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
  Execution(arguments, environment, Execution::kProgram).attempt_descriptor(file);
  return -1;
}
HEADROOM_EXPORT int execl(const char* path, const char* first, ...) noexcept {
  ArgumentList arguments;
  va_start(arguments.list, first);
  const char** words = ROOM_FOR(first, arguments);
  collect(first, arguments, words);
  va_end(arguments.list);
  return execv(path, const_cast<char* const*>(words));
}
HEADROOM_EXPORT int execlp(const char* file, const char* first, ...) noexcept {
  ArgumentList arguments;
  va_start(arguments.list, first);
  const char** words = ROOM_FOR(first, arguments);
  collect(first, arguments, words);
  va_end(arguments.list);
  return execvp(file, const_cast<char* const*>(words));
}
HEADROOM_EXPORT int execle(const char* path, const char* first, ...) noexcept {
  ArgumentList arguments;
  va_start(arguments.list, first);
  const char** words = ROOM_FOR(first, arguments);
  collect(first, arguments, words);
  char* const* environment = va_arg(arguments.list, char* const*);
  va_end(arguments.list);
  return execve(path, const_cast<char* const*>(words), environment);
}
