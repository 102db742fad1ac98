// Which of libfabric's networks pipes take, where one that the library names cannot be opened. The library is the machine's,
// with two functions before it: one gives a list of networks as a test wants it, one refuses to open the first so many of them.
#include <gtest/gtest.h>

#ifdef HEADROOM_OFI

#include <arpa/inet.h>
#include <rdma/fi_errno.h>

#include <cstring>

#include "rpipe/ofi_endpoint.h"

#ifdef __SANITIZE_ADDRESS__
// libfabric 1.17 loses a description of its network when an endpoint is opened and closed.
extern "C" __attribute__((visibility("default"))) const char* __lsan_default_suppressions() { return "leak:libfabric.so\n"; }
#endif

namespace headroom::rpipe {
namespace {

const OfiLibrary* real = nullptr;
const char* addresses[2] = {};  // of the networks that are given
int refusals = 0;               // to come
int opened = 0;

/// Called tcp, or net by libfabric 1.17; not layered over connections.
bool is_plain_tcp(const fi_info& info) {
  const char* const name = info.fabric_attr->prov_name;
  return info.addr_format == FI_SOCKADDR_IN && (strcmp(name, "tcp") == 0 || strcmp(name, "net") == 0);
}

int give_two_networks(uint32_t version, const char* node, const char* service, uint64_t flags, const fi_info* hints,
                      fi_info** found) {
  fi_info* all = nullptr;
  const int error = real->get_info(version, node, service, flags, hints, &all);
  if (error != 0) {
    return error;
  }
  const fi_info* model = all;
  while (model != nullptr && !is_plain_tcp(*model)) {
    model = model->next;
  }
  *found = nullptr;
  for (int network = 1; model != nullptr && network >= 0; --network) {
    fi_info* const one = real->duplicate_info(model);
    inet_pton(AF_INET, addresses[network], &static_cast<sockaddr_in*>(one->src_addr)->sin_addr);
    one->next = *found;
    *found = one;
  }
  real->free_info(all);
  return model != nullptr ? 0 : -FI_ENODATA;
}

int open_unless_refused(fi_fabric_attr* attributes, fid_fabric** fabric, void* context) {
  if (refusals > 0) {
    --refusals;
    return -FI_EADDRNOTAVAIL;
  }
  ++opened;
  return real->open_fabric(attributes, fabric, context);
}

class OfiNetworks : public ::testing::Test {
 protected:
  void SetUp() override {
    opened = 0;
    real = find_ofi_library();
    ASSERT_NE(nullptr, real);
    library = *real;
    library.get_info = give_two_networks;
    library.open_fabric = open_unless_refused;
  }
  OfiLibrary library = {};
  OfiEndpoint endpoint;
};

TEST_F(OfiNetworks, TheNextOneIsTakenWhereOneCannotBeOpened) {
  addresses[0] = "127.0.0.2";
  addresses[1] = "127.0.0.1";
  refusals = 1;
  ASSERT_STREQ(nullptr, endpoint.open(&library));
  EXPECT_EQ(0, refusals);
  EXPECT_EQ(1, opened);
  char name[64];
  EXPECT_EQ(sizeof(sockaddr_in), endpoint.read_name(name, sizeof name));
  char text[INET_ADDRSTRLEN];
  EXPECT_STREQ("127.0.0.1", inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in*>(name)->sin_addr, text, sizeof text));
}

TEST_F(OfiNetworks, LoopbackIsNotTakenForOneThatCannotBeOpened) {
  addresses[0] = "192.0.2.1";
  addresses[1] = "127.0.0.1";
  refusals = 1;
  const char* const why = endpoint.open(&library);
  ASSERT_NE(nullptr, why);
  EXPECT_NE(nullptr, strstr(why, "libfabric's network cannot be opened: ")) << why;
  EXPECT_EQ(0, opened);
}

TEST_F(OfiNetworks, TheFirstErrorIsSaidWhereNoneCanBeOpened) {
  addresses[0] = "127.0.0.2";
  addresses[1] = "127.0.0.1";
  refusals = 2;
  const char* const why = endpoint.open(&library);
  ASSERT_NE(nullptr, why);
  EXPECT_NE(nullptr, strstr(why, real->error_text(FI_EADDRNOTAVAIL))) << why;
  EXPECT_EQ(0, refusals);
}

}  // namespace
}  // namespace headroom::rpipe

#endif
