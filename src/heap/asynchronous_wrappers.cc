// Calls after whose return the kernel still works on the program's memory: POSIX aio, libaio's io_submit, vmsplice. Nobody says
// when such memory may be moved again, so it is pinned: it stays resident until its content is freed. There is a limit to that.
// Above it, transfers from and to files are done before the call returns, in pieces that are held; the program is told that
// they have ended in the way that it asks for. (For POSIX aio the C library's functions answer: they look at the operation
// alone. In place of an operation of io_submit's a write of as many bytes to nowhere is submitted, which ends as that would
// have.) Memory that vmsplice hands to a pipe is copied. A transfer of a pipe's or a socket's, which may have to wait for the
// program's next steps, fails with EAGAIN, as on a system that is out of such resources; a warning says so once.
//
// Rings of io_uring, and memory registered with a network card, cannot be seen here.
#include <aio.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "base/log.h"
#include "base/own_descriptors.h"
#include "base/system_calls.h"
#include "heap/bare_calls.h"
#include "heap/held_calls.h"

// libaio's function. The library need not be there, or may be loaded where its names are not found, so it is not asked: like
// its own, this one is the system call, with its way of telling errors.
extern "C" int io_submit(aio_context_t context, long count, iocb** operations);

namespace {

using namespace headroom;
using heap::is_ours;

HEADROOM_REAL(aio_read);
HEADROOM_REAL(aio_write);
HEADROOM_REAL(lio_listio);
HEADROOM_REAL(vmsplice);

/// Memory that is ours stays where it is from now on; false if that is too much.
bool keep(const void* buffer, size_t bytes) {
  if (!is_ours(buffer, bytes)) {
    return true;
  }
  if (pager::is_forked_child()) {
    heap::hold(buffer, bytes, true);
    return true;
  }
  return pager::try_pin(buffer, bytes);
}

bool keep_all(const iovec* vectors, size_t count) {
  for (size_t index = 0; index < count; ++index) {
    if (!keep(vectors[index].iov_base, vectors[index].iov_len)) {
      return false;
    }
  }
  return true;
}

int submit(aio_context_t context, long count, iocb** operations) {
  return static_cast<int>(base::system_call(SYS_io_submit, context, count, operations));
}

/// 0: it may be transferred before the call returns; else the error that the program is told.
int refuse_unless_file(int file) {
  struct stat status = {};
  if (fstat(file, &status) != 0) {
    return errno;
  }
  if (S_ISREG(status.st_mode) || S_ISBLK(status.st_mode)) {
    return 0;
  }
  static std::atomic<bool> said{false};
  if (!said.exchange(true, std::memory_order_relaxed)) {
    base::log_warning(
        "the program has more memory under asynchronous input and output than may stay resident; such calls on pipes and "
        "sockets now fail with EAGAIN. Raise --memory, or raise --large above the size of its buffers");
  }
  return EAGAIN;
}

int fail(int error) {
  errno = error;
  return -1;
}

/// The C library serves a file's operations one after the other; appended data keeps its order.
void wait_for_earlier(const aiocb& operation) {
  const int flags = fcntl(operation.aio_fildes, F_GETFL);
  if (flags < 0 || (flags & O_APPEND) == 0) {
    return;
  }
  char nothing = 0;
  aiocb last = {};
  last.aio_fildes = operation.aio_fildes;
  last.aio_reqprio = operation.aio_reqprio;
  last.aio_buf = &nothing;  // 0 bytes; EBADF where nothing may be read: it has waited all the same
  last.aio_sigevent.sigev_notify = SIGEV_NONE;
  const aiocb* const list[] = {&last};
  if (real_aio_read.get()(&last) == 0) {
    while (aio_error(&last) == EINPROGRESS) {
      (void)aio_suspend(list, 1, nullptr);
    }
    (void)aio_return(&last);
  }
}

void transfer_now(aiocb& operation, bool reads) {
  {
    const heap::NotCancelled not_cancelled;
    wait_for_earlier(operation);
    void* buffer = const_cast<void*>(operation.aio_buf);
    const int file = operation.aio_fildes;
    // These are our own wrappers, which go piece by piece.
    operation.__return_value = reads ? pread(file, buffer, operation.aio_nbytes, operation.aio_offset)
                                     : pwrite(file, buffer, operation.aio_nbytes, operation.aio_offset);
    const int error = operation.__return_value < 0 ? errno : 0;
    __atomic_store_n(&operation.__error_code, error, __ATOMIC_RELEASE);  // the result first: another thread may be looking
  }
  if (operation.aio_sigevent.sigev_notify != SIGEV_NONE) {
    (void)real_lio_listio.get()(LIO_NOWAIT, nullptr, 0, &operation.aio_sigevent);  // notifies, and does nothing else
  }
}

int transfer_now_or_refuse(aiocb* operation, bool reads) {
  if (const int error = refuse_unless_file(operation->aio_fildes)) {
    return fail(error);
  }
  transfer_now(*operation, reads);
  return 0;
}

bool is_transfer(const aiocb* operation) {
  return operation != nullptr && (operation->aio_lio_opcode == LIO_READ || operation->aio_lio_opcode == LIO_WRITE);
}

/// Finds the part of a list that the C library is to do, since its memory may stay. `rest`: nullptr for all of it, else a copy
/// of the list without the others. Not 0: an error, and nothing has begun.
int split_list(aiocb* const operations[], int count, std::optional<heap::PlainMemory>& memory, aiocb**& rest) {
  for (int index = 0; index < count; ++index) {
    if (rest != nullptr) {
      rest[index] = operations[index];
    }
    if (!is_transfer(operations[index]) ||
        keep(const_cast<const void*>(operations[index]->aio_buf), operations[index]->aio_nbytes)) {
      continue;
    }
    if (const int error = refuse_unless_file(operations[index]->aio_fildes)) {
      return error;
    }
    if (rest == nullptr) {
      memory.emplace(static_cast<size_t>(count) * sizeof(aiocb*));
      rest = static_cast<aiocb**>(memory->address);
      if (rest == nullptr) {
        return EAGAIN;
      }
      std::copy(operations, operations + index, rest);
    }
    rest[index] = nullptr;
  }
  return 0;
}

/// One operation of io_submit's whose memory may not stay.
ssize_t transfer_now(const iocb& operation) {
  const heap::NotCancelled not_cancelled;
  const int file = static_cast<int>(operation.aio_fildes);
  const auto at = static_cast<off_t>(operation.aio_offset);
  auto* buffer = reinterpret_cast<void*>(operation.aio_buf);
  const auto* vectors = static_cast<const iovec*>(buffer);
  const int flags = static_cast<int>(operation.aio_rw_flags);
  const iovec whole = {buffer, operation.aio_nbytes};
  switch (operation.aio_lio_opcode) {
    case IOCB_CMD_PREAD:
      return flags == 0 ? pread(file, buffer, operation.aio_nbytes, at) : preadv2(file, &whole, 1, at, flags);
    case IOCB_CMD_PWRITE:
      return flags == 0 ? pwrite(file, buffer, operation.aio_nbytes, at) : pwritev2(file, &whole, 1, at, flags);
    case IOCB_CMD_PREADV:
      return preadv2(file, vectors, static_cast<int>(operation.aio_nbytes), at, flags);
    default:
      return pwritev2(file, vectors, static_cast<int>(operation.aio_nbytes), at, flags);
  }
}

int submit_done(aio_context_t context, iocb& operation) {
  static const int nowhere = base::own(base::system_call(SYS_openat, AT_FDCWD, "/dev/null", O_WRONLY | O_CLOEXEC));
  const int error = refuse_unless_file(static_cast<int>(operation.aio_fildes));
  if (error != 0 || nowhere < 0) {
    return -(error != 0 ? error : EAGAIN);
  }
  const ssize_t done = transfer_now(operation);
  if (done < 0) {
    return -errno;
  }
  const iocb asked = operation;
  const bool vectors = operation.aio_lio_opcode == IOCB_CMD_PREADV || operation.aio_lio_opcode == IOCB_CMD_PWRITEV;
  operation.aio_buf = vectors && operation.aio_nbytes > 0
                          ? reinterpret_cast<uint64_t>(reinterpret_cast<const iovec*>(operation.aio_buf)->iov_base)
                          : operation.aio_buf;
  operation.aio_lio_opcode = IOCB_CMD_PWRITE;
  operation.aio_fildes = static_cast<uint32_t>(nowhere);
  operation.aio_nbytes = static_cast<uint64_t>(done);
  operation.aio_offset = 0;
  operation.aio_rw_flags = 0;
  iocb* list = &operation;
  const int result = submit(context, 1, &list);
  const auto key = operation.aio_key;  // the kernel's
  operation = asked;
  operation.aio_key = key;
  return result;
}

/// A pipe keeps the pages that it is given: those of a copy.
ssize_t splice_copy(int pipe, const iovec* vectors, size_t count, unsigned flags) {
  constexpr size_t kMost = 1 << 20;  // as much as a pipe takes, usually
  size_t bytes = 0;
  for (size_t index = 0; index < count && bytes < kMost; ++index) {
    bytes += std::min(vectors[index].iov_len, kMost - bytes);
  }
  const heap::PlainMemory copy(bytes);
  if (copy.address == nullptr) {
    return fail(ENOMEM);
  }
  size_t filled = 0;
  for (size_t index = 0; filled < bytes; ++index) {
    const size_t part = std::min(vectors[index].iov_len, bytes - filled);
    memcpy(static_cast<char*>(copy.address) + filled, vectors[index].iov_base, part);
    filled += part;
  }
  const iovec whole = {copy.address, bytes};
  return real_vmsplice.get()(pipe, &whole, 1, flags);
}

}  // namespace

