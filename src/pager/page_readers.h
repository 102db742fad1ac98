// Readers of single pages that go on by the same distance each time, such as a thread that walks down a column of a matrix that
// lies in rows: the pages that they come to next can be read meanwhile.
//
// A thread that has gone on by the same distance three times in a row is a reader. It has a window, in steps, that doubles
// while it goes on. Pages that are read ahead are mapped, so their use is not seen. Only one page in the middle of the window
// (the marker) stays unmapped: its use says that the reader is on its way. Several may go on side by side.
//
// Knows nothing of blocks, engines or stores; pages are numbered through the partition. Used by the pager's thread alone.
#pragma once

#include <cstdint>

namespace headroom::pager {

/// Pages first, first + step, ...; `count` of them.
struct PagesAhead {
  int64_t first;
  int64_t step;
  int64_t count;
};

class PageReaders {
 public:
  /// Notes that the program came to that page; returns the pages to read ahead. The same page again means nothing.
  PagesAhead note_use(uint64_t page);
  /// Of the pages that note_use() has named last, those from `first` on were not read: they may be named again.
  void not_read_from(int64_t first);
  /// Whether the page is to stay unmapped when it has been read.
  [[nodiscard]] bool is_marker(uint64_t page) const;

 private:
  static constexpr int kReaders = 8;
  struct Reader {
    int64_t last;
    int64_t step;  // 0: not known yet
    int64_t next;  // the first page that was not read ahead
    int64_t marker;
    int64_t window;  // in steps; 0: it has not gone on often enough
    int repeated;    // how often it has gone on by that step
    uint64_t used_at;
  };

  PagesAhead go_on(Reader& reader, int64_t page);
  bool begin_or_repeat(int64_t page);

  Reader readers_[kReaders] = {};
  Reader* named_for_ = nullptr;
  uint64_t clock_ = 0;
};

}  // namespace headroom::pager
