// Calls that are given a structure or a short list, or return one: clocks, usage, addresses of sockets, pairs of descriptors,
// sets of signals and processors. It may lie in evictable memory, see held_arguments.h. Not clock_gettime(): nearly all its
// clocks are read in user space, and it is called often.
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/times.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "heap/held_arguments.h"
#include "pager/pager.h"

namespace {

using namespace headroom;
using heap::HeldAddress;
using heap::HeldArgument;
using heap::HeldOut;

template <typename T>
struct HeldIn : HeldArgument {
  explicit HeldIn(const T* in, size_t count = 1) : HeldArgument(in, count * sizeof(T), false) {}
};

HEADROOM_REAL(getrusage);
HEADROOM_REAL(times);
HEADROOM_REAL(sysinfo);
HEADROOM_REAL(uname);
HEADROOM_REAL(nanosleep);
HEADROOM_REAL(clock_nanosleep);
HEADROOM_REAL(getitimer);
HEADROOM_REAL(setitimer);
HEADROOM_REAL(sched_getaffinity);
HEADROOM_REAL(sched_setaffinity);
HEADROOM_REAL(getgroups);
HEADROOM_REAL(mincore);
HEADROOM_REAL(pipe);
HEADROOM_REAL(pipe2);
HEADROOM_REAL(socketpair);
HEADROOM_REAL(bind);
HEADROOM_REAL(connect);
HEADROOM_REAL(accept);
HEADROOM_REAL(accept4);
HEADROOM_REAL(getsockname);
HEADROOM_REAL(getpeername);
HEADROOM_REAL(epoll_ctl);
HEADROOM_REAL(epoll_pwait);
HEADROOM_REAL(pselect);
HEADROOM_REAL(sigpending);
HEADROOM_REAL(sigsuspend);
HEADROOM_REAL(sigwait);
HEADROOM_REAL(sigwaitinfo);
HEADROOM_REAL(sigtimedwait);

}  // namespace

HEADROOM_EXPORT int getrusage(__rusage_who_t who, rusage* out) noexcept {
  const HeldOut held(out);
  return real_getrusage.get()(who, out);
}
HEADROOM_EXPORT clock_t times(tms* out) noexcept {
  const HeldOut held(out);
  return real_times.get()(out);
}
HEADROOM_EXPORT int sysinfo(struct sysinfo* out) noexcept {
  const HeldOut held(out);
  return real_sysinfo.get()(out);
}
HEADROOM_EXPORT int uname(utsname* out) noexcept {
  const HeldOut held(out);
  return real_uname.get()(out);
}
HEADROOM_EXPORT int nanosleep(const timespec* wanted, timespec* left) {
  const HeldIn held(wanted);
  const HeldOut held_left(left);
  return real_nanosleep.get()(wanted, left);
}
HEADROOM_EXPORT int clock_nanosleep(clockid_t clock, int flags, const timespec* wanted, timespec* left) {
  const HeldIn held(wanted);
  const HeldOut held_left(left);
  return real_clock_nanosleep.get()(clock, flags, wanted, left);
}
HEADROOM_EXPORT int getitimer(__itimer_which_t which, itimerval* out) noexcept {
  const HeldOut held(out);
  return real_getitimer.get()(which, out);
}
HEADROOM_EXPORT int setitimer(__itimer_which_t which, const itimerval* wanted, itimerval* before) noexcept {
  const HeldIn held(wanted);
  const HeldOut held_before(before);
  return real_setitimer.get()(which, wanted, before);
}
HEADROOM_EXPORT int sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t* out) noexcept {
  const HeldArgument held(out, bytes, true);
  return real_sched_getaffinity.get()(pid, bytes, out);
}
HEADROOM_EXPORT int sched_setaffinity(pid_t pid, size_t bytes, const cpu_set_t* set) noexcept {
  const HeldArgument held(set, bytes, false);
  return real_sched_setaffinity.get()(pid, bytes, set);
}
HEADROOM_EXPORT int getgroups(int most, gid_t out[]) noexcept {
  const HeldOut held(out, most > 0 ? static_cast<size_t>(most) : 0);
  return real_getgroups.get()(most, out);
}
HEADROOM_EXPORT int mincore(void* address, size_t bytes, unsigned char* out) noexcept {
  const HeldOut held(out, (bytes + arena::kPageBytes - 1) / arena::kPageBytes);
  return real_mincore.get()(address, bytes, out);
}

