// See page_uses.h.
#include "pager/page_uses.h"

#include <initializer_list>

namespace headroom::pager {
namespace {

constexpr uint64_t kRemembered = 4096;  // pages; then older ones count half
constexpr uint64_t kEnough = 256;       // pages, before anything is believed

uint64_t count(uint64_t pages) { return static_cast<uint64_t>(__builtin_popcountll(pages)); }

}  // namespace

void PageUses::note_visit(uint64_t hidden, uint64_t used, uint64_t proven) {
  proven_.hidden += count(hidden & proven);
  proven_.used += count(used & proven);
  others_.hidden += count(hidden & ~proven);
  others_.used += count(used & ~proven);
  for (Pages* pages : {&proven_, &others_}) {
    if (pages->hidden > kRemembered) {
      pages->hidden /= 2;
      pages->used /= 2;
    }
  }
}

bool PageUses::some_are_hot() const {
  // used / hidden of the proven ones is a quarter more than that of the others.
  return proven_.hidden >= kEnough && others_.hidden >= kEnough &&
         4 * proven_.used * others_.hidden > 5 * others_.used * proven_.hidden;
}

}  // namespace headroom::pager
