// See page_readers.h.
#include "pager/page_readers.h"

#include <algorithm>

namespace headroom::pager {
namespace {

constexpr int kSure = 3;                // steps of the same length: two are found by chance in random access
constexpr int64_t kFirstWindow = 4;     // pages: two steps in vain cost less than a block
constexpr int64_t kLargestWindow = 32;  // as many reads as keep an NVMe disk busy
constexpr int64_t kFarthest = 1 << 12;  // pages: a row of 16 MiB

}  // namespace

/// The reader is at `page` now; the window from there on.
PagesAhead PageReaders::go_on(Reader& reader, int64_t page) {
  reader.used_at = ++clock_;
  reader.last = page;
  reader.window = reader.window == 0 ? kFirstWindow : std::min(reader.window * 2, kLargestWindow);
  const int64_t direction = reader.step > 0 ? 1 : -1;
  const int64_t nearest = page + reader.step;
  reader.next = (reader.next - nearest) * direction > 0 ? reader.next : nearest;
  const int64_t farthest = page + reader.step * reader.window;
  const int64_t count = (farthest - reader.next) / reader.step + 1;
  const PagesAhead ahead = {reader.next, reader.step, std::max<int64_t>(count, 0)};
  if (ahead.count > 0) {
    const int64_t middle = page + reader.step * (reader.window / 2);
    reader.marker = (middle - ahead.first) * direction > 0 ? middle : ahead.first;
    reader.next = farthest + reader.step;
    named_for_ = &reader;
  }
  return ahead;
}

/// Whether the page was where a reader that is not known well enough goes on; else it may be the first page of one, or the
/// second.
bool PageReaders::begin_or_repeat(int64_t page) {
  Reader* oldest = &readers_[0];
  Reader* beside = nullptr;
  for (Reader& reader : readers_) {
    oldest = reader.used_at < oldest->used_at ? &reader : oldest;
    if (reader.used_at == 0 || reader.window > 0) {
      continue;
    }
    if (reader.step != 0 && reader.last + reader.step == page) {
      reader.last = page;
      reader.used_at = ++clock_;
      return ++reader.repeated >= kSure;
    }
    const int64_t distance = page - reader.last;
    if (reader.step == 0 && distance >= -kFarthest && distance <= kFarthest) {
      beside = &reader;
    }
  }
  if (beside != nullptr) {
    *beside = {page, page - beside->last, page, -1, 0, 1, ++clock_};
  } else {
    *oldest = {page, 0, page, -1, 0, 0, ++clock_};
  }
  return false;
}

PagesAhead PageReaders::note_use(uint64_t number) {
  const auto page = static_cast<int64_t>(number);
  for (const Reader& reader : readers_) {
    if (reader.used_at != 0 && reader.last == page) {
      return {0, 1, 0};
    }
  }
  for (Reader& reader : readers_) {
    const int64_t steps = reader.window > 0 ? (page - reader.last) / reader.step : 0;
    if (steps > 0 && steps <= reader.window + 1 && reader.last + steps * reader.step == page) {
      return go_on(reader, page);
    }
  }
  if (begin_or_repeat(page)) {
    for (Reader& reader : readers_) {
      if (reader.used_at != 0 && reader.last == page) {
        return go_on(reader, page);
      }
    }
  }
  return {0, 1, 0};
}

void PageReaders::not_read_from(int64_t first) { named_for_->next = first; }

bool PageReaders::is_marker(uint64_t page) const {
  for (const Reader& reader : readers_) {
    if (reader.window > 0 && reader.marker == static_cast<int64_t>(page)) {
      return true;
    }
  }
  return false;
}

}  // namespace headroom::pager
