// See verbs.h.
#include "rdma/verbs.h"

#ifdef HEADROOM_VERBS
#include <dlfcn.h>

namespace headroom::rdma {
namespace {

template <typename Function>
bool find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

const Verbs* load_verbs() {
  static Verbs verbs;
  void* const library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  const bool found =
      library != nullptr && find(library, "ibv_get_device_list", verbs.get_device_list) &&
      find(library, "ibv_free_device_list", verbs.free_device_list) && find(library, "ibv_open_device", verbs.open_device) &&
      find(library, "ibv_get_device_name", verbs.get_device_name) && find(library, "ibv_close_device", verbs.close_device) &&
      find(library, "ibv_query_port", verbs.query_port) && find(library, "ibv_query_gid", verbs.query_gid) &&
      find(library, "ibv_alloc_pd", verbs.alloc_pd) && find(library, "ibv_reg_mr", verbs.reg_mr) &&
      find(library, "ibv_dereg_mr", verbs.dereg_mr) && find(library, "ibv_create_cq", verbs.create_cq) &&
      find(library, "ibv_create_qp", verbs.create_qp) && find(library, "ibv_modify_qp", verbs.modify_qp) &&
      find(library, "ibv_destroy_qp", verbs.destroy_qp) && find(library, "ibv_wc_status_str", verbs.wc_status_str) &&
      find(library, "ibv_query_device", verbs.query_device);
  return found ? &verbs : nullptr;
}

}  // namespace headroom::rdma
#endif