HEADROOM_EXPORT int aio_read(aiocb* operation) {
  return keep(const_cast<const void*>(operation->aio_buf), operation->aio_nbytes) ? real_aio_read.get()(operation)
                                                                                  : transfer_now_or_refuse(operation, true);
}
HEADROOM_EXPORT int aio_write(aiocb* operation) {
  return keep(const_cast<const void*>(operation->aio_buf), operation->aio_nbytes) ? real_aio_write.get()(operation)
                                                                                  : transfer_now_or_refuse(operation, false);
}
HEADROOM_EXPORT int lio_listio(int mode, aiocb* const operations[], int count, sigevent* event) {
  std::optional<heap::PlainMemory> memory;
  aiocb** rest = nullptr;
  if (mode == LIO_WAIT || mode == LIO_NOWAIT) {
    if (const int error = split_list(operations, count, memory, rest)) {
      return fail(error);
    }
  }
  if (rest == nullptr) {
    return real_lio_listio.get()(mode, operations, count, event);
  }
  bool failed = false;
  for (int index = 0; index < count; ++index) {
    if (rest[index] == nullptr && is_transfer(operations[index])) {
      transfer_now(*operations[index], operations[index]->aio_lio_opcode == LIO_READ);
      failed = failed || operations[index]->__error_code != 0;
    }
  }
  const int result = real_lio_listio.get()(mode, rest, count, event);  // passes over nullptr; notifies if nothing is left
  return result == 0 && failed && mode == LIO_WAIT ? fail(EIO) : result;
}
HEADROOM_EXPORT ssize_t vmsplice(int pipe, const iovec* vectors, size_t count, unsigned flags) {
  if (count == 0 || count > 1024 || heap::held_bytes(vectors, count) == 0) {
    return real_vmsplice.get()(pipe, vectors, count, flags);
  }
  if ((fcntl(pipe, F_GETFL) & O_ACCMODE) != O_RDONLY) {
    return splice_copy(pipe, vectors, count, flags);
  }
  // From a pipe the kernel copies; it may bring less than was asked for.
  while (count > 1 && vectors->iov_len == 0) {
    ++vectors;
    --count;
  }
  const iovec first = heap::shortened(vectors[0]);
  const bool is_cut = first.iov_len < vectors[0].iov_len;
  const int many = is_cut ? 1 : heap::holdable(vectors, static_cast<int>(count));
  const heap::VectorHold held(is_cut ? &first : vectors, static_cast<size_t>(many), true);
  return real_vmsplice.get()(pipe, is_cut ? &first : vectors, static_cast<size_t>(many), flags);
}

