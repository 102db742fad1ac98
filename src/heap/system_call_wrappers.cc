// Calls that hand the program's memory to the kernel.
//
// Two dangers. The kernel may pin pages (direct I/O): memory that is evicted meanwhile loses what the device writes, with
// success reported. And where the engine does not serve the kernel, absent memory makes the call fail with EFAULT, or a
// datagram get lost. So buffers in evictable memory are held while the call runs, piece by piece where they are larger than
// a hold may be. Sockets are in socket_wrappers.cc, stdio in stdio_wrappers.cc, the variants that compilers choose under
// _FORTIFY_SOURCE in fortified_wrappers.cc.
//
// Buffers elsewhere cost a comparison or two. The calls are cancellation points as they are in the C library: the real
// function is called, looked up once.
#include <pthread.h>
#include <unistd.h>

#include "heap/held_calls.h"

namespace {

using namespace headroom;
using heap::held_bytes;
using heap::in_pieces;
using heap::is_ours;
using heap::largest_hold;
using heap::may_read_on;
using heap::VectorHold;

/// readv and writev: one call if the buffers in evictable memory may be held together, else vector by vector.
template <typename Whole, typename Single>
ssize_t vectored(const iovec* vectors, int count, bool kernel_writes, Whole whole, Single single) {
  const size_t ours = count > 0 && count <= 1024 ? held_bytes(vectors, count) : 0;
  if (ours == 0) {
    return whole();
  }
  if (ours <= largest_hold()) {
    const VectorHold held(vectors, static_cast<size_t>(count), kernel_writes);
    return whole();
  }
  ssize_t done = 0;
  for (int index = 0; index < count; ++index) {
    const ssize_t result = single(vectors[index], done);
    if (result < 0) {
      return done > 0 ? done : result;
    }
    done += result;
    if (static_cast<size_t>(result) < vectors[index].iov_len) {
      break;
    }
  }
  return done;
}

/// One call with as many of the vectors as may be held together: a short transfer, which such calls may return anyway.
template <typename Call>
ssize_t together(const iovec* vectors, int count, bool kernel_writes, Call call) {
  if (count <= 0 || count > 1024 || held_bytes(vectors, count) == 0) {
    return call(vectors, count);
  }
  const int many = heap::holdable(vectors, count);
  const iovec first = heap::shortened(vectors[0]);
  const bool cut = first.iov_len < vectors[0].iov_len;
  const iovec* chosen = cut ? &first : vectors;
  const VectorHold held(chosen, cut ? 1 : static_cast<size_t>(many), kernel_writes);
  return call(chosen, cut ? 1 : many);
}

HEADROOM_REAL(read);
HEADROOM_REAL(write);
HEADROOM_REAL(pread);
HEADROOM_REAL(pwrite);
HEADROOM_REAL(readv);
HEADROOM_REAL(writev);
HEADROOM_REAL(preadv);
HEADROOM_REAL(pwritev);
HEADROOM_REAL(preadv2);
HEADROOM_REAL(pwritev2);
HEADROOM_REAL(process_vm_writev);

}  // namespace

HEADROOM_EXPORT ssize_t read(int file, void* buffer, size_t bytes) {
  if (!is_ours(buffer, bytes)) {
    return real_read.get()(file, buffer, bytes);
  }
  const size_t most = bytes > largest_hold() && !may_read_on(file) ? largest_hold() : bytes;
  return in_pieces(buffer, most, true, [=](char* at, size_t piece, size_t) { return real_read.get()(file, at, piece); });
}

HEADROOM_EXPORT ssize_t write(int file, const void* buffer, size_t bytes) {
  if (!is_ours(buffer, bytes)) {
    return real_write.get()(file, buffer, bytes);
  }
  return in_pieces(buffer, bytes, false, [=](char* at, size_t piece, size_t) { return real_write.get()(file, at, piece); });
}

HEADROOM_EXPORT ssize_t pread(int file, void* buffer, size_t bytes, off_t offset) {
  if (!is_ours(buffer, bytes)) {
    return real_pread.get()(file, buffer, bytes, offset);
  }
  return in_pieces(buffer, bytes, true, [=](char* at, size_t piece, size_t done) {
    return real_pread.get()(file, at, piece, offset + static_cast<off_t>(done));
  });
}
HEADROOM_EXPORT ssize_t pread64(int file, void* buffer, size_t bytes, off_t offset) {
  return pread(file, buffer, bytes, offset);
}

