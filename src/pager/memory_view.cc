// See memory_view.h.
#include "pager/memory_view.h"

#include "pager/shares.h"
#include "pager/state.h"
#include "pager/store_speed.h"

namespace headroom::pager {
namespace {

class ViewOfState final : public MemoryView {
 public:
  [[nodiscard]] uint64_t share() const override { return share_of_memory(); }
  [[nodiscard]] int64_t for_one() const override { return memory_for_one(); }
  [[nodiscard]] uint64_t came_back() const override { return state.resident.came_back(); }
  [[nodiscard]] int pages_worth_a_block() const override { return pager::pages_worth_a_block(); }
  [[nodiscard]] uint64_t blocks() const override {
    return state.partition->committed.load(std::memory_order_relaxed) / arena::kBlockBytes;
  }
};

}  // namespace

const MemoryView& memory_view() {
  static const ViewOfState view;
  return view;
}

}  // namespace headroom::pager