// On 64-bit systems the functions with large offsets are the same.
HEADROOM_EXPORT int aio_read64(aiocb64* operation) { return aio_read(reinterpret_cast<aiocb*>(operation)); }
HEADROOM_EXPORT int aio_write64(aiocb64* operation) { return aio_write(reinterpret_cast<aiocb*>(operation)); }
HEADROOM_EXPORT int lio_listio64(int mode, aiocb64* const operations[], int count, sigevent* event) {
  return lio_listio(mode, reinterpret_cast<aiocb* const*>(operations), count, event);
}

int headroom::heap::submit_operations(aio_context_t context, long count, iocb** operations) {
  for (long index = 0; index < count; ++index) {
    const iocb& operation = *operations[index];
    const auto* buffer = reinterpret_cast<const void*>(operation.aio_buf);
    const bool vectors = operation.aio_lio_opcode == IOCB_CMD_PREADV || operation.aio_lio_opcode == IOCB_CMD_PWRITEV;
    const bool plain = operation.aio_lio_opcode == IOCB_CMD_PREAD || operation.aio_lio_opcode == IOCB_CMD_PWRITE;
    const bool kept = vectors ? keep_all(static_cast<const iovec*>(buffer), operation.aio_nbytes)
                              : !plain || keep(buffer, operation.aio_nbytes);
    if (!kept) {
      return index > 0 ? submit(context, index, operations) : submit_done(context, *operations[0]);
    }
  }
  return submit(context, count, operations);
}

HEADROOM_EXPORT int io_submit(aio_context_t context, long count, iocb** operations) {
  return heap::submit_operations(context, count, operations);
}
