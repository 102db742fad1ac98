// See attach.h.
#include "direct/attach.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstring>

#include "base/system_calls.h"

namespace headroom::direct {
namespace {

using base::system_call;

constexpr int kParts = 64;                    // pieces a call
constexpr uint64_t kMostAtOnce = 1 << 30;     // the kernel stops below 2 GiB
constexpr uint64_t kBounceBytes = 16 << 10;   // on the stack
constexpr uint64_t kSuitablePiece = 4 << 10;  // gathering shorter ones costs less than having the kernel find their pages

/// The pieces of one side of a call.
class Parts {
 public:
  /// False if there is no room for another.
  bool add(char* piece, uint64_t bytes) {
    if (count_ > 0) {
      iovec& last = parts_[count_ - 1];
      if (static_cast<char*>(last.iov_base) + last.iov_len == piece) {
        last.iov_len += bytes;
        return true;
      }
    }
    if (count_ == kParts) {
      return false;
    }
    parts_[count_++] = {piece, bytes};
    return true;
  }
  [[nodiscard]] const iovec* data() const { return parts_; }
  [[nodiscard]] int count() const { return count_; }

 private:
  iovec parts_[kParts];
  int count_ = 0;
};

/// One call for as much of `bytes` as it can do; how much was copied, or 0.
uint64_t copy_at_once(Walk& to, Walk& from, uint64_t bytes, const Way& way) {
  Parts targets;
  Parts sources;
  Walk target = to;
  Walk source = from;
  const uint64_t most = std::min(bytes, kMostAtOnce);
  for (uint64_t listed = 0; listed < most;) {
    uint64_t part = std::min(target.piece_bytes(), source.piece_bytes());
    part = std::min(part, most - listed);
    if (!targets.add(target.piece(), part) || !sources.add(source.piece(), part)) {
      break;  // a piece that only one side has does no harm: the call ends with the shorter side
    }
    target.pass(part);
    source.pass(part);
    listed += part;
  }
  const bool reads = way.reach == Reach::kFromOther;
  const Parts& own = reads ? targets : sources;
  const Parts& other = reads ? sources : targets;
  const long copied = system_call(reads ? SYS_process_vm_readv : SYS_process_vm_writev, way.pid, own.data(), own.count(),
                                  other.data(), other.count(), 0);
  if (base::is_error(copied)) {
    return 0;
  }
  to.skip(static_cast<uint64_t>(copied));
  from.skip(static_cast<uint64_t>(copied));
  return static_cast<uint64_t>(copied);
}

/// Copies all of it; false if the other process's memory cannot be reached.
bool copy_fully(Walk& to, Walk& from, uint64_t bytes, const Way& way) {
  while (bytes > 0) {
    const uint64_t copied = copy_at_once(to, from, bytes, way);
    if (copied == 0) {
      return false;
    }
    bytes -= copied;
  }
  return true;
}

/// Copies the next bytes by way of the stack: this process's own memory may be out on storage, or hidden, and of the kind that
/// the kernel cannot bring in. 0: the other process's cannot be reached.
uint64_t copy_by_bounce(Walk& to, Walk& from, uint64_t bytes, const Way& way) {
  char bounce[kBounceBytes];
  const uint64_t part = std::min(bytes, kBounceBytes);
  memset(bounce, 0, part);  // stacks may be of that kind too
  Walk into({bounce, part, nullptr});
  Walk again({bounce, part, nullptr});
  if (way.reach == Reach::kToOther) {
    copy(into, from, part);
    return copy_fully(to, again, part, way) ? part : 0;
  }
  if (!copy_fully(into, from, part, way)) {
    return 0;
  }
  copy(to, again, part);
  return part;
}

}  // namespace

void allow_attaching() {
  constexpr char kScope[] = "/proc/sys/kernel/yama/ptrace_scope";
  const long file = system_call(SYS_openat, AT_FDCWD, kScope, O_RDONLY | O_CLOEXEC, 0);
  if (base::is_error(file)) {
    return;
  }
  char scope = '0';
  (void)system_call(SYS_read, file, &scope, 1);
  (void)system_call(SYS_close, file);
  if (scope == '1') {
    (void)system_call(SYS_prctl, PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  }
}

bool can_attach(int pid, const void* address, uint64_t expected) {
  uint64_t found = ~expected;
  iovec own = {&found, sizeof found};
  iovec other = {const_cast<void*>(address), sizeof found};
  return system_call(SYS_process_vm_readv, pid, &own, 1, &other, 1, 0) == sizeof found && found == expected;
}

bool suits_attaching(const Content& content) {
  if (content.layout == nullptr) {
    return true;
  }
  uint64_t pieces = 0;
  for (uint64_t index = 0; index < content.layout->runs; ++index) {
    pieces += content.layout->run[index].count;
  }
  return pieces > 0 && content.layout->element_bytes / pieces >= kSuitablePiece;
}

bool copy(Walk& to, Walk& from, uint64_t bytes, const Way& way) {
  if (way.reach == Reach::kHere) {
    copy(to, from, bytes);
    return true;
  }
  while (bytes > 0) {
    uint64_t copied = copy_at_once(to, from, bytes, way);
    if (copied == 0) {
      copied = copy_by_bounce(to, from, bytes, way);
    }
    if (copied == 0) {
      return false;
    }
    bytes -= copied;
  }
  return true;
}

}  // namespace headroom::direct
