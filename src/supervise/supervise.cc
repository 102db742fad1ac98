// headroom-supervise: starts a rank's program and reports the signal if one ends it.
//
// A rank that is killed (by the kernel for lack of memory, by a person, by a crash) cannot speak, and its launcher may end the
// others before they can. This process is the program's parent, a few hundred KiB, between it and the launcher. Since it
// holds the program's descriptors too, the launcher learns of the death only when this process ends, after it has spoken.
//
// A program may also run without Headroom by mistake: linked statically, or with other privileges. The preloaded library signs
// a file that it inherits (preload/process.cc); if nobody has signed it and it ran for a second, that is said. (A script signs,
// whatever it starts; before the program starts, python/headroom/machine.py says what can be told from its file.)
//
// Signals are passed on; those from the terminal, and a launcher's, reach the whole process group anyway. The exit
// status is the program's; if a signal ended the program, this process ends by the same one. If this process is killed, the
// program is killed too. Signals that our parent had ignored, as nohup does, stay ignored. Not linked with the rest of
// Headroom.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <initializer_list>

#include "base/launchers.h"
#include "supervise/figures.h"

namespace {

using headroom::base::is_first_of_node;
using headroom::base::launched_rank;

constexpr int kPassedOn[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGCONT, SIGXCPU, SIGWINCH, SIGURG};

volatile sig_atomic_t program = 0;

volatile sig_atomic_t launcher = 0;  // whose signals the program has already

/// Most launchers send to the program, too; all other senders send to this process.
void pass_on(int number, siginfo_t* info, void*) {
  if (info->si_code != SI_KERNEL && program != 0 && (launcher == 0 || info->si_pid != launcher)) {
    kill(program, number);
  }
}

void pass_signals_on() {
  struct sigaction action = {};
  action.sa_sigaction = pass_on;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  for (const int number : kPassedOn) {
    struct sigaction before = {};
    if (sigaction(number, nullptr, &before) == 0 && before.sa_handler != SIG_IGN) {
      sigaction(number, &action, nullptr);
    }
  }
}

/// In the child, before exec() would do so: a signal that comes until then is not to be lost in pass_on().
void pass_no_signals_on() {
  for (const int number : kPassedOn) {
    struct sigaction before = {};
    if (sigaction(number, nullptr, &before) == 0 && before.sa_sigaction == pass_on) {
      signal(number, SIG_DFL);
    }
  }
}

/// From /proc/PID/stat: the process that started it, and its name; 0 if that cannot be told.
pid_t parent_and_name(pid_t process, char (&name)[16]) {
  char path[32];
  char text[128] = {};  // of which a name may have 15 letters, and any
  snprintf(path, sizeof path, "/proc/%d/stat", static_cast<int>(process));
  FILE* file = fopen(path, "re");
  if (file == nullptr) {
    return 0;
  }
  (void)!fread(text, 1, sizeof text - 1, file);
  fclose(file);
  const char* begin = strchr(text, '(');
  const char* end = strrchr(text, ')');
  int parent = 0;
  if (begin == nullptr || end == nullptr || sscanf(end + 1, " %*c %d", &parent) != 1) {
    return 0;
  }
  snprintf(name, sizeof name, "%.*s", static_cast<int>(end - begin - 1), begin + 1);
  return parent;
}

/// Whether srun has started this process, and Slurm will signal it by its process group or ancestry, which are the program's,
/// too. Where Slurm knows a step's processes by their cgroup it signals those alone that it has started itself, and of a batch
/// script the first one alone.
bool slurm_signals_all() {
  constexpr unsigned long kFirstSpecialStep = 0xffff'fff0;  // batch scripts and interactive shells
  const char* step = getenv("SLURM_STEP_ID");
  if (step == nullptr || strtoul(step, nullptr, 10) >= kFirstSpecialStep) {
    return false;
  }
  FILE* file = fopen("/proc/self/cgroup", "re");
  if (file == nullptr) {
    return true;
  }
  char line[512];
  bool by_cgroup = false;
  while (fgets(line, sizeof line, file) != nullptr) {
    const bool tracks = strncmp(line, "0::", 3) == 0 || strstr(line, ":freezer:") != nullptr;
    by_cgroup = by_cgroup || (tracks && strstr(line, "/job_") != nullptr);
  }
  fclose(file);
  return !by_cgroup;
}

/// The process that has started this one as a rank, if it sends its signals to the program, too: a launcher that gave us a
/// process group, or Slurm. A shell in a rank's place is none.
pid_t find_launcher() {
  constexpr int kMostWrappers = 8;
  pid_t process = launched_rank() != nullptr ? getppid() : 0;
  for (int above = 0; process > 1 && above < kMostWrappers; ++above) {
    char name[16] = {};
    const pid_t parent = parent_and_name(process, name);
    if (strcmp(name, "slurmstepd") == 0) {
      return slurm_signals_all() ? process : 0;
    }
    if (headroom::base::is_launcher_name(name)) {
      return above == 0 && getpgrp() == getpid() ? process : 0;
    }
    process = parent;
  }
  return 0;
}

const char* cause(int number) {
  switch (number) {
    case SIGKILL:
      return "by the kernel because memory ran out (then lower --memory, or raise the job's limit), or by somebody";
    case SIGBUS:
      return "an access to memory that the system could not provide";
    case SIGTERM:
      return "the job was told to stop: by somebody, by its launcher because another rank failed, or by the batch system at "
             "the job's time limit";
    case SIGSEGV:
    case SIGABRT:
    case SIGFPE:
    case SIGILL:
      return "a crash of the program";
    default:
      return "sent by somebody";
  }
}

/// A file in memory for the preloaded library's signature; its descriptor lies out of the way of the program's own numbers.
int open_signature() {
  const int low = memfd_create("headroom-signature", MFD_CLOEXEC);
  const int high = low >= 0 ? fcntl(low, F_DUPFD, 200) : -1;
  close(low);
  return high;
}

int64_t now_ms() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1'000'000;
}

