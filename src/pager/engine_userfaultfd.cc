// The two userfaultfd engines, and the choice of engine; see engine.h.
//
// Registered for missing, minor and write-protect faults. A page that UFFDIO_CONTINUE maps is writable at once unless
// UFFDIO_CONTINUE_MODE_WP is given, and then every block that was only read would look dirty; so clean blocks are always
// mapped with it. CONTINUE may find some pages of a range mapped already (EEXIST): it then goes on after them. Where
// write-protection was in the page table before (a marker stays when memory is taken away), CONTINUE replaces it.
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <new>

#include "base/kernel_abi.h"
#include "base/log.h"
#include "base/own_descriptors.h"
#include "base/system_calls.h"
#include "pager/engine.h"
#include "pager/fork.h"

namespace headroom::pager {
namespace {

using arena::View;
using base::EngineChoice;
using base::Status;
using base::system_call;

constexpr uint64_t kFeatures = UFFD_FEATURE_MISSING_SHMEM | UFFD_FEATURE_MINOR_SHMEM | UFFD_FEATURE_PAGEFAULT_FLAG_WP |
                               UFFD_FEATURE_WP_HUGETLBFS_SHMEM | UFFD_FEATURE_WP_UNPOPULATED | UFFD_FEATURE_THREAD_ID;

/// Probe order: the device (since 6.1), the system call, the system call for user mode only.
int open_userfaultfd(bool user_mode_only) {
  const int flags = O_CLOEXEC | O_NONBLOCK;
  if (user_mode_only) {
    return base::own(system_call(SYS_userfaultfd, flags | UFFD_USER_MODE_ONLY));
  }
  const long device = system_call(SYS_openat, AT_FDCWD, "/dev/userfaultfd", O_RDWR | O_CLOEXEC);
  if (!base::is_error(device)) {
    const long descriptor = system_call(SYS_ioctl, device, USERFAULTFD_IOC_NEW, flags);
    (void)system_call(SYS_close, device);
    if (!base::is_error(descriptor)) {
      return base::own(descriptor);
    }
  }
  return base::own(system_call(SYS_userfaultfd, flags));
}

bool too_old = false;  // a userfaultfd could be had, but it cannot do what is needed

/// Tells the kernel what is needed; false if it cannot do that: one before 6.4 lacks write-protection of unpopulated shared
/// memory.
bool can_do_what_is_needed(int descriptor) {
  uffdio_api api = {};
  api.api = UFFD_API;
  api.features = kFeatures;
  return !base::is_error(system_call(SYS_ioctl, descriptor, UFFDIO_API, &api));
}

class UserfaultfdEngine final : public FaultEngine {
 public:
  bool open(bool user_mode_only) {
    user_mode_only_ = user_mode_only;
    descriptor_ = open_userfaultfd(user_mode_only);
    if (descriptor_ < 0) {
      return false;
    }
    if (!can_do_what_is_needed(descriptor_)) {
      base::close_own(descriptor_);
      too_old = true;
      return false;
    }
    return true;
  }

  Status cover(View view) override {
    uffdio_register request = {};
    request.range = {view.address, view.bytes};
    request.mode = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_MINOR | UFFDIO_REGISTER_MODE_WP;
    const long result = system_call(SYS_ioctl, descriptor_, UFFDIO_REGISTER, &request);
    if (base::is_error(result)) {
      if (result == -EBUSY) {
        base::log_warning(
            "a userfaultfd of the program's own watches %llu MiB of memory that may be moved to storage; raise --large above "
            "the "
            "size of that allocation",
            static_cast<unsigned long long>(view.bytes >> 20));
        return Status::kUnavailable;
      }
      base::log_warning(
          "userfaultfd cannot watch %llu MiB at %#lx: %s; the kernel is short of memory or mappings: raise "
          "vm.max_map_count, or use --engine sigsegv",
          static_cast<unsigned long long>(view.bytes >> 20), view.address, strerror(static_cast<int>(-result)));
      return Status::kUnavailable;
    }
    return Status::kOk;
  }

