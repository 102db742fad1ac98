// syscall(): calls that a program makes past the C library's functions. Calls that a wrapper of ours exists for go through it
// if a buffer lies in evictable memory, which is then held, or pinned where the kernel works on after the call. The others go
// straight on; where the kernel cannot reach an argument on storage, those that can be are made once more with it held.
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "arena/arena.h"
#include "base/kernel_abi.h"
#include "base/own_descriptors.h"
#include "base/system_calls.h"
#include "heap/bare_calls.h"
#include "heap/held_calls.h"
#include "heap/io_uring_wrappers.h"

namespace {

using namespace headroom;

template <typename T>
T* pointer(long argument) {
  return reinterpret_cast<T*>(argument);
}

bool are_ours(const iovec* vectors, size_t count) {
  return vectors != nullptr && count <= 1024 && heap::held_bytes(vectors, count) > 0;
}

/// Whether the call concerns evictable memory, or descriptors of ours. Other calls go straight on: code that asks for the bare
/// call may be a hook of the wrapper's name.
bool concerns_us(long number, const long (&a)[6]) {
  switch (number) {
    case SYS_read:
    case SYS_write:
    case SYS_pread64:
    case SYS_pwrite64:
    case SYS_recvfrom:
    case SYS_sendto:
      return heap::is_ours(pointer<void>(a[1]), static_cast<size_t>(a[2]));
    case SYS_readv:
    case SYS_writev:
    case SYS_preadv:
    case SYS_pwritev:
    case SYS_preadv2:
    case SYS_pwritev2:
    case SYS_vmsplice:
      return are_ours(pointer<iovec>(a[1]), static_cast<size_t>(a[2]));
    case SYS_recvmsg:
    case SYS_sendmsg:
      return a[1] != 0 && (heap::is_ours(pointer<void>(a[1]), sizeof(msghdr)) ||
                           are_ours(pointer<msghdr>(a[1])->msg_iov, pointer<msghdr>(a[1])->msg_iovlen));
    case SYS_io_submit:
      return a[2] != 0;
    case SYS_close:
      return base::is_own(static_cast<int>(a[0]));
    case SYS_close_range:
    case SYS_process_vm_writev:  // of another process's memory, whatever its own is
    case SYS_munmap:
    case SYS_mremap:
    case SYS_madvise:
    case SYS_mprotect:
      return true;
    case SYS_mmap:
      return (a[3] & MAP_FIXED) != 0;
    case SYS_exit_group:
      return true;
    case SYS_ioctl:
      return static_cast<uint32_t>(a[1]) == static_cast<uint32_t>(UFFDIO_REGISTER);
    default:
      return false;
  }
}

/// Positions in two words are of 32-bit systems; here the lower one is all.
bool try_wrapper(long number, const long (&a)[6], const void* caller, long& result) {
  const auto file = static_cast<int>(a[0]);
  const auto count = static_cast<int>(a[2]);
  const auto bytes = static_cast<size_t>(a[2]);
  switch (number) {
    case SYS_read:
      result = read(file, pointer<void>(a[1]), bytes);
      return true;
    case SYS_exit_group:
      _exit(file);
    case SYS_ioctl:
      result = ioctl(file, static_cast<unsigned long>(a[1]), pointer<void>(a[2]));
      return true;
    case SYS_write:
      result = write(file, pointer<void>(a[1]), bytes);
      return true;
    case SYS_pread64:
      result = pread(file, pointer<void>(a[1]), bytes, a[3]);
      return true;
    case SYS_pwrite64:
      result = pwrite(file, pointer<void>(a[1]), bytes, a[3]);
      return true;
    case SYS_readv:
      result = readv(file, pointer<iovec>(a[1]), count);
      return true;
    case SYS_writev:
      result = writev(file, pointer<iovec>(a[1]), count);
      return true;
    case SYS_preadv:
      result = preadv(file, pointer<iovec>(a[1]), count, a[3]);
      return true;
    case SYS_pwritev:
      result = pwritev(file, pointer<iovec>(a[1]), count, a[3]);
      return true;
    case SYS_preadv2:
      result = preadv2(file, pointer<iovec>(a[1]), count, a[3], static_cast<int>(a[5]));
      return true;
    case SYS_pwritev2:
      result = pwritev2(file, pointer<iovec>(a[1]), count, a[3], static_cast<int>(a[5]));
      return true;
    case SYS_recvfrom:
      result =
          recvfrom(file, pointer<void>(a[1]), bytes, static_cast<int>(a[3]), pointer<sockaddr>(a[4]), pointer<socklen_t>(a[5]));
      return true;
    case SYS_sendto:
      result = sendto(file, pointer<void>(a[1]), bytes, static_cast<int>(a[3]), pointer<sockaddr>(a[4]),
                      static_cast<socklen_t>(a[5]));
      return true;
    case SYS_recvmsg:
      result = recvmsg(file, pointer<msghdr>(a[1]), count);
      return true;
    case SYS_sendmsg:
      result = sendmsg(file, pointer<msghdr>(a[1]), count);
      return true;
    case SYS_vmsplice:
      result = vmsplice(file, pointer<iovec>(a[1]), bytes, static_cast<unsigned>(a[3]));
      return true;
    case SYS_process_vm_writev:
      result = process_vm_writev(file, pointer<iovec>(a[1]), bytes, pointer<iovec>(a[3]), static_cast<unsigned long>(a[4]),
                                 static_cast<unsigned long>(a[5]));
      return true;
    case SYS_io_submit: {
      result = heap::submit_operations(static_cast<aio_context_t>(a[0]), a[1], pointer<iocb*>(a[2]));
      if (result < 0) {
        errno = static_cast<int>(-result);
        result = -1;
      }
      return true;
    }
    case SYS_mmap:
      result = reinterpret_cast<long>(heap::map(pointer<void>(a[0]), static_cast<size_t>(a[1]), count, static_cast<int>(a[3]),
                                                static_cast<int>(a[4]), a[5], caller));
      return true;
    case SYS_mremap: {
      const auto flags = static_cast<int>(a[3]);
      void* target = (flags & MREMAP_FIXED) != 0 ? pointer<void>(a[4]) : nullptr;
      result =
          reinterpret_cast<long>(heap::remap(pointer<void>(a[0]), static_cast<size_t>(a[1]), bytes, flags, target, caller));
      return true;
    }
    case SYS_munmap:
      result = heap::unmap(pointer<void>(a[0]), static_cast<size_t>(a[1]));
      return true;
    case SYS_madvise:
      result = heap::advise(pointer<void>(a[0]), static_cast<size_t>(a[1]), count);
      return true;
    case SYS_mprotect:
      result = heap::protect(pointer<void>(a[0]), static_cast<size_t>(a[1]), count);
      return true;
    case SYS_close:
      errno = EBADF;
      return true;
    case SYS_close_range:
      result = heap::close_others(static_cast<unsigned>(a[0]), static_cast<unsigned>(a[1]), count);
      return true;
    default:
      return false;
  }
}

/// Calls that may be made once more where the kernel has found an argument on storage: they change nothing before they have
/// read their arguments, and tell the same again. Others may have taken what they could not store (a connection, a child's
/// end), or changed the setting whose value before they could not tell.
bool may_be_repeated(long number) {
  switch (number) {
    case SYS_getdents64:
    case SYS_getcwd:
    case SYS_uname:
    case SYS_sysinfo:
    case SYS_getrusage:
    case SYS_clock_gettime:
    case SYS_clock_getres:
    case SYS_gettimeofday:
    case SYS_times:
    case SYS_getrandom:
    case SYS_getcpu:
    case SYS_sched_getaffinity:
    case SYS_openat:
    case SYS_faccessat:
    case SYS_newfstatat:
    case SYS_statx:
    case SYS_fstat:
    case SYS_statfs:
    case SYS_fstatfs:
    case SYS_readlinkat:
    case SYS_getxattr:
    case SYS_lgetxattr:
    case SYS_fgetxattr:
    case SYS_setxattr:
    case SYS_lsetxattr:
    case SYS_fsetxattr:
    case SYS_listxattr:
    case SYS_llistxattr:
    case SYS_flistxattr:
      return true;
    default:
      return false;
  }
}

/// Holds what an argument points to, if that is memory that may move, to the end of its block. How much the call wants is not
/// known: it is a structure, a path, or a buffer that the call need not fill.
class ArgumentHold {
 public:
  explicit ArgumentHold(long argument) : address_(pointer<void>(argument)) {
    uint64_t offset = 0;
    if (pager::find_evictable(address_, offset)) {
      bytes_ = arena::kBlockBytes - offset % arena::kBlockBytes;
      heap::hold(address_, bytes_, true);
    }
  }
  ~ArgumentHold() {
    if (bytes_ > 0) {
      heap::drop_hold(address_, bytes_, true);
    }
  }
  ArgumentHold(const ArgumentHold&) = delete;
  ArgumentHold& operator=(const ArgumentHold&) = delete;

