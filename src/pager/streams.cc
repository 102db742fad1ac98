// Sequential readers, forward and backward: recognised by faults on blocks one after the other, and read ahead of.
//
// A stream has a window, from its last fault on, that doubles while the reader goes on. A block in the middle of it stays
// unmapped (the marker): its first use says that the reader is on its way, and so does the use of a block that was hidden, or
// the wait for one that is being read. Each read that ends asks for as many more, up to two windows from the reader's last
// fault, so that the disk goes on while content is placed.
//
// Markers are samples, too: they are mapped as the program uses them. If it has written to the last ones, the blocks that
// follow are mapped writable at once, which saves a fault a block; if that was wrong, the blocks between two markers are
// written out in vain.
#include "pager/streams.h"

#include <algorithm>

#include "pager/block_words.h"
#include "pager/random_access.h"
#include "pager/read_buffers.h"
#include "pager/room.h"
#include "pager/shares.h"
#include "pager/single_pages.h"
#include "pager/sparse_readers.h"
#include "pager/state.h"
#include "pager/transfers.h"
#include "pager/untouched_pages.h"
#include "trace/counters.h"

namespace headroom::pager {
namespace {

using namespace arena;
using trace::Counter;

constexpr uint32_t kNearestPages = 16;   // a quarter of a block: nearer than that is the same reader
constexpr uint32_t kNearestOfYoung = 2;  // pages, while it is not sure yet that it is one
constexpr uint64_t kYoung = 3;           // times that it went on
constexpr int64_t kSureSamples = 2;      // blocks that it was seen to write
constexpr int64_t kMostUnseen = 64;      // blocks that are looked at behind it, so that a fault stays short
constexpr int64_t kWide = 4 * static_cast<int64_t>(kTransferBlocks);  // blocks: four transfers under way keep the disk busy

/// How many blocks just before `block`, in that direction, are in memory: a reader passes them without a fault.
int64_t passed_unseen(int64_t block, int64_t direction) {
  const auto committed = static_cast<int64_t>(state.partition->committed.load(std::memory_order_relaxed) / kBlockBytes);
  int64_t count = 0;
  for (int64_t before = block - direction; count < kMostUnseen && before >= 0 && before < committed; before -= direction) {
    if (state_of(word_of(static_cast<uint64_t>(before)).load(std::memory_order_relaxed)) != kResident) {
      break;
    }
    ++count;
  }
  return count;
}

/// The stream that an access to `block` continues, where it is or a little ahead, or nullptr; `direction` is then which way.
Stream* stream_of(uint64_t block, int64_t& direction) {
  const auto number = static_cast<int64_t>(block);
  const int64_t unseen[2] = {passed_unseen(number, 1), passed_unseen(number, -1)};
  for (Stream& stream : state.streams) {
    for (direction = 1; direction >= -1; direction -= 2) {
      const int64_t next = stream.direction != 0 ? stream.next : stream.last + direction;
      const int64_t farthest = stream.direction != 0 ? 1 + unseen[direction > 0 ? 0 : 1] : 1;
      if (stream.window != 0 && stream.direction != -direction && (number - stream.last) * direction > 0 &&
          (number - next) * direction <= farthest) {
        return &stream;
      }
    }
  }
  return nullptr;
}

/// Whether a reader was seen there before, waiting for the block.
bool is_seen_already(int64_t block) {
  for (const Stream& stream : state.streams) {
    if (stream.window != 0 && stream.last == block) {
      return true;
    }
  }
  return false;
}

/// In place of the stream that was used longest ago.
void begin_stream(Stream begun) {
  Stream* oldest = &state.streams[0];
  for (Stream& stream : state.streams) {
    oldest = stream.used_at < oldest->used_at ? &stream : oldest;
  }
  begun.used_at = ++state.stream_clock;
  for (uint64_t& use : begun.uses) {
    use = begun.used_at;
  }
  *oldest = begun;
}

/// At a marker: notes whether the program has written to the one before.
void note_sample(Stream& stream) {
  const uint64_t word = stream.sample < 0 ? 0 : word_of(static_cast<uint64_t>(stream.sample)).load(std::memory_order_relaxed);
  if (state_of(word) == kResident) {
    stream.written_samples = (word & kDirty) != 0 ? stream.written_samples + 1 : 0;
  }
  stream.sample = stream.marker;
}

/// How far one stream may read ahead, in blocks. All together they must not push out blocks that were read and are not used
/// yet, so it has what others do not take, or an equal part. A reader counts if it has been seen since this one was for the
/// last times.
uint64_t room_of_one(const Stream& stream) {
  const uint64_t longest_ago = stream.uses[stream.extended % kUsesKnown];
  uint64_t count = 1;
  uint64_t taken = 0;
  for (const Stream& other : state.streams) {
    const int64_t ahead = (other.next - other.last) * other.direction - 1;
    if (&other != &stream && other.followed && ahead > 0 && other.used_at > longest_ago) {
      ++count;
      taken += static_cast<uint64_t>(ahead);
    }
  }
  if (stream.extended >= kUsesKnown) {
    state.resident.serve_readers(count);
  }
  const uint64_t room = state.resident.room_ahead(share_of_memory() / kBlockBytes);
  const uint64_t part = std::max<uint64_t>(room / count, 2);
  return room > taken + part ? room - taken : part;
}

uint64_t committed_blocks() { return state.partition->committed.load(std::memory_order_relaxed) / kBlockBytes; }

/// How many of the blocks from the stream's next on can be read in one transfer. A wide window moves on by whole transfers, so
/// that a reader that waits for each block does not have them read one by one.
uint64_t stored_run(const Stream& stream) {
  const auto next = static_cast<uint64_t>(stream.next);
  const uint64_t most = stream.direction > 0 ? transfer_room(next) : next % kTransferBlocks + 1;
  const auto ahead = static_cast<uint64_t>((stream.end - stream.next) * stream.direction);
  const uint64_t wanted = most < ahead || stream.window >= kWide ? most : ahead;
  uint64_t count = 0;
  for (int64_t block = stream.next; count < wanted; block += stream.direction, ++count) {
    const auto number = static_cast<uint64_t>(block);
    if (state_of(word_of(number).load(std::memory_order_relaxed)) != kStored || is_mostly_untouched(number)) {
      break;
    }
  }
  return count;
}

/// Reads ahead as far as the streams' windows and the room allow.
void read_ahead(Stream& stream) {
  while ((stream.end - stream.next) * stream.direction > 0 && state.store->in_flight() < Store::kDepth / 2 &&
         !must_wait_for_read_buffer()) {
    const uint64_t count = stored_run(stream);
    if (count == 0) {
      stream.next += stream.direction;
      continue;
    }
    if (!reserve_blocks(count)) {
      const auto ahead = static_cast<uint64_t>((stream.end - stream.next) * stream.direction);
      make_room(static_cast<int64_t>(std::max(count, ahead) * kBlockBytes), Urgency::kNobodyWaits);
      if (!reserve_blocks(count)) {
        return;  // goes on when room has come
      }
    }
    const auto blocks = static_cast<int64_t>(count);
    const auto first = static_cast<uint64_t>(stream.direction > 0 ? stream.next : stream.next - blocks + 1);
    stream.next += stream.direction * blocks;
    for (uint64_t block = first; block < first + count; ++block) {
      state.resident.expect(block);
    }
    start_read(first, count);
    trace::count(Counter::kBytesReadAhead, count * kBlockBytes);
    // Counted from the stream's last fault in its direction; the block in the middle may be in memory already.
    const int64_t middle = 1 + stream.window / 2;
    const int64_t nearest = (stream.next - stream.last) * stream.direction - blocks;
    if ((stream.marker - stream.last) * stream.direction <= 0 && nearest + blocks > middle) {
      const int64_t distance = std::max(nearest, middle);
      stream.marker = stream.last + stream.direction * distance;
      change_word(word_of(static_cast<uint64_t>(stream.marker)), 0, kMarker);
    }
  }
}

/// Moves the end on, as far as the memory goes and no more than two windows from the reader's last fault.
void extend_by(Stream& stream, int64_t blocks) {
  const auto room = static_cast<int64_t>(room_of_one(stream));
  const int64_t fits = std::max(room, stream.window);
  const int64_t most = std::min<int64_t>(fits, stream.window * 2);
  const int64_t farthest = stream.last + stream.direction * (1 + most);
  const int64_t wanted = stream.end + stream.direction * blocks;
  const int64_t end = (farthest - wanted) * stream.direction < 0 ? farthest : wanted;
  const auto committed = static_cast<int64_t>(committed_blocks());
  stream.end = end < -1 ? -1 : std::min(end, committed);
}

}  // namespace

bool continues_stream(uint64_t block, uint32_t page) {
  int64_t direction = 0;
  const Stream* stream = stream_of(block, direction);
  if (stream == nullptr || page == kWholeBlock) {
    return stream != nullptr;
  }
  // Among many beginnings a jump may well hit the block beside one by chance.
  const bool is_strict = stream->extended < kYoung || state.random_access.expects_sparse_readers();
  const uint32_t nearest = is_strict ? kNearestOfYoung : kNearestPages;
  return direction > 0 ? page < nearest : page >= kBlockBytes / kPageBytes - nearest;
}

void extend_stream(uint64_t number) {
  const auto block = static_cast<int64_t>(number);
  int64_t direction = 0;
  Stream* stream = stream_of(number, direction);
  if (stream == nullptr && is_seen_already(block)) {
    return;
  }
  if (stream == nullptr) {  // perhaps the beginning of one
    begin_stream({block, block, block, 2, 0, 0, block});
    return;
  }
  if (conclude_probe(static_cast<uint64_t>(stream->last))) {
    *stream = {};
    state.random_access.note_sparse_reader();
    return;
  }
  if (stream->direction == 0) {
    stream->direction = direction;
    stream->next = block;
  }
  if (block == stream->marker) {
    note_sample(*stream);
  }
  const uint64_t asked = base::settings().readahead / kBlockBytes;
  const uint64_t room = room_of_one(*stream);
  const auto largest = static_cast<int64_t>(std::min(asked, room));
  stream->used_at = ++state.stream_clock;
  stream->uses[stream->extended++ % kUsesKnown] = stream->used_at;
  stream->followed = true;
  stream->last = block;
  stream->window = std::min(stream->window * 2, largest);
  stream->next = (stream->next - block) * direction > 0 ? stream->next : block + direction;
  const int64_t end = block + direction * (1 + stream->window);
  stream->end = (stream->end - end) * direction > 0 ? stream->end : end;
  extend_by(*stream, 0);
}

void note_arrival(uint64_t first, uint64_t count) {
  for (Stream& stream : state.streams) {
    const int64_t ahead = (static_cast<int64_t>(first) - stream.last) * stream.direction;
    if (ahead >= 0 && (stream.next - static_cast<int64_t>(first)) * stream.direction > 0 && stream.followed &&
        stream.window >= kWide) {
      extend_by(stream, static_cast<int64_t>(count));
    }
  }
}

bool is_likely_written(uint64_t block) {
  for (const Stream& stream : state.streams) {
    const int64_t ahead = (static_cast<int64_t>(block) - stream.last) * stream.direction;
    if (stream.written_samples >= kSureSamples && ahead >= 0 && ahead <= 2 * stream.window + kWide) {
      return true;
    }
  }
  return false;
}

void read_announced(uint64_t first, uint64_t count) {
  const uint64_t most = share_of_memory() / kBlockBytes / 2;
  const auto window = static_cast<int64_t>(std::min(count, most));
  const auto begin = static_cast<int64_t>(first);
  begin_stream({begin, begin, begin + window, window, 0, 1, begin});
}

void read_streams_ahead() {
  for (Stream& stream : state.streams) {
    read_ahead(stream);
  }
}

}  // namespace headroom::pager
