// The fault engines: how an access to memory that is not there, or a first write to clean memory, is noticed.
//
//   userfaultfd        the kernel queues the fault and stops the thread; also serves the kernel's own accesses (system
//                      calls, cross-memory attach, core dumps). Needs root, the sysctl vm.unprivileged_userfaultfd, or
//                      read access to /dev/userfaultfd.
//   userfaultfd-user   the same for accesses of the program only; ordinary users get this one. A system call on absent memory
//                      fails with EFAULT, so heap/system_call_wrappers.cc holds what it passes to the kernel.
//   sigsegv            mprotect and a SIGSEGV handler, everywhere. Each change of permission may cost a mapping
//                      (vm.max_map_count), and threads must never run with SIGSEGV blocked.
//
// In all three the fault is served by the pager thread; above this interface nothing knows which one runs.
#pragma once

#include <cstdint>

#include "arena/arena.h"
#include "base/settings.h"
#include "base/status.h"

namespace headroom::pager {

struct Fault {
  uintptr_t address;
  int32_t thread;  // as the kernel numbers it; of another process if that one reads or writes our memory
  bool write;
};

class FaultEngine {
 public:
  virtual ~FaultEngine() = default;
  /// Begins to catch faults in the view. Pages that are mapped there stay accessible with userfaultfd and do not with sigsegv,
  /// so the caller maps resident blocks afterwards.
  virtual base::Status cover(arena::View view) = 0;
  /// Lets the program read (and write) resident pages of the view, and wakes threads that wait there.
  virtual void map(arena::View view, bool writable) = 0;
  /// Makes memory for the view, which has none and is not mapped, with that content, maps it as map() does, and wakes threads
  /// that wait there. Returns how many bytes from its beginning are done; the caller does the rest by other means.
  virtual uint64_t fill(arena::View view, const char* content, bool writable) = 0;
  /// Makes the next write to the view fault.
  virtual void protect(arena::View view) = 0;
  /// Lets the program write a view that it can read already, and wakes threads that wait there. With userfaultfd each page
  /// faults once more then; hide() and map() avoid that where access may be taken away meanwhile.
  virtual void unprotect(arena::View view) = 0;
  /// Takes access away; the content stays. The next access faults, also one by the kernel.
  virtual void hide(arena::View view) = 0;
  /// Takes access away, before the memory is punched.
  virtual void conceal(arena::View view) = 0;
  /// Lets threads that wait in the view try again.
  virtual void wake(arena::View view) = 0;
  /// Readable when faults are queued, or -1.
  [[nodiscard]] virtual int descriptor() const = 0;
  virtual int read_faults(Fault* out, int most) = 0;
  [[nodiscard]] virtual bool serves_kernel() const = 0;
  [[nodiscard]] virtual base::EngineChoice kind() const = 0;
};

/// Makes the engine that the settings ask for, or the best this machine allows. Ends the process with an explanation if a
/// forced one cannot be had.
FaultEngine* make_engine();

/// Whether make_engine() will make one that serves the kernel.
bool may_have_engine_that_serves_kernel();

FaultEngine* make_userfaultfd_engine(bool user_mode_only);  // nullptr if it cannot be had
FaultEngine* make_sigsegv_engine();

}  // namespace headroom::pager