// A program that ends sooner may have ended in the constructor of a library, which comes before the preloaded one's.
constexpr int64_t kWorthSayingMs = 1000;

/// `ran_ms`: for how long the program did.
void warn_if_nobody_signed(int signature, const char* name, int64_t ran_ms) {
  struct stat status = {};
  const char* active = getenv("HEADROOM_ACTIVE");
  const bool is_known = active != nullptr && strcmp(active, "not") == 0;
  if (is_known || ran_ms < kWorthSayingMs || !is_first_of_node() || signature < 0 || fstat(signature, &status) != 0 ||
      status.st_size > 0) {
    return;
  }
  const char* rank = launched_rank();
  fprintf(stderr,
          "headroom: warning: %s%s: %s ran without Headroom, whose library did not begin in it: it is linked statically, built "
          "for another processor, runs with other privileges, or did all its work in a constructor\n",
          rank != nullptr ? "rank " : "the program", rank != nullptr ? rank : "", name);
}

void explain(int number, const char* name) {
  const char* rank = launched_rank();
  char line[4096 + 512];  // a path and the text about it; the part that does not fit is left out
  int length = snprintf(line, sizeof line, "headroom: error: %s%s (process %d, %s) was ended by signal %d (%s): %s\n",
                        rank != nullptr ? "rank " : "the program", rank != nullptr ? rank : "", static_cast<int>(program), name,
                        number, strsignal(number), cause(number));
  if (length >= static_cast<int>(sizeof line)) {
    length = sizeof line - 1;
    line[length - 1] = '\n';
  }
  (void)!write(STDERR_FILENO, line, static_cast<size_t>(length));
}

/// A user who stops a job at the terminal knows it; of all the ranks that a launcher tells to stop, one says so.
bool is_worth_saying(int number) {
  if (number == SIGTERM) {
    const char* rank = launched_rank();
    return rank == nullptr || strcmp(rank, "0") == 0;
  }
  return number != SIGINT && number != SIGHUP && number != SIGPIPE;
}

/// Its status. Meanwhile takes the ledgers that its processes hand in. `children`: tells that the program may have ended; -1:
/// nothing does.
int wait_for_program(int children, int figures) {
  int status = 0;
  for (;;) {
    const pid_t ended = waitpid(program, &status, children >= 0 ? WNOHANG : 0);
    if (ended == program || (ended < 0 && errno != EINTR)) {
      return status;
    }
    if (children < 0) {
      continue;
    }
    pollfd watched[2] = {{children, POLLIN, 0}, {figures, POLLIN, 0}};
    (void)poll(watched, 2, -1);
    if (watched[0].revents != 0) {
      signalfd_siginfo taken;
      (void)!read(children, &taken, sizeof taken);
    }
    if (watched[1].revents != 0) {
      headroom::supervise::take_figures(figures);
    }
  }
}

[[noreturn]] void end_by_signal(int number) {
  const rlimit no_core = {0, 0};  // the program has dumped already, if it was to
  setrlimit(RLIMIT_CORE, &no_core);
  signal(number, SIG_DFL);
  raise(number);
  _exit(128 + number);
}

}  // namespace

int main(int count, char** words) {
  if (count < 3) {
    fprintf(stderr, "usage: headroom-supervise LD_PRELOAD PROGRAM [ARGUMENT...]\n");
    return 2;
  }
  const pid_t parent = getpid();
  launcher = find_launcher();
  // A signal that comes before the program is there waits until it is.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);
  struct sigaction of_children = {};  // ignored, the program's end would leave no status
  sigaction(SIGCHLD, nullptr, &of_children);
  signal(SIGCHLD, SIG_DFL);
  pass_signals_on();
  const int signature = open_signature();
  const int figures = headroom::supervise::open_figures();
  sigset_t of_child;
  sigemptyset(&of_child);
  sigaddset(&of_child, SIGCHLD);
  const int children = signalfd(-1, &of_child, SFD_CLOEXEC | SFD_NONBLOCK);
  program = fork();
  if (program == 0) {
    pass_no_signals_on();
    sigaction(SIGCHLD, &of_children, nullptr);
    sigprocmask(SIG_SETMASK, &before, nullptr);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
      _exit(1);
    }
    setenv("LD_PRELOAD", words[1], 1);
    char number[16];
    snprintf(number, sizeof number, "%d", signature);
    setenv("HEADROOM_ACTIVE", number, 1);
    execvp(words[2], words + 2);
    fprintf(stderr, "headroom: error: %s: %s\n", words[2], strerror(errno));
    _exit(errno == ENOENT ? 127 : 126);
  }
  if (program < 0) {
    fprintf(stderr, "headroom: error: cannot start %s: %s (see `ulimit -u`)\n", words[2], strerror(errno));
    return 2;
  }
  const int64_t began_ms = now_ms();
  sigaddset(&before, SIGCHLD);  // which is read from `children`
  sigprocmask(SIG_SETMASK, &before, nullptr);
  const int status = wait_for_program(children, figures);
  if (!WIFSIGNALED(status)) {
    headroom::supervise::see_to_figures(figures);
    if (WEXITSTATUS(status) != 126 && WEXITSTATUS(status) != 127) {
      warn_if_nobody_signed(signature, words[2], now_ms() - began_ms);
    }
    return WEXITSTATUS(status);
  }
  const int number = WTERMSIG(status);
  if (is_worth_saying(number)) {
    explain(number, words[2]);
  }
  end_by_signal(number);
}
