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
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "heap/held_calls.h"
#include "trace/counters.h"

namespace {

using namespace headroom;
using heap::held_bytes;
using heap::in_pieces;
using heap::is_ours;
using heap::largest_hold;
using heap::may_read_on;
using heap::VectorHold;

/// One call by way of a copy: data that must go as a whole (a datagram, as much as a pipe takes at once) lies in more blocks
/// than may be held.
template <typename Whole>
ssize_t by_copy(const iovec* vectors, int count, size_t bytes, bool kernel_writes, Whole whole) {
  const heap::PlainMemory copy(bytes);
  if (copy.address == nullptr) {
    errno = ENOMEM;
    return -1;
  }
  char* at = static_cast<char*>(copy.address);
  for (int index = 0; !kernel_writes && index < count; at += vectors[index++].iov_len) {
    memcpy(at, vectors[index].iov_base, vectors[index].iov_len);
  }
  const iovec one = {copy.address, bytes};
  const ssize_t result = whole(&one, 1);
  const int saved_errno = errno;
  size_t left = kernel_writes && result > 0 ? static_cast<size_t>(result) : 0;
  at = static_cast<char*>(copy.address);
  for (int index = 0; left > 0; ++index) {
    const size_t piece = std::min<size_t>(left, vectors[index].iov_len);
    memcpy(vectors[index].iov_base, at, piece);
    at += piece;
    left -= piece;
  }
  trace::count(trace::Counter::kBouncedBytes, result > 0 ? static_cast<uint64_t>(result) : 0);
  errno = saved_errno;
  return result;
}

constexpr size_t kMostOfDevices = 16 << 20;  // in one call of so much, hardly for a terminal

/// Whether each call on the file is a message of its own: sockets but those of streams, and devices.
bool takes_messages(int file, size_t bytes) {
  struct stat status = {};
  if (fstat(file, &status) != 0 || !S_ISSOCK(status.st_mode)) {
    return S_ISCHR(status.st_mode) && bytes <= kMostOfDevices;
  }
  int type = 0;
  socklen_t length = sizeof type;
  return getsockopt(file, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type != SOCK_STREAM;
}

/// Reads a range that takes more than one call from a file's position, which threads and processes may share: the range is
/// claimed first, so that others read before or behind all of it. `read_at(offset)` reads all. False if the file has no such
/// range.
template <typename ReadAt>
bool read_claimed(int file, size_t bytes, ReadAt read_at, ssize_t& result) {
  struct stat status = {};
  const off_t position = lseek(file, 0, SEEK_CUR);
  if (bytes > SSIZE_MAX || position < 0 || fstat(file, &status) != 0 || !S_ISREG(status.st_mode) ||
      position >= status.st_size) {
    return false;
  }
  const off_t left = status.st_size - position;
  const off_t wanted = std::min<off_t>(left, static_cast<off_t>(bytes));
  const off_t end = lseek(file, wanted, SEEK_CUR);  // by now another one's position, maybe
  if (end < 0) {
    return false;
  }
  result = read_at(end - wanted);
  result = std::min(result, wanted);  // bytes by which the file has grown belong to the next read
  if (result < wanted) {
    const int saved_errno = errno;
    (void)lseek(file, std::max<off_t>(result, 0) - wanted, SEEK_CUR);
    errno = saved_errno;
  }
  return true;
}

size_t bytes_of(const iovec* vectors, int count) {
  size_t bytes = 0;
  for (int index = 0; index < count; ++index) {
    bytes += vectors[index].iov_len;
  }
  return bytes;
}

/// One call with all of the vectors, if those in evictable memory may be held together now. False: nothing was done.
template <typename Whole>
bool try_whole(const iovec* vectors, int count, bool kernel_writes, Whole whole, ssize_t& result) {
  const VectorHold held(vectors, static_cast<size_t>(count), kernel_writes, VectorHold::When::kIfItMay);
  if (held.holds_all()) {
    result = whole(vectors, count);
  }
  return held.holds_all();
}

/// readv and writev: one call if the buffers in evictable memory may be held together or are small, else vector by vector; or
/// `try_claimed(result)`, which is asked in between.
template <typename Whole, typename Single, typename TryClaimed>
ssize_t vectored(int file, const iovec* vectors, int count, bool kernel_writes, Whole whole, Single single,
                 TryClaimed try_claimed) {
  const size_t ours = count > 0 && count <= 1024 ? held_bytes(vectors, count) : 0;
  if (ours == 0) {
    return whole(vectors, count);
  }
  ssize_t done = 0;
  if (try_whole(vectors, count, kernel_writes, whole, done) || try_claimed(done)) {
    return done;
  }
  const size_t bytes = bytes_of(vectors, count);
  if (bytes <= arena::kBlockBytes || takes_messages(file, bytes)) {
    return by_copy(vectors, count, bytes, kernel_writes, whole);
  }
  for (int index = 0; index < count; ++index) {
    const ssize_t result = single(vectors[index], done);
    if (result < 0) {
      return done > 0 ? done : result;
    }
    done += result;
    if (static_cast<size_t>(result) < vectors[index].iov_len || (kernel_writes && done > 0 && !may_read_on(file))) {
      break;
    }
  }
  return done;
}

template <typename Whole, typename Single>
ssize_t vectored(int file, const iovec* vectors, int count, bool kernel_writes, Whole whole, Single single) {
  return vectored(file, vectors, count, kernel_writes, whole, single, [](ssize_t&) { return false; });
}

/// One call with as many of the vectors as may be held together: a short transfer, which such calls may return anyway.
template <typename Call>
ssize_t together(const iovec* vectors, int count, bool kernel_writes, Call call) {
  for (; count > 1 && count <= 1024 && vectors->iov_len == 0; ++vectors, --count) {  // else 0 would look like the end
  }
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
  if (!is_ours(buffer, bytes) || bytes > SSIZE_MAX) {  // the kernel refuses a number that can be no length
    return real_read.get()(file, buffer, bytes);
  }
  const iovec vector = {buffer, bytes};
  const auto once = [=](const iovec* one, int) { return real_read.get()(file, one->iov_base, one->iov_len); };
  const bool may_be_whole = bytes <= heap::kMostWhileWaiting || may_read_on(file);
  ssize_t result = 0;
  if (may_be_whole && try_whole(&vector, 1, true, once, result)) {
    return result;
  }
  if (read_claimed(file, bytes, [=](off_t offset) { return pread(file, buffer, bytes, offset); }, result)) {
    return result;
  }
  if (takes_messages(file, bytes)) {
    return by_copy(&vector, 1, bytes, true, once);
  }
  const size_t wanted = may_be_whole ? bytes : heap::kMostWhileWaiting;
  return in_pieces(
      buffer, wanted, true, [=](char* at, size_t piece, size_t) { return real_read.get()(file, at, piece); },
      [=] { return may_read_on(file); });
}

HEADROOM_EXPORT ssize_t write(int file, const void* buffer, size_t bytes) {
  if (!is_ours(buffer, bytes) || bytes > SSIZE_MAX) {
    return real_write.get()(file, buffer, bytes);
  }
  const iovec vector = {const_cast<void*>(buffer), bytes};
  const auto once = [=](const iovec* one, int) { return real_write.get()(file, one->iov_base, one->iov_len); };
  ssize_t result = 0;
  if (try_whole(&vector, 1, false, once, result)) {
    return result;
  }
  if (takes_messages(file, bytes)) {
    return by_copy(&vector, 1, bytes, false, once);
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
      file, vectors, count, true, [=](const iovec* parts, int many) { return real_readv.get()(file, parts, many); },
      [=](const iovec& vector, ssize_t) { return read(file, vector.iov_base, vector.iov_len); },
      [=](ssize_t& result) {
        return read_claimed(
            file, bytes_of(vectors, count), [=](off_t offset) { return preadv(file, vectors, count, offset); }, result);
      });
}
HEADROOM_EXPORT ssize_t writev(int file, const iovec* vectors, int count) {
  return vectored(
      file, vectors, count, false, [=](const iovec* parts, int many) { return real_writev.get()(file, parts, many); },
      [=](const iovec& vector, ssize_t) { return write(file, vector.iov_base, vector.iov_len); });
}
HEADROOM_EXPORT ssize_t preadv(int file, const iovec* vectors, int count, off_t offset) {
  return vectored(
      file, vectors, count, true, [=](const iovec* parts, int many) { return real_preadv.get()(file, parts, many, offset); },
      [=](const iovec& vector, ssize_t done) { return pread(file, vector.iov_base, vector.iov_len, offset + done); });
}
HEADROOM_EXPORT ssize_t preadv64(int file, const iovec* vectors, int count, off_t offset) {
  return preadv(file, vectors, count, offset);
}
HEADROOM_EXPORT ssize_t pwritev(int file, const iovec* vectors, int count, off_t offset) {
  return vectored(
      file, vectors, count, false, [=](const iovec* parts, int many) { return real_pwritev.get()(file, parts, many, offset); },
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

/// The ranges that vectors describe, a part at a time.
class VectorParts {
 public:
  VectorParts(const iovec* vectors, unsigned long count) : vectors_(vectors), count_(count) {}
  /// The rest of the vector that is next; bytes 0 at the end.
  iovec rest() {
    while (index_ < count_ && used_ == vectors_[index_].iov_len) {
      ++index_;
      used_ = 0;
    }
    return index_ == count_ ? iovec{nullptr, 0}
                            : iovec{static_cast<char*>(vectors_[index_].iov_base) + used_, vectors_[index_].iov_len - used_};
  }
  void skip(size_t bytes) { used_ += bytes; }

 private:
  const iovec* vectors_;
  unsigned long count_;
  unsigned long index_ = 0;
  size_t used_ = 0;
};

/// Pieces of both sides for one call: near each other at the other side, and together no more than may be held.
struct RemotePart {
  static constexpr size_t kMost = 64;

  /// False if there is nothing, or it belongs to another part.
  bool add(const iovec& source, const iovec& target) {
    const size_t most = largest_hold();
    size_t piece = std::min(source.iov_len, target.iov_len);
    const size_t room = bytes < most ? most - bytes : 0;
    piece = std::min(piece, room);
    const auto first = reinterpret_cast<uint64_t>(target.iov_base);
    const uint64_t new_begin = std::min(first, begin);
    const uint64_t new_end = std::max<uint64_t>(first + piece, end);
    if (piece == 0 || count == kMost || (count > 0 && new_end - new_begin > most)) {
      return false;
    }
    local[count] = {source.iov_base, piece};
    remote[count] = {target.iov_base, piece};
    ++count;
    bytes += piece;
    begin = new_begin;
    end = new_end;
    return true;
  }
  [[nodiscard]] size_t last_bytes() const { return local[count - 1].iov_len; }

  iovec local[kMost];
  iovec remote[kMost];
  unsigned long count = 0;
  size_t bytes = 0;
  uint64_t begin = UINT64_MAX;
  uint64_t end = 0;
};

/// Writing another process's memory: its pager must not take a block away between our write and its write-out (the write
/// does not pass through its page tables). It looks for our mark after it has protected a block (pager/eviction.cc).
HEADROOM_EXPORT ssize_t process_vm_writev(pid_t pid, const iovec* local, unsigned long local_count, const iovec* remote,
                                          unsigned long remote_count, unsigned long flags) {
  if (!pager::is_running()) {
    return real_process_vm_writev.get()(pid, local, local_count, remote, remote_count, flags);
  }
  if (local_count > IOV_MAX || remote_count > IOV_MAX) {
    errno = EINVAL;
    return -1;
  }
  // The mark has room for one call of a process; threads take turns. In parts, since marked memory does not leave, and the
  // writing may need room there.
  static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&one_at_a_time);
  node::Member& self = *pager::session().self;
  VectorParts from(local, local_count);
  VectorParts to(remote, remote_count);
  ssize_t result = 0;
  for (;;) {
    RemotePart part;
    while (part.add(from.rest(), to.rest())) {
      from.skip(part.last_bytes());
      to.skip(part.last_bytes());
    }
    if (part.bytes == 0 && result > 0) {
      break;
    }
    self.remote_write.begin.store(part.begin, std::memory_order_relaxed);
    self.remote_write.end.store(part.end, std::memory_order_relaxed);
    std::atomic<int32_t>& mark = self.remote_write.target;
    // seq_cst: pairs with the pager's look in is_written_remotely(); either it sees the mark or we meet its protection.
    mark.store(pid, std::memory_order_seq_cst);
    const ssize_t written = real_process_vm_writev.get()(pid, part.local, part.count, part.remote, part.count, flags);
    mark.store(0, std::memory_order_release);
    if (written < 0) {
      result = result > 0 ? result : written;
      break;
    }
    result += written;
    if (static_cast<size_t>(written) < part.bytes || part.bytes == 0) {
      break;
    }
  }
  pthread_mutex_unlock(&one_at_a_time);
  return result;
}
