// Calls that hand the program's memory to the kernel.
//
// Two dangers. The kernel may pin pages (direct I/O): memory that is evicted meanwhile loses what the device writes, with
// success reported. And where the engine does not serve the kernel, absent memory makes the call fail with EFAULT, or a
// datagram get lost. So buffers in evictable memory are held while the call runs, piece by piece where they are larger than
// a hold may be; stdio, which calls the kernel from inside the C library, is given small buffers of its own (bounced).
//
// Buffers elsewhere cost one comparison. The calls are cancellation points as they are in the C library: the real function
// is called, looked up once.
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>

#include "base/log.h"
#include "heap/heap.h"
#include "pager/pager.h"
#include "trace/counters.h"

#define HEADROOM_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using namespace headroom;

/// The C library's function of that name, looked up at its first use.
template <typename Function>
class Real {
 public:
  explicit constexpr Real(const char* name) : name_(name) {}
  Function get() {
    Function known = function_.load(std::memory_order_relaxed);
    if (known == nullptr) {
      known = reinterpret_cast<Function>(dlsym(RTLD_NEXT, name_));
      function_.store(known, std::memory_order_relaxed);
    }
    return known;
  }

 private:
  const char* name_;
  std::atomic<Function> function_{nullptr};
};

// The C library declares these with attributes (nonnull, access) that a template argument cannot carry.
#pragma GCC diagnostic ignored "-Wignored-attributes"
#define REAL(name) static Real<decltype(&(name))> real_##name(#name)

bool is_ours(const void* address) { return __builtin_expect(pager::covers(address), 0); }

/// A forked child has no pager to hold anything: it touches the pages, and they stay its own.
void hold(const void* address, size_t bytes, bool write) {
  if (!pager::is_forked_child()) {
    pager::hold(address, bytes, write);
    return;
  }
  for (size_t at = 0; at < bytes; at += arena::kPageBytes) {
    (void)static_cast<const volatile char*>(address)[at];
  }
  (void)static_cast<const volatile char*>(address)[bytes - 1];
}
void drop_hold(const void* address, size_t bytes, bool write) {
  if (!pager::is_forked_child()) {
    pager::drop_hold(address, bytes, write);
  }
}
size_t largest_hold() { return pager::is_forked_child() ? size_t{16} << 20 : pager::largest_hold(); }

/// A pipe or socket may have just what the first piece took: reading on would block where one call would have returned.
bool may_read_on(int file) {
  struct stat status = {};
  return fstat(file, &status) == 0 && (S_ISREG(status.st_mode) || S_ISBLK(status.st_mode));
}

/// Transfers a buffer in pieces that may be held. A piece that comes back short ends it, as a short transfer would.
template <typename Call>
ssize_t in_pieces(const void* buffer, size_t bytes, bool kernel_writes, Call call) {
  size_t done = 0;
  do {
    const size_t most = largest_hold();
    const size_t piece = bytes - done < most ? bytes - done : most;
    const char* at = static_cast<const char*>(buffer) + done;
    hold(at, piece, kernel_writes);
    const ssize_t result = call(const_cast<char*>(at), piece, done);
    const int saved_errno = errno;
    drop_hold(at, piece, kernel_writes);
    errno = saved_errno;
    if (result < 0) {
      return done > 0 ? static_cast<ssize_t>(done) : result;
    }
    done += static_cast<size_t>(result);
    if (static_cast<size_t>(result) < piece) {
      break;
    }
  } while (done < bytes);
  return static_cast<ssize_t>(done);
}

/// Holds the vectors' buffers for one call; a message must go as a whole, so there are no pieces.
class VectorHold {
 public:
  VectorHold(const iovec* vectors, size_t count, bool write) : vectors_(vectors), count_(count), write_(write) {
    for (size_t index = 0; index < count_; ++index) {
      if (is_ours(vectors_[index].iov_base)) {
        hold(vectors_[index].iov_base, vectors_[index].iov_len, write_);
      }
    }
  }
  ~VectorHold() {
    const int saved_errno = errno;
    for (size_t index = 0; index < count_; ++index) {
      if (is_ours(vectors_[index].iov_base)) {
        drop_hold(vectors_[index].iov_base, vectors_[index].iov_len, write_);
      }
    }
    errno = saved_errno;
  }
  VectorHold(const VectorHold&) = delete;
  VectorHold& operator=(const VectorHold&) = delete;

 private:
  const iovec* vectors_;
  size_t count_;
  bool write_;
};

size_t held_bytes(const iovec* vectors, int count) {
  size_t bytes = 0;
  for (int index = 0; index < count; ++index) {
    bytes += is_ours(vectors[index].iov_base) ? vectors[index].iov_len : 0;
  }
  return bytes;
}

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

REAL(read);
REAL(write);
REAL(pread);
REAL(pwrite);
REAL(readv);
REAL(writev);
REAL(preadv);
REAL(pwritev);
REAL(recv);
REAL(recvfrom);
REAL(recvmsg);
REAL(send);
REAL(sendto);
REAL(sendmsg);
REAL(fread);
REAL(fwrite);
REAL(setvbuf);
REAL(process_vm_writev);

}  // namespace

HEADROOM_EXPORT ssize_t read(int file, void* buffer, size_t bytes) {
  if (!is_ours(buffer)) {
    return real_read.get()(file, buffer, bytes);
  }
  const size_t most = bytes > largest_hold() && !may_read_on(file) ? largest_hold() : bytes;
  return in_pieces(buffer, most, true, [=](char* at, size_t piece, size_t) { return real_read.get()(file, at, piece); });
}

