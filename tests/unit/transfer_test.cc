// Copying a long content together: two threads claim pieces, below and above the size from which copies go past the cache.
#include "direct/transfer.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "direct/copy.h"

namespace headroom::direct {
namespace {

void copy_together(uint64_t bytes, uint64_t from_offset, uint64_t to_offset) {
  std::vector<char> source(bytes + 128);
  std::vector<char> target(bytes + 128, 'x');
  for (uint64_t at = 0; at < source.size(); ++at) {
    source[at] = static_cast<char>(at * 31 + (at >> 12));
  }
  Sharing sharing = {};
  sharing.copied_bytes = bytes;
  sharing.piece_bytes = kPieceBytes;
  sharing.pieces = (bytes + kPieceBytes - 1) / kPieceBytes;
  const Content from = {source.data() + from_offset, bytes, nullptr};
  const Content to = {target.data() + to_offset, bytes, nullptr};
  std::thread other([&] { EXPECT_NE(Pieces::kLost, copy_pieces(sharing, from, to, Way{})); });
  EXPECT_NE(Pieces::kLost, copy_pieces(sharing, from, to, Way{}));
  other.join();
  EXPECT_EQ(sharing.pieces, sharing.done_pieces.load());
  for (uint64_t at = 0; at < target.size(); ++at) {
    const bool copied = at >= to_offset && at < to_offset + bytes;
    ASSERT_EQ(copied ? source[at - to_offset + from_offset] : 'x', target[at]) << at;
  }
}

TEST(Transfers, AreCopiedByBothSides) {
  copy_together(kSharedFrom, 0, 0);
  copy_together(kSharedFrom + 4711, 3, 17);
}

TEST(Transfers, AreCopiedByBothSidesPastTheCache) {
  ASSERT_GE(past_cache_from(), uint64_t{4} << 20);
  ASSERT_LE(past_cache_from(), uint64_t{64} << 20);
  copy_together(past_cache_from(), 0, 0);
  copy_together(past_cache_from() + 4711, 5, 63);
}

}  // namespace
}  // namespace headroom::direct