HEADROOM_EXPORT int pipe(int ends[2]) noexcept {
  const HeldOut held(ends, 2);
  return real_pipe.get()(ends);
}
HEADROOM_EXPORT int pipe2(int ends[2], int flags) noexcept {
  const HeldOut held(ends, 2);
  return real_pipe2.get()(ends, flags);
}
HEADROOM_EXPORT int socketpair(int domain, int type, int protocol, int ends[2]) noexcept {
  const HeldOut held(ends, 2);
  return real_socketpair.get()(domain, type, protocol, ends);
}
HEADROOM_EXPORT int bind(int socket, const sockaddr* address, socklen_t bytes) noexcept {
  const HeldArgument held(address, bytes, false);
  return real_bind.get()(socket, address, bytes);
}
HEADROOM_EXPORT int connect(int socket, const sockaddr* address, socklen_t bytes) {
  const HeldArgument held(address, bytes, false);
  return real_connect.get()(socket, address, bytes);
}
HEADROOM_EXPORT int accept(int socket, sockaddr* address, socklen_t* bytes) {
  const HeldAddress held(address, bytes);
  return real_accept.get()(socket, address, bytes);
}
HEADROOM_EXPORT int accept4(int socket, sockaddr* address, socklen_t* bytes, int flags) {
  const HeldAddress held(address, bytes);
  return real_accept4.get()(socket, address, bytes, flags);
}
HEADROOM_EXPORT int getsockname(int socket, sockaddr* address, socklen_t* bytes) noexcept {
  const HeldAddress held(address, bytes);
  return real_getsockname.get()(socket, address, bytes);
}
HEADROOM_EXPORT int getpeername(int socket, sockaddr* address, socklen_t* bytes) noexcept {
  const HeldAddress held(address, bytes);
  return real_getpeername.get()(socket, address, bytes);
}
HEADROOM_EXPORT int epoll_ctl(int file, int operation, int descriptor, epoll_event* event) noexcept {
  const HeldIn held(event);
  return real_epoll_ctl.get()(file, operation, descriptor, event);
}
HEADROOM_EXPORT int epoll_pwait(int file, epoll_event* events, int most, int timeout, const sigset_t* mask) {
  const HeldOut held(events, most > 0 ? static_cast<size_t>(most) : 0);
  const HeldIn held_mask(mask);
  sigset_t place;
  return real_epoll_pwait.get()(file, events, most, timeout, pager::without_fault_signal(mask, place));
}
HEADROOM_EXPORT int pselect(int count, fd_set* in, fd_set* out, fd_set* other, const timespec* timeout, const sigset_t* mask) {
  const size_t bytes = (static_cast<size_t>(std::max(count, 0)) + 63) / 64 * 8;
  const HeldArgument held_in(in, bytes, true);
  const HeldArgument held_out(out, bytes, true);
  const HeldArgument held_other(other, bytes, true);
  const HeldIn held_timeout(timeout);
  const HeldIn held_mask(mask);
  sigset_t place;
  return real_pselect.get()(count, in, out, other, timeout, pager::without_fault_signal(mask, place));
}

HEADROOM_EXPORT int sigpending(sigset_t* out) noexcept {
  const HeldOut held(out);
  return real_sigpending.get()(out);
}
HEADROOM_EXPORT int sigsuspend(const sigset_t* mask) {
  const HeldIn held(mask);
  sigset_t place;
  return real_sigsuspend.get()(pager::without_fault_signal(mask, place));
}
HEADROOM_EXPORT int sigwait(const sigset_t* set, int* number) {
  const HeldIn held(set);
  const HeldOut held_number(number);
  return real_sigwait.get()(set, number);
}
HEADROOM_EXPORT int sigwaitinfo(const sigset_t* set, siginfo_t* out) {
  const HeldIn held(set);
  const HeldOut held_out(out);
  return real_sigwaitinfo.get()(set, out);
}
HEADROOM_EXPORT int sigtimedwait(const sigset_t* set, siginfo_t* out, const timespec* timeout) {
  const HeldIn held(set);
  const HeldOut held_out(out);
  const HeldIn held_timeout(timeout);
  return real_sigtimedwait.get()(set, out, timeout);
}