  void map(View view, bool writable) override {
    bool some_present = false;
    in_pieces(view, "map a block", [&](View piece, uint64_t* done) {
      uffdio_continue request = {};
      request.range = {piece.address, piece.bytes};
      request.mode = writable ? 0 : UFFDIO_CONTINUE_MODE_WP;
      const long result = system_call(SYS_ioctl, descriptor_, UFFDIO_CONTINUE, &request);
      if (result != -EEXIST && result != -EAGAIN) {
        return result;
      }
      some_present = some_present || result == -EEXIST;
      *done = request.mapped > 0 ? static_cast<uint64_t>(request.mapped) : 0;
      *done += result == -EEXIST ? arena::kPageBytes : 0;
      return 0L;
    });
    // Only where it must be: changing protection takes the right to write away from pages that have it (the kernel's protection
    // for such mappings has no write bit), and each page then faults once more.
    if (some_present) {
      set_protection(view, !writable);
    }
  }

  uint64_t fill(View view, const char* content, bool writable) override {
    uint64_t done = 0;
    while (done < view.bytes) {
      uffdio_copy request = {};
      request.dst = view.address + done;
      request.src = reinterpret_cast<uint64_t>(content) + done;
      request.len = view.bytes - done;
      request.mode = writable ? 0 : UFFDIO_COPY_MODE_WP;
      const long result = system_call(SYS_ioctl, descriptor_, UFFDIO_COPY, &request);
      done += request.copy > 0 ? static_cast<uint64_t>(request.copy) : 0;
      if (result != 0 && result != -EAGAIN && result != -EINTR) {
        break;  // a page is there already, or the program has changed rights on a part: map() can deal with that
      }
    }
    return done;
  }

  void protect(View view) override { set_protection(view, true); }
  void unprotect(View view) override { set_protection(view, false); }
  void hide(View view) override { (void)system_call(SYS_madvise, view.address, view.bytes, MADV_DONTNEED); }
  void conceal(View) override {}  // punching takes the page table entries away in all mappings

  void wake(View view) override {
    uffdio_range range = {view.address, view.bytes};
    (void)system_call(SYS_ioctl, descriptor_, UFFDIO_WAKE, &range);
  }

  [[nodiscard]] int descriptor() const override { return descriptor_; }

  int read_faults(Fault* out, int most) override {
    uffd_msg messages[16];
    const int room = std::min(most, 16);
    const long bytes = system_call(SYS_read, descriptor_, messages, sizeof(uffd_msg) * static_cast<size_t>(room));
    int found = 0;
    for (long at = 0; at < bytes; at += static_cast<long>(sizeof(uffd_msg))) {
      const uffd_msg& message = messages[static_cast<size_t>(at) / sizeof(uffd_msg)];
      if (message.event != UFFD_EVENT_PAGEFAULT) {
        continue;
      }
      const bool write = (message.arg.pagefault.flags & (UFFD_PAGEFAULT_FLAG_WRITE | UFFD_PAGEFAULT_FLAG_WP)) != 0;
      out[found++] = {static_cast<uintptr_t>(message.arg.pagefault.address),
                      static_cast<int32_t>(message.arg.pagefault.feat.ptid), write};
    }
    return found;
  }

  [[nodiscard]] bool serves_kernel() const override { return !user_mode_only_; }
  [[nodiscard]] EngineChoice kind() const override {
    return user_mode_only_ ? EngineChoice::kUserfaultfdUser : EngineChoice::kUserfaultfd;
  }

 private:
  /// Does `operation` on all of `view`. A range that crosses a border between kernel mappings (the program may have changed
  /// rights on a part) is refused as a whole; it then goes in smaller pieces, down to a page. `operation(piece, &done)` returns
  /// 0 or a negative errno; it lowers `done` if it got through a part of its piece only.
  template <typename Operation>
  void in_pieces(View view, const char* what, Operation operation) {
    uint64_t at = 0;
    uint64_t step = view.bytes;
    while (at < view.bytes) {
      const uint64_t left = view.bytes - at;
      step = std::min(step, left);
      uint64_t done = step;
      const long result = operation(View{view.address + at, step}, &done);
      if (result == 0) {
        at += done;
        step = view.bytes;
      } else if (result == -ENOENT && step > arena::kPageBytes) {
        step = smaller(step);
      } else if (result != -EAGAIN && result != -EINTR) {
        base::die(
            "userfaultfd cannot %s (%llu KiB at %#lx): %s; the kernel is short of memory (lower --memory), or the program has "
            "put another mapping there by a call of its own (use --engine sigsegv)",
            what, static_cast<unsigned long long>(step >> 10), view.address + at, strerror(static_cast<int>(-result)));
      }
    }
  }

