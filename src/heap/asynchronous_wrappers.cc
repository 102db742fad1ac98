// Calls after whose return the kernel still works on the program's memory: POSIX aio, libaio's io_submit, vmsplice. Nobody says
// when such memory may be moved again, so it is pinned: it stays resident until its content is freed. There is a limit to
// that, above which the calls fail as they do on a system that is out of such resources; it is said once.
//
// What cannot be seen here: rings of io_uring, and memory registered with a network card.
#include <aio.h>
#include <fcntl.h>
#include <linux/aio_abi.h>

#include "base/log.h"
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
  if (pager::try_pin(buffer, bytes)) {
    return true;
  }
  static std::atomic<bool> said{false};
  if (!said.exchange(true, std::memory_order_relaxed)) {
    base::log_warning(
        "the program has more memory under asynchronous input and output than may stay resident; these calls now fail with "
        "EAGAIN. Raise --memory, or raise --large above the size of its buffers");
  }
  return false;
}

bool keep(const iovec* vectors, size_t count) {
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

int refused() {
  errno = EAGAIN;
  return -1;
}

}  // namespace

HEADROOM_EXPORT int aio_read(aiocb* operation) {
  return keep(const_cast<const void*>(operation->aio_buf), operation->aio_nbytes) ? real_aio_read.get()(operation) : refused();
}
HEADROOM_EXPORT int aio_write(aiocb* operation) {
  return keep(const_cast<const void*>(operation->aio_buf), operation->aio_nbytes) ? real_aio_write.get()(operation) : refused();
}
HEADROOM_EXPORT int lio_listio(int mode, aiocb* const operations[], int count, sigevent* event) {
  for (int index = 0; index < count; ++index) {
    const aiocb* operation = operations[index];
    if (operation != nullptr && operation->aio_lio_opcode != LIO_NOP &&
        !keep(const_cast<const void*>(operation->aio_buf), operation->aio_nbytes)) {
      return refused();
    }
  }
  return real_lio_listio.get()(mode, operations, count, event);
}
HEADROOM_EXPORT ssize_t vmsplice(int pipe, const iovec* vectors, size_t count, unsigned flags) {
  return count > 1024 || keep(vectors, count) ? real_vmsplice.get()(pipe, vectors, count, flags) : refused();
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
    const bool kept =
        vectors ? keep(static_cast<const iovec*>(buffer), operation.aio_nbytes) : !plain || keep(buffer, operation.aio_nbytes);
    if (!kept) {
      return index > 0 ? submit(context, index, operations) : -EAGAIN;
    }
  }
  return submit(context, count, operations);
}

HEADROOM_EXPORT int io_submit(aio_context_t context, long count, iocb** operations) {
  return heap::submit_operations(context, count, operations);
}
