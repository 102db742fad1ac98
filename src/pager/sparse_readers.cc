// See sparse_readers.h. One probe at a time.
#include "pager/sparse_readers.h"

#include "pager/single_pages.h"
#include "pager/state.h"
#include "trace/counters.h"

namespace headroom::pager {
namespace {

constexpr uint64_t kMarkersToAProbe = 4;  // one block in so many of a reader is looked at: the rest is read ahead as usual
constexpr int kMostPages = 16;            // a quarter of the block
constexpr int kSureAfter = 4;             // probes in a row
constexpr uint16_t kEras = UINT16_MAX / kPagesOfBlock - 1;  // an entry has one and a page in 16 bits

struct Probe {
  bool runs;
  bool again;  // the reader came to the block at the same page as the last time
  uint64_t block;
  uint64_t pages;    // that it has used, a bit each
  uint64_t written;  // of these
};

Probe probe = {};
uint16_t* entries = nullptr;  // of each block: at which page, and when (an era), it was entered last
uint16_t era = 1;             // ends when a reader is seen to use all of a block: where it entered others says nothing
uint64_t entered = UINT64_MAX;
bool entered_again = false;
uint64_t markers = 0;
int found = 0;  // probes in a row that found a sparse reader

uint64_t bit_of(uint32_t page) { return uint64_t{1} << page; }

void end_probe(bool sparse) {
  probe.runs = false;
  if (!sparse) {
    era = era < kEras ? era + 1 : 1;
  }
  found = sparse && probe.again ? found + 1 : 0;
}

}  // namespace

bool open_sparse_readers(uint64_t blocks) {
  entries = static_cast<uint16_t*>(base::reserve_memory(blocks * sizeof(uint16_t)));
  return entries != nullptr;
}

void note_entry(uint64_t block, uint32_t page) {
  if (page == kWholeBlock || is_probed(block)) {
    return;
  }
  const auto entry = static_cast<uint16_t>(era * kPagesOfBlock + page);
  entered = block;
  entered_again = entries[block] == entry;
  entries[block] = entry;
}

bool is_probed(uint64_t block) { return probe.runs && probe.block == block; }

bool probe_page(uint64_t block, uint32_t page, bool write) {
  if (page == kWholeBlock || state.engine->kind() == base::EngineChoice::kSigsegv) {
    if (is_probed(block)) {
      end_probe(false);  // it gets the whole block, so nothing more will be seen
    }
    return false;
  }
  if (!is_probed(block)) {
    if (++markers % kMarkersToAProbe != 0 || entered != block) {
      return false;
    }
    probe = {true, entered_again, block, bit_of(page), write ? bit_of(page) : 0};
    return true;
  }
  if (write && (probe.pages & bit_of(page)) != 0) {
    if ((probe.written & bit_of(page)) != 0) {
      end_probe(false);  // it was being written out: a reader that has pages alone is not seen to use the block
      return false;
    }
    probe.written |= bit_of(page);
    return true;  // it was read before
  }
  const uint64_t beside = (page > 0 ? bit_of(page - 1) : 0) | (page + 1 < kPagesOfBlock ? bit_of(page + 1) : 0);
  if ((probe.pages & (beside | bit_of(page))) != 0) {
    end_probe(false);  // in order
    return false;
  }
  probe.pages |= bit_of(page);
  probe.written |= write ? bit_of(page) : 0;
  if (__builtin_popcountll(probe.pages) > kMostPages) {
    end_probe(false);
    return false;
  }
  return true;
}

bool conclude_probe(uint64_t block) {
  if (!is_probed(block)) {
    return false;
  }
  end_probe(true);
  if (found < kSureAfter) {
    return false;
  }
  found = 0;
  trace::count(trace::Counter::kReadersSparse);
  return true;
}

}  // namespace headroom::pager
