// See ofi_endpoint.h.
#include "rpipe/ofi_endpoint.h"

#include <arpa/inet.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>

#include <cstdio>
#include <cstring>
#include <initializer_list>

#include "rpipe/transport.h"

namespace headroom::rpipe {

namespace {

constexpr uint32_t kInterface = FI_VERSION(1, 9);

bool is_internet(uint32_t format) { return format == FI_SOCKADDR_IN || format == FI_SOCKADDR_IN6; }

bool is_loopback(const fi_info& info) {
  if (info.src_addr == nullptr) {
    return false;
  }
  if (info.addr_format == FI_SOCKADDR_IN) {
    return ntohl(static_cast<const sockaddr_in*>(info.src_addr)->sin_addr.s_addr) >> IN_CLASSA_NSHIFT == IN_LOOPBACKNET;
  }
  if (info.addr_format == FI_SOCKADDR_IN6) {
    const in6_addr& address = static_cast<const sockaddr_in6*>(info.src_addr)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(&address) || IN6_IS_ADDR_LINKLOCAL(&address);
  }
  return false;
}

/// Networks that end at the node, or lose messages.
bool is_unfit(const fi_info& info) {
  const char* const name = info.fabric_attr->prov_name;
  for (const char* const unfit : {"shm", "sm2", "lpp", "udp", "UDP", "ofi_hook", "coll"}) {
    if (strncmp(name, unfit, strlen(unfit)) == 0) {
      return true;
    }
  }
  return info.ep_attr->max_msg_size < RPIPE_MOST_BYTES_OF_MESSAGE;
}

}  // namespace

const char* OfiEndpoint::fail(const char* what, long error) {
  (void)snprintf(why_, sizeof why_, "%s: %s", what, library_->error_text(static_cast<int>(-error)));
  return why_;
}

/// The library names the fastest first. Two come last here, if there is nothing else: the loopback device, by which other nodes
/// are not reached; and messages that are layered over connections (ofi_rxm): over TCP they take three times as long as the
/// network's own (libfabric 2.5), and a rank crashed where one that had announced a long message ended (1.17).
std::vector<const fi_info*> OfiEndpoint::order(const fi_info* all) {
  constexpr int kWorst = 3;
  const auto badness = [](const fi_info& info) {
    return (is_loopback(info) ? 2 : 0) + (strstr(info.fabric_attr->prov_name, "ofi_rxm") != nullptr ? 1 : 0);
  };
  std::vector<const fi_info*> ordered;
  for (int wanted = 0; wanted <= kWorst; ++wanted) {
    for (const fi_info* each = all; each != nullptr; each = each->next) {
      if (!is_unfit(*each) && badness(*each) == wanted) {
        ordered.push_back(each);
      }
    }
  }
  return ordered;
}

const char* OfiEndpoint::open(const OfiLibrary* library) {
  library_ = library;
  if (library_ == nullptr) {
    return "there is no libfabric.so.1";
  }
  fi_info* const hints = library_->duplicate_info(nullptr);
  if (hints == nullptr) {
    return "no memory";
  }
  hints->caps = FI_TAGGED;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
  hints->domain_attr->threading = FI_THREAD_SAFE;
  hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
  hints->tx_attr->msg_order = FI_ORDER_SAS;
  hints->rx_attr->msg_order = FI_ORDER_SAS;
  const int found = library_->get_info(kInterface, nullptr, nullptr, 0, hints, &found_);
  library_->free_info(hints);
  const std::vector<const fi_info*> fit = found != 0 ? std::vector<const fi_info*>{} : order(found_);
  if (fit.empty()) {
    return fail("libfabric has no network for it", found != 0 ? found : -FI_ENODATA);
  }
  // The library names networks, too, that cannot be used: an address that is not the machine's any more, say.
  long first_error = 0;
  for (const fi_info* const each : fit) {
    if (is_loopback(*each) && !is_loopback(*fit.front())) {
      break;  // the others would not reach it, and take their own for it
    }
    const long error = open_network(each);
    if (error == 0) {
      return nullptr;
    }
    first_error = first_error == 0 ? error : first_error;
    close();
  }
  return fail("libfabric's network cannot be opened", first_error);
}

long OfiEndpoint::open_network(const fi_info* info) {
  chosen_ = info;
  fi_av_attr addresses = {};
  addresses.type = chosen_->domain_attr->av_type;
  fi_cq_attr completions = {};
  completions.format = FI_CQ_FORMAT_CONTEXT;
  completions.wait_obj = FI_WAIT_NONE;
  long error = library_->open_fabric(chosen_->fabric_attr, &fabric_, nullptr);
  error = error != 0 ? error : fi_domain(fabric_, const_cast<fi_info*>(chosen_), &domain_, nullptr);
  error = error != 0 ? error : fi_av_open(domain_, &addresses, &addresses_, nullptr);
  error = error != 0 ? error : fi_cq_open(domain_, &completions, &completions_, nullptr);
  error = error != 0 ? error : fi_endpoint(domain_, const_cast<fi_info*>(chosen_), &endpoint_, nullptr);
  error = error != 0 ? error : fi_ep_bind(endpoint_, &addresses_->fid, 0);
  error = error != 0 ? error : fi_ep_bind(endpoint_, &completions_->fid, FI_TRANSMIT | FI_RECV);
  return error != 0 ? error : fi_enable(endpoint_);
}

void OfiEndpoint::close() {
  const auto close_one = [](auto*& object) {
    if (object != nullptr) {
      (void)fi_close(&object->fid);
      object = nullptr;
    }
  };
  close_one(endpoint_);
  close_one(completions_);
  close_one(addresses_);
  close_one(domain_);
  close_one(fabric_);
}

OfiEndpoint::~OfiEndpoint() {
  close();
  if (found_ != nullptr) {
    library_->free_info(found_);
  }
}

size_t OfiEndpoint::read_name(char* name, size_t room) const {
  size_t bytes = room;
  return fi_getname(&endpoint_->fid, name, &bytes) == 0 && bytes <= room ? bytes : 0;
}

void OfiEndpoint::describe(char* text, size_t room) const {
  (void)snprintf(text, room, "%s with names of form %u", chosen_->fabric_attr->prov_name, chosen_->addr_format);
}

bool OfiEndpoint::has_internet_names() const { return is_internet(chosen_->addr_format); }

}  // namespace headroom::rpipe