 private:
  void* address_;
  uint64_t bytes_ = 0;
};

long call(long number, const long (&a)[6]) { return base::system_call6(number, a[0], a[1], a[2], a[3], a[4], a[5]); }

/// The same once more, after the kernel has found memory that it cannot reach.
long call_with_arguments_held(long number, const long (&a)[6]) {
  const ArgumentHold first(a[0]);
  const ArgumentHold second(a[1]);
  const ArgumentHold third(a[2]);
  const ArgumentHold fourth(a[3]);
  const ArgumentHold fifth(a[4]);
  const ArgumentHold sixth(a[5]);
  return call(number, a);
}

}  // namespace

HEADROOM_EXPORT long syscall(long number, ...) noexcept {
  va_list list;
  va_start(list, number);
  long arguments[6];
  for (long& argument : arguments) {
    argument = va_arg(list, long);
  }
  va_end(list);
  long result = -1;
  if (concerns_us(number, arguments)) {
    const heap::NotCancelled not_cancelled;
    if (try_wrapper(number, arguments, __builtin_return_address(0), result)) {
      return result;
    }
  }
  const bool refused = number == SYS_io_uring_setup && heap::refuses_ring(__builtin_return_address(0));
  result = refused ? -ENOSYS : call(number, arguments);
  if (result == -EFAULT && may_be_repeated(number) && pager::is_armed() && !pager::engine_serves_kernel() &&
      !pager::is_forked_child()) {
    const heap::NotCancelled not_cancelled;
    result = call_with_arguments_held(number, arguments);
  }
  if (base::is_error(result)) {
    errno = static_cast<int>(-result);
    return -1;
  }
  return result;
}