HEADROOM_EXPORT ssize_t write(int file, const void* buffer, size_t bytes) {
  if (!is_ours(buffer)) {
    return real_write.get()(file, buffer, bytes);
  }
  return in_pieces(buffer, bytes, false, [=](char* at, size_t piece, size_t) { return real_write.get()(file, at, piece); });
}

HEADROOM_EXPORT ssize_t pread(int file, void* buffer, size_t bytes, off_t offset) {
  if (!is_ours(buffer)) {
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
  if (!is_ours(buffer)) {
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
HEADROOM_EXPORT ssize_t pwritev64(int file, const iovec* vectors, int count, off_t offset) {
  return pwritev(file, vectors, count, offset);
}

HEADROOM_EXPORT ssize_t recv(int socket, void* buffer, size_t bytes, int flags) {
  if (!is_ours(buffer)) {
    return real_recv.get()(socket, buffer, bytes, flags);
  }
  const iovec vector = {buffer, bytes < largest_hold() ? bytes : largest_hold()};
  const VectorHold held(&vector, 1, true);
  return real_recv.get()(socket, buffer, vector.iov_len, flags);
}
HEADROOM_EXPORT ssize_t recvfrom(int socket, void* buffer, size_t bytes, int flags, sockaddr* from, socklen_t* length) {
  if (!is_ours(buffer)) {
    return real_recvfrom.get()(socket, buffer, bytes, flags, from, length);
  }
  const iovec vector = {buffer, bytes < largest_hold() ? bytes : largest_hold()};
  const VectorHold held(&vector, 1, true);
  return real_recvfrom.get()(socket, buffer, vector.iov_len, flags, from, length);
}
HEADROOM_EXPORT ssize_t recvmsg(int socket, msghdr* message, int flags) {
  const VectorHold held(message->msg_iov, message->msg_iovlen, true);
  return real_recvmsg.get()(socket, message, flags);
}
HEADROOM_EXPORT ssize_t send(int socket, const void* buffer, size_t bytes, int flags) {
  if (!is_ours(buffer)) {
    return real_send.get()(socket, buffer, bytes, flags);
  }
  return in_pieces(buffer, bytes, false,
                   [=](char* at, size_t piece, size_t) { return real_send.get()(socket, at, piece, flags); });
}
HEADROOM_EXPORT ssize_t sendto(int socket, const void* buffer, size_t bytes, int flags, const sockaddr* to, socklen_t length) {
  if (!is_ours(buffer)) {
    return real_sendto.get()(socket, buffer, bytes, flags, to, length);
  }
  const iovec vector = {const_cast<void*>(buffer), bytes};
  const VectorHold held(&vector, 1, false);
  return real_sendto.get()(socket, buffer, bytes, flags, to, length);
}
HEADROOM_EXPORT ssize_t sendmsg(int socket, const msghdr* message, int flags) {
  const VectorHold held(message->msg_iov, message->msg_iovlen, false);
  return real_sendmsg.get()(socket, message, flags);
}

// stdio hands large buffers straight to the kernel from inside the C library. Where the kernel may not touch them, they are
// passed through a buffer on the stack, as many whole items at a time as fit; items larger than it byte by byte.
HEADROOM_EXPORT size_t fread(void* buffer, size_t size, size_t count, FILE* stream) {
  if (!is_ours(buffer) || pager::engine_serves_kernel() || size == 0) {
    return real_fread.get()(buffer, size, count, stream);
  }
  char bounce[32768];
  const size_t total = size * count;
  size_t done = 0;
  while (done < total) {
    const size_t piece = total - done < sizeof bounce ? total - done : sizeof bounce;
    const size_t got = real_fread.get()(bounce, 1, piece, stream);
    memcpy(static_cast<char*>(buffer) + done, bounce, got);
    trace::count(trace::Counter::kBouncedBytes, got);
    done += got;
    if (got < piece) {
      break;
    }
  }
  return done / size;
}
HEADROOM_EXPORT size_t fwrite(const void* buffer, size_t size, size_t count, FILE* stream) {
  if (!is_ours(buffer) || pager::engine_serves_kernel() || size == 0) {
    return real_fwrite.get()(buffer, size, count, stream);
  }
  char bounce[32768];
  const size_t total = size * count;
  size_t done = 0;
  while (done < total) {
    const size_t piece = total - done < sizeof bounce ? total - done : sizeof bounce;
    memcpy(bounce, static_cast<const char*>(buffer) + done, piece);
    const size_t put = real_fwrite.get()(bounce, 1, piece, stream);
    trace::count(trace::Counter::kBouncedBytes, put);
    done += put;
    if (put < piece) {
      break;
    }
  }
  return done / size;
}
/// A stream's buffer is the C library's to pass to the kernel at any time: it stays resident.
HEADROOM_EXPORT int setvbuf(FILE* stream, char* buffer, int mode, size_t bytes) {
  if (buffer != nullptr && is_ours(buffer) && !pager::is_forked_child()) {
    pager::pin(buffer, bytes);
  }
  return real_setvbuf.get()(stream, buffer, mode, bytes);
}

/// Writing another process's memory: its pager must not take a block away between our write and its write-out (the write
/// does not pass through its page tables). It looks for our mark after it has protected a block (pager/eviction.cc).
HEADROOM_EXPORT ssize_t process_vm_writev(pid_t pid, const iovec* local, unsigned long local_count, const iovec* remote,
                                          unsigned long remote_count, unsigned long flags) {
  if (!pager::is_running()) {
    return real_process_vm_writev.get()(pid, local, local_count, remote, remote_count, flags);
  }
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
  return result;
}
