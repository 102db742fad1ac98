// An endpoint of libfabric for messages with tags, which arrive in their order, on the best network that the library has.
#pragma once

#include <netinet/in.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <cstddef>
#include <vector>

#include "rpipe/ofi_library.h"

namespace headroom::rpipe {

class OfiEndpoint {
 public:
  OfiEndpoint() = default;
  ~OfiEndpoint();
  OfiEndpoint(const OfiEndpoint&) = delete;
  OfiEndpoint& operator=(const OfiEndpoint&) = delete;

  /// `library`: nullptr if there is none. Returns nullptr, or a sentence on why there is no endpoint; good until the next call.
  const char* open(const OfiLibrary* library);
  /// Describes what ranks must have in common to reach each other: the provider, and the form of its names.
  void describe(char* text, size_t room) const;
  /// The name by which others reach it; 0: it is longer than `room`, else its length.
  [[nodiscard]] size_t read_name(char* name, size_t room) const;
  /// Whether names are addresses of the internet's, as they are over TCP.
  [[nodiscard]] bool has_internet_names() const;

  [[nodiscard]] fid_ep* endpoint() const { return endpoint_; }
  [[nodiscard]] fid_av* addresses() const { return addresses_; }
  [[nodiscard]] fid_cq* completions() const { return completions_; }

 private:
  /// Those that will do, the best first.
  static std::vector<const fi_info*> order(const fi_info* all);
  /// 0, or libfabric's error; then close() is to follow.
  long open_network(const fi_info* info);
  void close();
  const char* fail(const char* what, long error);

  const OfiLibrary* library_ = nullptr;
  fi_info* found_ = nullptr;
  const fi_info* chosen_ = nullptr;
  fid_fabric* fabric_ = nullptr;
  fid_domain* domain_ = nullptr;
  fid_av* addresses_ = nullptr;
  fid_cq* completions_ = nullptr;
  fid_ep* endpoint_ = nullptr;
  char why_[96] = {};
};

}  // namespace headroom::rpipe