  /// Always whole pages: a view of static data may have any number of them.
  static uint64_t smaller(uint64_t step) {
    return step > arena::kBlockBytes       ? arena::kBlockBytes
           : step > 16 * arena::kPageBytes ? step / 4 / arena::kPageBytes * arena::kPageBytes
                                           : arena::kPageBytes;
  }

  void set_protection(View view, bool protect) {
    in_pieces(view, "change write protection", [&](View piece, uint64_t*) {
      uffdio_writeprotect request = {};
      request.range = {piece.address, piece.bytes};
      request.mode = protect ? UFFDIO_WRITEPROTECT_MODE_WP : 0;
      return system_call(SYS_ioctl, descriptor_, UFFDIO_WRITEPROTECT, &request);
    });
  }

  int descriptor_ = -1;
  bool user_mode_only_ = false;
};

}  // namespace

int open_child_userfaultfd(bool user_mode_only) {
  const int descriptor = open_userfaultfd(user_mode_only);
  uffdio_api api = {};
  api.api = UFFD_API;
  api.features = UFFD_FEATURE_MISSING_SHMEM | UFFD_FEATURE_MINOR_SHMEM;
  if (descriptor >= 0 && base::is_error(system_call(SYS_ioctl, descriptor, UFFDIO_API, &api))) {
    base::close_own(descriptor);
    return -1;
  }
  return descriptor;
}

FaultEngine* make_userfaultfd_engine(bool user_mode_only) {
  alignas(UserfaultfdEngine) static char places[2][sizeof(UserfaultfdEngine)];
  auto* engine = new (places[user_mode_only ? 1 : 0]) UserfaultfdEngine;
  return engine->open(user_mode_only) ? engine : nullptr;
}

namespace {

void die_if_too_old(const char* engine) {
  if (too_old) {
    base::die("--engine %s: this kernel's userfaultfd cannot watch shared memory for writes (Linux 6.4 can); use --engine auto",
              engine);
  }
}

}  // namespace

bool may_have_engine_that_serves_kernel() {
  const EngineChoice wanted = base::settings().engine;
  if (wanted != EngineChoice::kAuto) {
    return wanted == EngineChoice::kUserfaultfd;  // or the process will not start
  }
  const int descriptor = open_userfaultfd(false);
  const bool can = descriptor >= 0 && can_do_what_is_needed(descriptor);
  if (descriptor >= 0) {
    base::close_own(descriptor);
  }
  return can;
}

FaultEngine* make_engine() {
  const EngineChoice wanted = base::settings().engine;
  const bool any = wanted == EngineChoice::kAuto;
  FaultEngine* engine = nullptr;
  if (any || wanted == EngineChoice::kUserfaultfd) {
    engine = make_userfaultfd_engine(false);
    if (engine == nullptr && !any) {
      die_if_too_old("userfaultfd");
      base::die(
          "--engine userfaultfd: the kernel refuses it to this user; root can allow it with `sysctl "
          "vm.unprivileged_userfaultfd=1` or by making /dev/userfaultfd readable; or use --engine auto");
    }
  }
  if (engine == nullptr && (any || wanted == EngineChoice::kUserfaultfdUser)) {
    base::log_debug(base::Part::kPager, "userfaultfd that serves the kernel: %s",
                    !any      ? "not asked for"
                    : too_old ? "this kernel is too old"
                              : "refused to this user");
    engine = make_userfaultfd_engine(true);
    if (engine == nullptr && !any) {
      die_if_too_old("userfaultfd-user");
      base::die(
          "--engine userfaultfd-user: the kernel (6.4 or newer is needed) or the container's "
          "seccomp profile refuses it; use --engine auto");
    }
  }
  if (engine == nullptr) {
    base::log_debug(base::Part::kPager, "userfaultfd: %s",
                    !any      ? "not asked for"
                    : too_old ? "this kernel is too old"
                              : "refused by the kernel or a seccomp profile");
    engine = make_sigsegv_engine();
  }
  return engine;
}

}  // namespace headroom::pager
