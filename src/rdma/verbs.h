// libibverbs, found when the program runs: nothing is linked with it, and a machine without cards needs nothing.
//
// Built against the distribution's header where there is one (HEADROOM_VERBS). Calls that the header makes through a device's
// own table (posting, polling, advising) need no symbol of the library.
#pragma once

#ifdef HEADROOM_VERBS
#include <infiniband/verbs.h>
// The header makes these macros, which call symbols of the library.
#undef ibv_reg_mr
#undef ibv_query_port

namespace headroom::rdma {

struct Verbs {
  ibv_device** (*get_device_list)(int* count);
  void (*free_device_list)(ibv_device** list);
  const char* (*get_device_name)(ibv_device* device);
  ibv_context* (*open_device)(ibv_device* device);
  int (*close_device)(ibv_context* context);
  int (*query_port)(ibv_context* context, uint8_t port, _compat_ibv_port_attr* attributes);
  int (*query_gid)(ibv_context* context, uint8_t port, int index, ibv_gid* gid);
  int (*query_device)(ibv_context* context, ibv_device_attr* attributes);
  ibv_pd* (*alloc_pd)(ibv_context* context);
  ibv_mr* (*reg_mr)(ibv_pd* domain, void* address, size_t bytes, int access);
  int (*dereg_mr)(ibv_mr* region);
  ibv_cq* (*create_cq)(ibv_context* context, int entries, void* user, ibv_comp_channel* channel, int vector);
  ibv_qp* (*create_qp)(ibv_pd* domain, ibv_qp_init_attr* attributes);
  int (*modify_qp)(ibv_qp* pair, ibv_qp_attr* attributes, int mask);
  int (*destroy_qp)(ibv_qp* pair);
  const char* (*wc_status_str)(ibv_wc_status status);
};

/// The library's functions; nullptr if it is not installed, or lacks one. Once; not thread-safe.
const Verbs* load_verbs();

}  // namespace headroom::rdma
#endif