HEADROOM_EXPORT ssize_t pwrite(int file, const void* buffer, size_t bytes, off_t offset) {
  if (!is_ours(buffer, bytes)) {
    return real_pwrite.get()(file, buffer, bytes, offset);
  }
  return in_pieces(buffer, bytes, false, [=](char* at, size_t piece, size_t done) {
    return real_pwrite.get()(file, at, piece, offset + static_cast<off_t>(done));
  });
}
HEADROOM_EXPORT ssize_t pwrite64(int file, const void* buffer, size_t bytes, off_t offset) {
  return pwrite(file, buffer, bytes, offset);
}

HEADROOM_EXPORT ssize_t readv(int file, const iovec* vectors, int count) {
  return vectored(
      vectors, count, true, [=] { return real_readv.get()(file, vectors, count); },
      [=](const iovec& vector, ssize_t) { return read(file, vector.iov_base, vector.iov_len); });
}
HEADROOM_EXPORT ssize_t writev(int file, const iovec* vectors, int count) {
  return vectored(
      vectors, count, false, [=] { return real_writev.get()(file, vectors, count); },
      [=](const iovec& vector, ssize_t) { return write(file, vector.iov_base, vector.iov_len); });
}
HEADROOM_EXPORT ssize_t preadv(int file, const iovec* vectors, int count, off_t offset) {
  return vectored(
      vectors, count, true, [=] { return real_preadv.get()(file, vectors, count, offset); },
      [=](const iovec& vector, ssize_t done) { return pread(file, vector.iov_base, vector.iov_len, offset + done); });
}
HEADROOM_EXPORT ssize_t preadv64(int file, const iovec* vectors, int count, off_t offset) {
  return preadv(file, vectors, count, offset);
}
HEADROOM_EXPORT ssize_t pwritev(int file, const iovec* vectors, int count, off_t offset) {
  return vectored(
      vectors, count, false, [=] { return real_pwritev.get()(file, vectors, count, offset); },
      [=](const iovec& vector, ssize_t done) { return pwrite(file, vector.iov_base, vector.iov_len, offset + done); });
}
/// With flags a call must stay one: the buffers are held together.
HEADROOM_EXPORT ssize_t preadv2(int file, const iovec* vectors, int count, off_t offset, int flags) {
  return together(vectors, count, true,
                  [=](const iovec* held, int many) { return real_preadv2.get()(file, held, many, offset, flags); });
}
HEADROOM_EXPORT ssize_t preadv64v2(int file, const iovec* vectors, int count, off_t offset, int flags) {
  return preadv2(file, vectors, count, offset, flags);
}
HEADROOM_EXPORT ssize_t pwritev2(int file, const iovec* vectors, int count, off_t offset, int flags) {
  return together(vectors, count, false,
                  [=](const iovec* held, int many) { return real_pwritev2.get()(file, held, many, offset, flags); });
}
HEADROOM_EXPORT ssize_t pwritev64v2(int file, const iovec* vectors, int count, off_t offset, int flags) {
  return pwritev2(file, vectors, count, offset, flags);
}
HEADROOM_EXPORT ssize_t pwritev64(int file, const iovec* vectors, int count, off_t offset) {
  return pwritev(file, vectors, count, offset);
}

/// Writing another process's memory: its pager must not take a block away between our write and its write-out (the write
/// does not pass through its page tables). It looks for our mark after it has protected a block (pager/eviction.cc).
HEADROOM_EXPORT ssize_t process_vm_writev(pid_t pid, const iovec* local, unsigned long local_count, const iovec* remote,
                                          unsigned long remote_count, unsigned long flags) {
  if (!pager::is_running()) {
    return real_process_vm_writev.get()(pid, local, local_count, remote, remote_count, flags);
  }
  // The mark has room for one call of a process; threads take turns.
  static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&one_at_a_time);
  node::Member& self = *pager::session().self;
  uint64_t begin = UINT64_MAX;
  uint64_t end = 0;
  for (unsigned long index = 0; index < remote_count; ++index) {
    const auto first = reinterpret_cast<uint64_t>(remote[index].iov_base);
    begin = first < begin ? first : begin;
    end = first + remote[index].iov_len > end ? first + remote[index].iov_len : end;
  }
  self.remote_write_begin.store(begin, std::memory_order_relaxed);
  self.remote_write_end.store(end, std::memory_order_relaxed);
  std::atomic<int32_t>& mark = self.remote_write_target;
  // seq_cst: pairs with the pager's look in is_written_remotely(); either it sees the mark or we meet its protection.
  mark.store(pid, std::memory_order_seq_cst);
  const ssize_t result = real_process_vm_writev.get()(pid, local, local_count, remote, remote_count, flags);
  mark.store(0, std::memory_order_release);
  pthread_mutex_unlock(&one_at_a_time);
  return result;
}
