// The functions of rpipe.h that allocate, write, read and free: their arguments are checked here, and the ends do the work
// (end.h).
#include <cerrno>
#include <cstring>

#include "headroom/rpipe.h"
#include "rpipe/address.h"
#include "rpipe/export.h"
#include "rpipe/handle.h"
#include "rpipe/handles.h"

namespace headroom::rpipe {

Owner owner_of(raddr_t buffer) {
  if (!has_begun()) {
    return {nullptr, 0, false, -EBADF};
  }
  if (!is_raddr(buffer)) {
    return {nullptr, 0, false, -EFAULT};
  }
  const Address address = from_raddr(buffer);
  const Ends ends = ends_of(address.rank, address.record);
  if (ends.writing != nullptr && ends.writing->writer.is_writers(address.buffer, address.generation)) {
    return {ends.writing, address.buffer, true, 0};
  }
  if (ends.reading != nullptr && ends.reading->reader.is_readers(address.buffer, address.generation)) {
    return {ends.reading, address.buffer, false, 0};
  }
  if (ends.writing == nullptr && ends.reading == nullptr) {
    return {nullptr, 0, false, -EBADF};
  }
  const bool was = (ends.writing != nullptr && ends.writing->writer.was_ever(address.buffer)) ||
                   (ends.reading != nullptr && ends.reading->reader.was_ever(address.buffer));
  return {nullptr, 0, false, was ? -EALREADY : -EFAULT};
}

namespace {

/// The question that every function that reads asks first.
int may_read(const End* end) { return end == nullptr ? -EBADF : end->reads() ? 0 : -EPERM; }
int may_write(const End* end) { return end == nullptr ? -EBADF : end->writes() ? 0 : -EPERM; }

/// The next message, if it is no longer than `room`.
int read_message(End& end, uint64_t room, raddr_t& buffer, uint64_t& bytes, int64_t timeout_ns) {
  return end.wait(timeout_ns, WaitsFor::kMessage, [&](bool /*has_waited*/) {
    const base::LockHolder lock(end.read_lock, end.is_for_threads());
    const int error = end.try_peek(bytes);
    return error != 0 ? error : bytes > room ? -EMSGSIZE : end.take(buffer);
  });
}

}  // namespace
}  // namespace headroom::rpipe

using namespace headroom::rpipe;  // NOLINT(google-build-using-namespace): this is its C face

extern "C" {

RPIPE_EXPORT int rpipe_alloc(rpipe_t pipe, size_t bytes, raddr_t* buffer, int64_t timeout_ns) {
  End* const end = end_of(pipe);
  if (const int error = may_write(end)) {
    return error;
  }
  if (buffer == nullptr) {
    return -EINVAL;
  }
  return end->wait(timeout_ns, WaitsFor::kRoom, [&](bool has_waited) { return end->try_allocate(bytes, has_waited, *buffer); });
}

RPIPE_EXPORT int rpipe_write(raddr_t buffer, size_t bytes, int64_t timeout_ns) {
  (void)timeout_ns;  // a node's ring of notices has always room
  const Owner owner = owner_of(buffer);
  if (owner.end == nullptr) {
    return owner.error;
  }
  if (!owner.is_writer) {
    return -EPERM;
  }
  const size_t has = owner.end->writer.buffer(owner.number).bytes;
  if (bytes != RPIPE_ALL && bytes > has) {
    return -EINVAL;
  }
  return owner.end->write(owner.number, bytes == RPIPE_ALL ? has : bytes);
}

RPIPE_EXPORT int rpipe_send(rpipe_t pipe, const void* content, size_t bytes, int64_t timeout_ns) {
  if (content == nullptr && bytes > 0) {
    return -EINVAL;
  }
  raddr_t buffer = 0;
  if (const int error = rpipe_alloc(pipe, bytes, &buffer, timeout_ns)) {
    return error;
  }
  End* const end = end_of(pipe);
  const uint32_t number = from_raddr(buffer).buffer;
  if (bytes > 0) {
    memcpy(end->writer.at(number), content, bytes);
  }
  const int error = end->write(number, bytes);
  if (error != 0) {
    (void)end->writer.take_back(number);
  }
  return error;
}

RPIPE_EXPORT int rpipe_read(rpipe_t pipe, raddr_t* buffer, size_t* bytes, int64_t timeout_ns) {
  End* const end = end_of(pipe);
  if (const int error = may_read(end)) {
    return error;
  }
  if (buffer == nullptr) {
    return -EINVAL;
  }
  uint64_t has = 0;
  const int error = read_message(*end, UINT64_MAX, *buffer, has, timeout_ns);
  if (error == 0 && bytes != nullptr) {
    *bytes = has;
  }
  return error;
}

RPIPE_EXPORT int rpipe_receive(rpipe_t pipe, void* into, size_t room, size_t* bytes, int64_t timeout_ns) {
  End* const end = end_of(pipe);
  if (const int error = may_read(end)) {
    return error;
  }
  if (into == nullptr && room > 0) {
    return -EINVAL;
  }
  raddr_t buffer = 0;
  uint64_t has = 0;
  const int error = read_message(*end, room, buffer, has, timeout_ns);
  if (bytes != nullptr && (error == 0 || error == -EMSGSIZE)) {
    *bytes = has;
  }
  if (error != 0) {
    return error;
  }
  if (into != nullptr && has > 0) {
    memcpy(into, end->reader.at(from_raddr(buffer).buffer), has);
  }
  return rpipe_free(buffer);
}

RPIPE_EXPORT int rpipe_free(raddr_t buffer) {
  const Owner owner = owner_of(buffer);
  if (owner.end != nullptr) {
    note_thread();
  }
  if (owner.end == nullptr) {
    return owner.error;
  }
  if (owner.is_writer) {
    if (!owner.end->writer.take_back(owner.number)) {
      return -EALREADY;
    }
    ring(own_root());  // another thread of this process may wait for room
    return 0;
  }
  return owner.end->release(owner.number) ? 0 : -EALREADY;
}

RPIPE_EXPORT void* rpipe_at(raddr_t buffer) {
  const Owner owner = owner_of(buffer);
  if (owner.end == nullptr) {
    return nullptr;
  }
  return owner.is_writer ? owner.end->writer.at(owner.number) : owner.end->reader.at(owner.number);
}

RPIPE_EXPORT rpipe_t rpipe_of(raddr_t buffer) {
  const Owner owner = owner_of(buffer);
  return owner.end == nullptr ? nullptr : &owner.end->handle();
}

}  // extern "C"
