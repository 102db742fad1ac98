// The mprotect + SIGSEGV engine; see engine.h.
//
// The handler runs in the faulting thread: it posts the fault to the pager thread and sleeps until it is served, then the
// access is repeated. It allocates nothing and takes no lock. A SIGSEGV that is not ours goes to the handler that the
// program installed (heap/signal_wrappers.cc keeps the program from replacing ours, or blocking the signal).
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <new>

#include "base/log.h"
#include "base/system_calls.h"
#include "pager/engine.h"
#include "pager/requests.h"
#include "pager/signals.h"

namespace headroom::pager {
namespace {

using arena::View;
using base::system_call;

void set_access(View view, int protection) {
  const long result = system_call(SYS_mprotect, view.address, view.bytes, protection);
  if (base::is_error(result)) {
    base::die(
        "mprotect failed: %s; with the sigsegv engine scattered access may exhaust vm.max_map_count (raise it, or use "
        "userfaultfd)",
        strerror(static_cast<int>(-result)));
  }
}

class SigsegvEngine final : public FaultEngine {
 public:
  base::Status cover(View view) override {
    set_access(view, PROT_NONE);
    return base::Status::kOk;
  }
  void map(View view, bool writable) override { set_access(view, writable ? PROT_READ | PROT_WRITE : PROT_READ); }
  uint64_t fill(View, const char*, bool) override { return 0; }
  void protect(View view) override { set_access(view, PROT_READ); }
  void unprotect(View view) override { set_access(view, PROT_READ | PROT_WRITE); }
  void hide(View view) override { set_access(view, PROT_NONE); }
  void conceal(View view) override { set_access(view, PROT_NONE); }
  void wake(View) override {}  // waiting threads are woken by the end of their request
  [[nodiscard]] int descriptor() const override { return -1; }
  int read_faults(Fault*, int) override { return 0; }
  [[nodiscard]] bool serves_kernel() const override { return false; }
  [[nodiscard]] base::EngineChoice kind() const override { return base::EngineChoice::kSigsegv; }
};

bool was_write(const ucontext_t& context) {
#if defined(__x86_64__)
  return (context.uc_mcontext.gregs[REG_ERR] & 2) != 0;
#else
  // The exception syndrome lies in a record after the registers; bit 6 of it is "write".
  const auto* record = reinterpret_cast<const uint32_t*>(&context.uc_mcontext.__reserved);
  while (record[0] != 0) {
    if (record[0] == 0x45535201) {  // ESR_MAGIC
      uint64_t syndrome = 0;
      memcpy(&syndrome, record + 2, sizeof syndrome);
      return (syndrome & (1 << 6)) != 0;
    }
    record += record[1] / sizeof(uint32_t);
  }
  return true;
#endif
}

}  // namespace

namespace {

/// Whether the block is here and its rights are the program's own affair, so that the fault is too. It may also be a fault from
/// before it was pinned, so the access is repeated once.
bool note_programs_own_fault(uintptr_t address, uint64_t block, bool& repeat) {
  static thread_local uintptr_t repeated __attribute__((tls_model("initial-exec"))) = 0;
  const uint64_t here = arena::kPinned | arena::kMapped | arena::kWritable;
  const uint64_t word = partition().blocks[block].load(std::memory_order_acquire);
  if ((word & here) != here || arena::state_of(word) != arena::kResident) {
    return false;
  }
  repeat = repeated != address;
  repeated = repeat ? address : 0;
  return true;
}

}  // namespace

bool serve_signal_fault(const siginfo_t& info, const void* context) {
  const auto address = reinterpret_cast<uintptr_t>(info.si_addr);
  uint64_t offset = 0;
  if (info.si_code <= 0 || !arena::find_offset(partition(), address, offset) || !is_running()) {
    return false;
  }
  if (address - partition().base < partition().limit && arena::is_unmapped(partition(), offset)) {
    return false;  // the program's own fault
  }
  bool repeat = false;
  if (is_armed() && note_programs_own_fault(address, arena::block_of(offset), repeat)) {
    return repeat;
  }
  const int saved_errno = errno;
  Request request = {};
  request.kind = RequestKind::kFault;
  request.block = arena::block_of(offset);
  request.thread = static_cast<int32_t>(system_call(SYS_gettid));
  request.write = was_write(*static_cast<const ucontext_t*>(context));
  perform(request);
  errno = saved_errno;
  return request.status == base::Status::kOk;
}

FaultEngine* make_sigsegv_engine() {
  alignas(SigsegvEngine) static char place[sizeof(SigsegvEngine)];
  install_fault_handler();  // before memory is short: a handler or mask that the program sets by then must not shut us out
  return new (place) SigsegvEngine;
}

}  // namespace headroom::pager
