// See present_pages.h.
#include "pager/present_pages.h"

#include <string.h>

#include "pager/block_words.h"
#include "pager/checksums.h"
#include "pager/single_pages.h"
#include "pager/state.h"

namespace headroom::pager {

using namespace arena;

namespace detail {
Pages* table_of_pages = nullptr;
}

bool open_present_pages(uint64_t blocks) {
  detail::table_of_pages = static_cast<Pages*>(base::reserve_memory(blocks * sizeof(Pages)));
  return detail::table_of_pages != nullptr;
}

View view_of_page(uint64_t block, uint32_t page) {
  return {view_of_block(*state.partition, block).address + page * kPageBytes, kPageBytes};
}

char* alias_of_page(uint64_t block, uint64_t page) {
  return reinterpret_cast<char*>(state.partition->alias + block * kBlockBytes + page * kPageBytes);
}

bool is_zero_page(uint64_t block, uint32_t page) {
  const auto* words = reinterpret_cast<const uint64_t*>(alias_of_page(block, page));
  for (uint64_t index = 0; index < kPageBytes / sizeof(uint64_t); index += 8) {
    if ((words[index] | words[index + 1] | words[index + 2] | words[index + 3] | words[index + 4] | words[index + 5] |
         words[index + 6] | words[index + 7]) != 0) {
      return false;
    }
  }
  return true;
}

void set_state(uint64_t block, uint64_t clear, uint64_t set) { change_word(word_of(block), clear | kStateMask, set); }

bool is_present_page(uint64_t block, uint32_t page) {
  return page != kWholeBlock && (pages_of(block).present & bit_of(page)) != 0;
}

bool pages_are_moving(uint64_t block) { return pages_of(block).reading != 0 || pages_of(block).writes != 0; }

uint64_t bytes_of_pages(uint64_t block) {
  return static_cast<uint64_t>(bytes_of(pages_of(block).present | pages_of(block).reading));
}

void forget_pages(uint64_t block) {
  if (state.resident.is_listed(block)) {
    state.resident.remove(block);
  }
  punch(*state.partition, block, 1);
  node::release(*state.session->ledger, *state.session->self, bytes_of(pages_of(block).present));
  pages_of(block) = {};
}

bool absent_pages_are_right(uint64_t block, const char* content) {
  for (uint32_t page = 0; page < kPagesOfBlock; ++page) {
    if ((pages_of(block).present & bit_of(page)) == 0 &&
        !compare_with_written(block * kBlockBytes + page * kPageBytes, content + page * kPageBytes, kPageBytes)) {
      return false;
    }
  }
  return true;
}

void overlay_pages(uint64_t block, char* content) {
  for (uint32_t page = 0; page < kPagesOfBlock; ++page) {
    if ((pages_of(block).present & bit_of(page)) != 0) {
      memcpy(content + page * kPageBytes, alias_of_page(block, page), kPageBytes);
    }
  }
}

}  // namespace headroom::pager
