// The limits that a program sets itself, where they would be limits of Headroom's means.
//
// RLIMIT_AS counts addresses: Headroom reserves far more than it uses, so the next mapping would fail, a thread's stack say,
// however little the program has. RLIMIT_FSIZE limits the storage, and the kernel kills a process that goes beyond it. So the
// program is told the values again that it sets for these two when it asks, but a lower one is in effect only for programs that
// it executes (by exec; not for those that posix_spawn() and system() start); a warning says so once. A limit that was there
// from the start is in effect (arena/arena.cc looks at it). All other limits are the kernel's.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "base/log.h"
#include "base/system_calls.h"
#include "heap/held_arguments.h"
#include "heap/leaving.h"
#include "heap/limits.h"

namespace {

using namespace headroom;

HEADROOM_REAL(prlimit);

struct KeptLimit {
  int which;
  const char* name;
  std::atomic<bool> set;  // released once `limit` is there
  rlimit limit;
};
KeptLimit kept[2] = {{RLIMIT_AS, "RLIMIT_AS (ulimit -v)", false, {}}, {RLIMIT_FSIZE, "RLIMIT_FSIZE (ulimit -f)", false, {}}};
base::FutexLock kept_lock;

KeptLimit* kept_limit(int which) {
  for (KeptLimit& each : kept) {
    if (each.which == which && (pager::is_running() || pager::is_forked_child())) {
      return &each;
    }
  }
  return nullptr;
}

/// As the kernel would judge it.
int check(const rlimit& wanted, const rlimit& before) {
  return wanted.rlim_cur > wanted.rlim_max ? EINVAL : wanted.rlim_max > before.rlim_max && geteuid() != 0 ? EPERM : 0;
}

int change_kept(KeptLimit& limit, const rlimit* wanted, rlimit* before) {
  const base::LockHolder lock(kept_lock);
  const auto which = static_cast<__rlimit_resource>(limit.which);
  rlimit in_effect = {};
  if (real_prlimit.get()(0, which, nullptr, &in_effect) != 0) {
    return -1;
  }
  const rlimit now = limit.set ? limit.limit : in_effect;
  if (wanted != nullptr) {
    if (const int error = check(*wanted, now); error != 0) {
      errno = error;
      return -1;
    }
    if (wanted->rlim_cur < in_effect.rlim_cur && !limit.set) {
      base::log_warning(
          "the program limits itself by %s; that would limit Headroom's reserved addresses and its storage too, so it is in "
          "effect only for programs that this one executes; `headroom run --memory` is what limits this one",
          limit.name);
    }
    if (wanted->rlim_cur > in_effect.rlim_cur) {  // a higher limit is in effect at once
      const rlimit more = {wanted->rlim_cur, std::max(wanted->rlim_max, in_effect.rlim_max)};
      if (real_prlimit.get()(0, which, &more, nullptr) != 0) {
        return -1;
      }
    }
    limit.limit = *wanted;
    limit.set.store(true, std::memory_order_release);
  }
  if (before != nullptr) {
    *before = now;
  }
  return 0;
}

int change(pid_t pid, int which, const rlimit* wanted, rlimit* before) {
  KeptLimit* limit = pid == 0 || pid == getpid() ? kept_limit(which) : nullptr;
  if (limit != nullptr) {
    return change_kept(*limit, wanted, before);
  }
  const heap::HeldArgument held(wanted, sizeof *wanted, false);
  const heap::HeldOut held_before(before);
  return real_prlimit.get()(pid, static_cast<__rlimit_resource>(which), wanted, before);
}

/// Whether there are any that are not in effect.
bool has_kept_limits() { return kept[0].set.load(std::memory_order_acquire) || kept[1].set.load(std::memory_order_acquire); }

}  // namespace

namespace headroom::heap {

LimitsInEffect::LimitsInEffect() {
  if (!has_kept_limits()) {
    return;
  }
  if (has_pager()) {
    if (pager::covers(__builtin_frame_address(0))) {
      base::log_warning("what is executed by a thread whose stack may be moved to storage does not have this program's limits");
      return;
    }
    asker_ = pager::stand_still();
    stands_still_ = true;
  }
  for (int index = 0; index < 2; ++index) {
    Change& change = changes_[index];
    if (kept[index].set.load(std::memory_order_acquire)) {
      const auto which = static_cast<__rlimit_resource>(kept[index].which);
      change.after = kept[index].limit;
      change.done = real_prlimit.get()(0, which, &change.after, &change.before) == 0;
    }
  }
}

LimitsInEffect::~LimitsInEffect() {
  const int saved_errno = errno;
  for (int index = 0; index < 2; ++index) {
    const Change& change = changes_[index];
    const auto which = static_cast<__rlimit_resource>(kept[index].which);
    if (change.done && real_prlimit.get()(0, which, &change.before, nullptr) != 0) {  // a user who may not raise it again
      const rlim_t most = change.after.rlim_max;
      const rlimit back = {std::min(change.before.rlim_cur, most), most};
      (void)real_prlimit.get()(0, which, &back, nullptr);
    }
  }
  if (stands_still_) {
    pager::go_on(asker_);
  }
  errno = saved_errno;
}

}  // namespace headroom::heap

// On 64-bit systems rlimit64 is rlimit.
HEADROOM_EXPORT int prlimit(pid_t pid, __rlimit_resource which, const rlimit* wanted, rlimit* before) noexcept {
  return change(pid, which, wanted, before);
}
HEADROOM_EXPORT int prlimit64(pid_t pid, __rlimit_resource which, const rlimit64* wanted, rlimit64* before) noexcept {
  return change(pid, which, reinterpret_cast<const rlimit*>(wanted), reinterpret_cast<rlimit*>(before));
}
HEADROOM_EXPORT int setrlimit(__rlimit_resource_t which, const rlimit* wanted) noexcept {
  return change(0, which, wanted, nullptr);
}
HEADROOM_EXPORT int setrlimit64(__rlimit_resource_t which, const rlimit64* wanted) noexcept {
  return change(0, which, reinterpret_cast<const rlimit*>(wanted), nullptr);
}
HEADROOM_EXPORT int getrlimit(__rlimit_resource_t which, rlimit* out) noexcept { return change(0, which, nullptr, out); }
HEADROOM_EXPORT int getrlimit64(__rlimit_resource_t which, rlimit64* out) noexcept {
  return change(0, which, nullptr, reinterpret_cast<rlimit*>(out));
}
