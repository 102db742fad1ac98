// See card.h.
#include "rdma/card.h"

#ifdef HEADROOM_VERBS
#include <linux/falloc.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "arena/arena.h"
#include "base/log.h"
#include "base/system_calls.h"
#include "rdma/verbs.h"

namespace headroom::rdma {
namespace {

constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
constexpr int kPagingAccess = kAccess | IBV_ACCESS_ON_DEMAND;
constexpr uint64_t kPage = arena::kPageBytes;

const Verbs* verbs = nullptr;

ibv_context* context_of(void* context) { return static_cast<ibv_context*>(context); }
ibv_pd* domain_of(void* domain) { return static_cast<ibv_pd*>(domain); }
ibv_cq* queue_of(void* queue) { return static_cast<ibv_cq*>(queue); }
ibv_qp* pair_of(QueuePair* pair) { return reinterpret_cast<ibv_qp*>(pair); }

/// An older library has no advising for the kernel's own drivers although the kernel has.
int advise_by_kernel(const ibv_pd* domain, int descriptor, uint64_t advice, ibv_sge* range) {
  constexpr uint32_t kFlush = IBV_ADVISE_MR_FLAG_FLUSH;
  constexpr size_t kAttributes = 4;
  alignas(ib_uverbs_ioctl_hdr) char place[sizeof(ib_uverbs_ioctl_hdr) + kAttributes * sizeof(ib_uverbs_attr)] = {};
  auto* const call = reinterpret_cast<ib_uverbs_ioctl_hdr*>(place);
  call->length = sizeof place;
  call->object_id = UVERBS_OBJECT_MR;
  call->method_id = UVERBS_METHOD_ADVISE_MR;
  call->num_attrs = kAttributes;
  call->driver_id = RDMA_DRIVER_RXE;
  const auto set = [&](int at, uint16_t id, uint16_t bytes, uint64_t data) {
    call->attrs[at].attr_id = id;
    call->attrs[at].len = bytes;
    call->attrs[at].flags = UVERBS_ATTR_F_MANDATORY;
    call->attrs[at].data = data;
  };
  set(0, UVERBS_ATTR_ADVISE_MR_PD_HANDLE, 0, domain->handle);
  set(1, UVERBS_ATTR_ADVISE_MR_ADVICE, sizeof(uint64_t), advice);
  set(2, UVERBS_ATTR_ADVISE_MR_FLAGS, sizeof(uint32_t), kFlush);
  set(3, UVERBS_ATTR_ADVISE_MR_SGE_LIST, sizeof *range, reinterpret_cast<uint64_t>(range));
  const long result = base::system_call(SYS_ioctl, descriptor, RDMA_VERBS_IOCTL, call);
  return base::is_error(result) ? static_cast<int>(-result) : 0;
}

/// Whether the user has named this device, or none, as MPI libraries over UCX are told ("mlx5_0:1,mlx5_2:1").
bool is_wanted(const char* name) {
  const char* const wanted = getenv("UCX_NET_DEVICES");
  if (wanted == nullptr || strcmp(wanted, "all") == 0) {
    return true;
  }
  const size_t length = strlen(name);
  for (const char* at = strstr(wanted, name); at != nullptr; at = strstr(at + 1, name)) {
    const bool begins = at == wanted || at[-1] == ',';
    if (begins && (at[length] == 0 || at[length] == ':' || at[length] == ',')) {
      return true;
    }
  }
  return false;
}

}  // namespace

bool Card::refuse(const char* why) {
  why_ = why;
  domain_ = nullptr;
  return false;
}

/// The first device with an active port, of those that the user wants.
bool Card::open_device(void* list, int count) {
  auto** const devices = static_cast<ibv_device**>(list);
  for (int at = 0; at < count; ++at) {
    if (!is_wanted(verbs->get_device_name(devices[at]))) {
      continue;
    }
    ibv_context* const context = verbs->open_device(devices[at]);
    if (context == nullptr) {
      continue;
    }
    ibv_port_attr port = {};
    if (verbs->query_port(context, port_, reinterpret_cast<_compat_ibv_port_attr*>(&port)) == 0 &&
        port.state == IBV_PORT_ACTIVE) {
      (void)snprintf(name_, sizeof name_, "%s", verbs->get_device_name(devices[at]));
      context_ = context;
      mtu_ = port.active_mtu;
      own_.lid = port.lid;
      is_ethernet_ = port.link_layer == IBV_LINK_LAYER_ETHERNET;
      return true;
    }
    verbs->close_device(context);
  }
  return false;
}

/// On Ethernet an address that is one of IPv4's is reached everywhere; otherwise the first.
bool Card::find_address() {
  constexpr int kGids = 16;
  for (int index = 0; index < kGids; ++index) {
    ibv_gid gid = {};
    if (verbs->query_gid(context_of(context_), port_, index, &gid) != 0) {
      break;
    }
    const bool is_first = index == 0;
    const bool is_ipv4 = gid.raw[10] == 0xff && gid.raw[11] == 0xff;
    if (is_first || is_ipv4) {
      gid_index_ = index;
      memcpy(own_.gid, gid.raw, sizeof own_.gid);
    }
    if (is_ipv4) {
      break;
    }
  }
  return !is_ethernet_ || own_.gid[0] != 0 || own_.gid[10] != 0;
}

bool Card::ask_for_paging() {
  ibv_device_attr_ex attributes = {};
  verbs_context* const extended = verbs_get_ctx_op(context_of(context_), query_device_ex);
  if (extended == nullptr || extended->query_device_ex(context_of(context_), nullptr, &attributes, sizeof attributes) != 0) {
    return false;
  }
  reads_at_once_ = static_cast<uint32_t>(
      std::clamp(std::min(attributes.orig_attr.max_qp_rd_atom, attributes.orig_attr.max_qp_init_rd_atom), 1, 16));
  return (attributes.odp_caps.general_caps & IBV_ODP_SUPPORT) != 0 &&
         (attributes.odp_caps.per_transport_caps.rc_odp_caps & IBV_ODP_SUPPORT_READ) != 0;
}

bool Card::open(Scheme scheme, char* alias, uint64_t alias_bytes, uint32_t (*punches)(uint64_t offset), char* scratch) {
  scheme_ = scheme;
  alias_ = alias;
  alias_bytes_ = alias_bytes;
  punches_ = punches;
  verbs = load_verbs();
  if (verbs == nullptr) {
    return refuse("libibverbs.so.1 is not installed");
  }
  int count = 0;
  ibv_device** const devices = verbs->get_device_list(&count);
  const bool is_open = devices != nullptr && open_device(devices, count);
  if (devices != nullptr) {
    verbs->free_device_list(devices);
  }
  if (!is_open) {
    return refuse("this node has no RDMA card with an active port, or /dev/infiniband may not be used");
  }
  if (!find_address()) {
    return refuse("the card has no address");
  }
  if (!ask_for_paging() && scheme != Scheme::kPinned) {
    return refuse("the card has no on-demand paging for reads");
  }
  domain_ = verbs->alloc_pd(context_of(context_));
  completions_ = verbs->create_cq(context_of(context_), static_cast<int>(kReadsInAll), nullptr, nullptr, 0);
  const uint64_t blocks = alias_bytes / arena::kBlockBytes + 1;
  const uint64_t registrations = alias_bytes / kRegistrationBytes + 1;
  registrations_ = static_cast<void**>(base::reserve_memory(registrations * sizeof(void*)));
  mapped_to_read_ = static_cast<uint32_t*>(base::reserve_memory(blocks * sizeof(uint32_t)));
  mapped_to_write_ = static_cast<uint32_t*>(base::reserve_memory(blocks * sizeof(uint32_t)));
  if (domain_ == nullptr || completions_ == nullptr) {
    return refuse("the card refuses a protection domain or a completion queue (`ulimit -l`?)");
  }
  if (registrations_ == nullptr || mapped_to_read_ == nullptr || mapped_to_write_ == nullptr) {
    return refuse("no memory is left for what the card has mapped");
  }
  return scheme == Scheme::kPinned || try_reads(scratch);
}

bool Card::try_read(QueuePair* pair, char* into, uint32_t local_key, const char* from, uint32_t remote_key, uint64_t bytes) {
  if (!read(pair, into, local_key, reinterpret_cast<uint64_t>(from), remote_key, bytes, into)) {
    return false;
  }
  constexpr uint64_t kPatienceNs = 10'000'000'000;
  const uint64_t begin = base::monotonic_ns();
  Completion done = {};
  while (poll(&done, 1) == 0) {
    if (base::monotonic_ns() - begin > kPatienceNs) {
      why_ = "a read of the card did not end";
      return false;
    }
    (void)base::system_call(SYS_sched_yield);
  }
  return done.good;
}

/// Reads from this process to itself by on-demand paging: aligned content must come right, and right again after its memory was
/// taken away and filled anew: all safety here stands on that. It also finds out whether content that is not aligned comes
/// right.
bool Card::try_reads(char* scratch) {
  const long descriptor = base::system_call(SYS_memfd_create, "headroom-card", MFD_CLOEXEC);
  constexpr uint64_t kBytes = 4 * kPage;
  char* memory = static_cast<char*>(MAP_FAILED);
  if (!base::is_error(descriptor) && base::system_call(SYS_ftruncate, descriptor, kBytes) == 0) {
    const long mapped = base::system_call(SYS_mmap, nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    memory = base::is_error(mapped) ? memory : reinterpret_cast<char*>(mapped);
  }
  if (memory == MAP_FAILED) {
    return refuse("no memory is left to try the card with");
  }
  const auto fill = [&](int seed) {
    for (uint64_t at = 0; at < kBytes; ++at) {
      memory[at] = static_cast<char>(static_cast<uint64_t>(seed) + at * 7 + at / kPage);
    }
  };
  PairAddress here = {};
  PairAddress there = {};
  QueuePair* const one = make_pair(here);
  QueuePair* const other = make_pair(there);
  ibv_mr* const from = verbs->reg_mr(domain_of(domain_), memory, kBytes, kPagingAccess);
  ibv_mr* const to = verbs->reg_mr(domain_of(domain_), scratch, kScratchBytes, kPagingAccess);
  const char* why = nullptr;
  if (one == nullptr || other == nullptr || !connect(one, there) || !connect(other, here)) {
    why = "the card refuses a queue pair";
  } else if (from == nullptr || to == nullptr) {
    why = "the card refuses to register memory for on-demand paging";
  } else {
    constexpr uint64_t kOffset = 100;
    fill(1);
    const int advised = advise(reinterpret_cast<uint64_t>(memory), kBytes, from->lkey, false);
    bool right = try_read(one, scratch, to->lkey, memory, from->rkey, kBytes) && memcmp(scratch, memory, kBytes) == 0;
    (void)base::system_call(SYS_fallocate, descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kBytes);
    fill(2);
    right = right && try_read(one, scratch, to->lkey, memory, from->rkey, kBytes) && memcmp(scratch, memory, kBytes) == 0;
    memset(scratch, 0, kBytes);
    const bool anywhere = right && try_read(one, scratch + kOffset, to->lkey, memory + 2 * kOffset, from->rkey, kPage) &&
                          memcmp(scratch + kOffset, memory + 2 * kOffset, kPage) == 0;
    wants_whole_pages_ = !anywhere;
    why = why_ != nullptr ? why_
          : !right        ? "what the card read of memory that was taken away and filled anew was wrong"
          : advised != 0 && scheme_ != Scheme::kNative ? "the card cannot be asked to map memory before it is used"
                                                       : nullptr;
  }
  for (QueuePair* pair : {one, other}) {
    if (pair != nullptr) {
      drop(pair);
    }
  }
  for (ibv_mr* region : {from, to}) {
    if (region != nullptr) {
      verbs->dereg_mr(region);
    }
  }
  (void)base::system_call(SYS_munmap, memory, kBytes);
  (void)base::system_call(SYS_close, descriptor);
  return why == nullptr || refuse(why);
}

uint64_t Card::bytes_registered_together(uint64_t offset, uint64_t bytes) const {
  return std::min(bytes, kRegistrationBytes - offset % kRegistrationBytes);
}

/// The registration that `offset` lies in, made when it is first asked for.
void* Card::registration_of(uint64_t offset) {
  const uint64_t index = offset / kRegistrationBytes;
  if (registrations_[index] == nullptr) {
    const uint64_t begin = index * kRegistrationBytes;
    registrations_[index] =
        verbs->reg_mr(domain_of(domain_), alias_ + begin, std::min(kRegistrationBytes, alias_bytes_ - begin), kPagingAccess);
  }
  return registrations_[index];
}

bool Card::enter(uint64_t offset, uint64_t bytes, Registered& keys) {
  if (scheme_ == Scheme::kPinned) {
    return enter_fixed(alias_ + offset, bytes, keys);
  }
  const auto* const region = static_cast<ibv_mr*>(registration_of(offset));
  if (region == nullptr) {
    return false;
  }
  keys = {nullptr, region->lkey, region->rkey};
  return true;
}

bool Card::enter_fixed(char* memory, uint64_t bytes, Registered& keys) {
  ibv_mr* const region = verbs->reg_mr(domain_of(domain_), memory, bytes, scheme_ == Scheme::kPinned ? kAccess : kPagingAccess);
  if (region == nullptr) {
    return false;
  }
  keys = {region, region->lkey, region->rkey};
  return true;
}

void Card::leave(Registered& keys) {
  if (keys.pin != nullptr) {
    verbs->dereg_mr(static_cast<ibv_mr*>(keys.pin));
    keys.pin = nullptr;
  }
}

int Card::advise(uint64_t address, uint64_t bytes, uint32_t key, bool write) {
  ibv_sge range = {address, static_cast<uint32_t>(bytes), key};
  const auto advice = write ? IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE : IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH;
  if (!advises_raw_) {
    verbs_context* const extended = verbs_get_ctx_op(context_of(context_), advise_mr);
    const int error =
        extended == nullptr ? EOPNOTSUPP : extended->advise_mr(domain_of(domain_), advice, IBV_ADVISE_MR_FLAG_FLUSH, &range, 1);
    if (error != EOPNOTSUPP) {
      return error;
    }
    advises_raw_ = true;
  }
  return advise_by_kernel(domain_of(domain_), context_of(context_)->cmd_fd, advice, &range);
}

bool Card::is_mapped(uint64_t offset, uint64_t bytes, bool write) const {
  bool all = scheme_ == Scheme::kOptimal;
  for (uint64_t block = offset / arena::kBlockBytes; all && block * arena::kBlockBytes < offset + bytes; ++block) {
    const uint32_t now = punches_(block * arena::kBlockBytes) + 1;
    all = mapped_to_write_[block] == now || (!write && mapped_to_read_[block] == now);
  }
  return all;
}

uint64_t Card::prefetch(uint64_t offset, uint64_t bytes, const Registered& keys, bool write) {
  if (scheme_ == Scheme::kPinned || scheme_ == Scheme::kNative) {
    return 0;
  }
  if (scheme_ == Scheme::kEnhanced) {
    (void)advise(reinterpret_cast<uint64_t>(alias_ + offset), bytes, keys.local_key, write);
    return bytes;
  }
  uint64_t asked = 0;
  // A block at a time, since each may have been taken away at another time. Blocks, not the part that is wanted: earlier
  // requests are noted by block.
  for (uint64_t block = offset / arena::kBlockBytes; block * arena::kBlockBytes < offset + bytes; ++block) {
    const uint64_t begin = block * arena::kBlockBytes;
    const uint32_t now = punches_(begin) + 1;
    if (mapped_to_write_[block] == now || (!write && mapped_to_read_[block] == now)) {
      continue;
    }
    (write ? mapped_to_write_ : mapped_to_read_)[block] = now;
    if (advise(reinterpret_cast<uint64_t>(alias_ + begin), arena::kBlockBytes, keys.local_key, write) == 0) {
      asked += arena::kBlockBytes;
    }
  }
  return asked;
}

void Card::prefetch_fixed(char* memory, uint64_t bytes, const Registered& keys) {
  if (scheme_ == Scheme::kEnhanced || scheme_ == Scheme::kOptimal) {
    (void)advise(reinterpret_cast<uint64_t>(memory), bytes, keys.local_key, true);
  }
}

QueuePair* Card::make_pair(PairAddress& own) {
  ibv_qp_init_attr wanted = {};
  const uint32_t first = static_cast<uint32_t>(base::monotonic_ns() * 0x9e3779b97f4a7c15U >> 40);
  wanted.qp_context = reinterpret_cast<void*>(uintptr_t{first});
  wanted.send_cq = queue_of(completions_);
  wanted.recv_cq = queue_of(completions_);
  wanted.qp_type = IBV_QPT_RC;
  wanted.cap = {.max_send_wr = static_cast<uint32_t>(kReadsOfPair),
                .max_recv_wr = 1,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = 0};
  ibv_qp* const pair = verbs->create_qp(domain_of(domain_), &wanted);
  if (pair == nullptr) {
    return nullptr;
  }
  ibv_qp_attr begin = {};
  begin.qp_state = IBV_QPS_INIT;
  begin.port_num = port_;
  begin.qp_access_flags = IBV_ACCESS_REMOTE_READ;
  if (verbs->modify_qp(pair, &begin, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) != 0) {
    verbs->destroy_qp(pair);
    return nullptr;
  }
  own = own_;
  own.number = pair->qp_num;
  own.first = first;
  return reinterpret_cast<QueuePair*>(pair);
}

bool Card::connect(QueuePair* pair, const PairAddress& peer) {
  ibv_qp_attr receive = {};
  receive.qp_state = IBV_QPS_RTR;
  receive.path_mtu = static_cast<ibv_mtu>(mtu_);
  receive.dest_qp_num = peer.number;
  receive.rq_psn = peer.first;
  receive.max_dest_rd_atomic = static_cast<uint8_t>(reads_at_once_);
  receive.min_rnr_timer = 12;
  receive.ah_attr.port_num = port_;
  receive.ah_attr.dlid = static_cast<uint16_t>(peer.lid);
  if (is_ethernet_ || peer.lid == 0) {
    receive.ah_attr.is_global = 1;
    memcpy(receive.ah_attr.grh.dgid.raw, peer.gid, sizeof peer.gid);
    receive.ah_attr.grh.sgid_index = static_cast<uint8_t>(gid_index_);
    receive.ah_attr.grh.hop_limit = 64;
  }
  ibv_qp_attr send = {};
  send.qp_state = IBV_QPS_RTS;
  send.sq_psn = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(pair_of(pair)->qp_context));
  send.timeout = 18;  // about a second
  send.retry_cnt = 7;
  send.rnr_retry = 7;
  send.max_rd_atomic = static_cast<uint8_t>(reads_at_once_);
  constexpr int kReceive = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                           IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  constexpr int kSend =
      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
  return verbs->modify_qp(pair_of(pair), &receive, kReceive) == 0 && verbs->modify_qp(pair_of(pair), &send, kSend) == 0;
}

void Card::drop(QueuePair* pair) { verbs->destroy_qp(pair_of(pair)); }

bool Card::read(QueuePair* pair, char* into, uint32_t local_key, uint64_t from, uint32_t remote_key, uint64_t bytes,
                void* what) {
  ibv_sge range = {reinterpret_cast<uint64_t>(into), static_cast<uint32_t>(bytes), local_key};
  ibv_send_wr wanted = {};
  ibv_send_wr* bad = nullptr;
  wanted.wr_id = reinterpret_cast<uint64_t>(what);
  wanted.opcode = IBV_WR_RDMA_READ;
  wanted.send_flags = IBV_SEND_SIGNALED;
  wanted.sg_list = &range;
  wanted.num_sge = 1;
  wanted.wr.rdma.remote_addr = from;
  wanted.wr.rdma.rkey = remote_key;
  return ibv_post_send(pair_of(pair), &wanted, &bad) == 0;
}

int Card::poll(Completion* done, int most) {
  constexpr int kAtOnce = 16;
  ibv_wc entries[kAtOnce];
  const int count = ibv_poll_cq(queue_of(completions_), std::min(most, kAtOnce), entries);
  for (int at = 0; at < count; ++at) {
    done[at] = {reinterpret_cast<void*>(entries[at].wr_id), entries[at].status == IBV_WC_SUCCESS};
    if (!done[at].good && entries[at].status != IBV_WC_WR_FLUSH_ERR) {
      base::log_debug(base::Part::kDirect, "the card %s could not read: %s", name_, verbs->wc_status_str(entries[at].status));
    }
  }
  return std::max(count, 0);
}

}  // namespace headroom::rdma

#else

namespace headroom::rdma {

// Without the header of libibverbs where this was built: there is no card.
bool Card::open(Scheme, char*, uint64_t, uint32_t (*)(uint64_t), char*) {
  why_ = "this build knows no RDMA cards (libibverbs-dev was not there)";
  return false;
}
uint64_t Card::bytes_registered_together(uint64_t, uint64_t bytes) const { return bytes; }
bool Card::enter(uint64_t, uint64_t, Registered&) { return false; }
bool Card::enter_fixed(char*, uint64_t, Registered&) { return false; }
void Card::leave(Registered&) {}
bool Card::is_mapped(uint64_t, uint64_t, bool) const { return false; }
uint64_t Card::prefetch(uint64_t, uint64_t, const Registered&, bool) { return 0; }
void Card::prefetch_fixed(char*, uint64_t, const Registered&) {}
QueuePair* Card::make_pair(PairAddress&) { return nullptr; }
bool Card::connect(QueuePair*, const PairAddress&) { return false; }
void Card::drop(QueuePair*) {}
bool Card::read(QueuePair*, char*, uint32_t, uint64_t, uint32_t, uint64_t, void*) { return false; }
int Card::poll(Completion*, int) { return 0; }

}  // namespace headroom::rdma
#endif
