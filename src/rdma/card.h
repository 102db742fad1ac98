// This process's use of a network card: registrations of evictable memory that pin nothing, queue pairs, and reads.
//
// The *alias* of the process's own partition is registered, in pieces of at most 1 GiB, for on-demand paging (ODP): the card
// follows the kernel's page tables. The alias's pages stay mapped while the program's view of them is protected or hidden, so
// only taking memory away (a punch) makes the card forget it. A read under a hold is safe whatever the card has mapped; if it
// has not, the card *faults*, which takes it hundreds of microseconds. Asking for the pages before (prefetch()) avoids that.
// The four schemes are those of Li et al. ("on-demand paging aware MPI"): pinned, native, enhanced, optimal.
//
// Not thread-safe. Errors are values; why() says why something cannot be had.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headroom::rdma {

/// How memory is made ready for the card.
enum class Scheme : uint8_t {
  kPinned,    // registered and pinned for each piece: what MPI libraries do
  kNative,    // the card faults
  kEnhanced,  // prefetched each time, before the content is offered or read
  kOptimal,   // the same, beside the handshake, and only what was taken away since it was last prefetched
};

/// The address that a peer needs to reach a queue pair.
struct PairAddress {
  uint8_t gid[16];
  uint32_t number;
  uint32_t lid;
  uint32_t first;  // packet's number: at random, so that a late one of an older connection is told from this one's
};

struct QueuePair;

/// A range that is registered, and its keys.
struct Registered {
  void* pin = nullptr;  // of Scheme::kPinned: to be given back by unpin()
  uint32_t local_key = 0;
  uint32_t remote_key = 0;
};

struct Completion {
  void* what;
  bool good;
};

class Card {
 public:
  /// Opens the first card with an active port, and tries it. `alias`: where the process's own partition is mapped once more,
  /// which need not be usable yet; `punches(offset)`: how often the block there was taken away; `scratch`: memory that never
  /// pages, kScratchBytes of it, page-aligned. False: see why().
  bool open(Scheme scheme, char* alias, uint64_t alias_bytes, uint32_t (*punches)(uint64_t offset), char* scratch);
  [[nodiscard]] bool is_open() const { return domain_ != nullptr; }
  [[nodiscard]] const char* why() const { return why_; }
  [[nodiscard]] const char* name() const { return name_; }
  [[nodiscard]] Scheme scheme() const { return scheme_; }
  /// Whether content must begin at a page's beginning on both sides (some cards' ODP reads from elsewhere otherwise).
  [[nodiscard]] bool wants_whole_pages() const { return wants_whole_pages_; }

  /// How many of `bytes` at alias + `offset` one registration has.
  [[nodiscard]] uint64_t bytes_registered_together(uint64_t offset, uint64_t bytes) const;
  /// Keys for [alias + offset, bytes), which is held, and which one registration has. False: the card refuses.
  bool enter(uint64_t offset, uint64_t bytes, Registered& keys);
  /// Before the hold ends.
  void leave(Registered& keys);
  /// The same for memory outside the partition that stays where it is for as long as the process lives.
  bool enter_fixed(char* memory, uint64_t bytes, Registered& keys);

  /// Whether prefetch() would have nothing to ask for: nothing was taken away since it last did. False in schemes that do not
  /// know.
  [[nodiscard]] bool is_mapped(uint64_t offset, uint64_t bytes, bool write) const;
  /// Has the card map what was taken away since it last did, for reading or for writing; the range is held. Returns how many
  /// bytes were asked for.
  uint64_t prefetch(uint64_t offset, uint64_t bytes, const Registered& keys, bool write);

  /// The same of fixed memory, for writing; once is enough.
  void prefetch_fixed(char* memory, uint64_t bytes, const Registered& keys);

  /// A queue pair that is not connected yet; nullptr: the card refuses.
  QueuePair* make_pair(PairAddress& own);
  bool connect(QueuePair* pair, const PairAddress& peer);
  void drop(QueuePair* pair);
  /// Reads from a peer: `what` is told when it is over. `into` is the alias's address, or fixed memory's.
  bool read(QueuePair* pair, char* into, uint32_t local_key, uint64_t from, uint32_t remote_key, uint64_t bytes, void* what);
  /// Fills in up to `most` reads that are over.
  int poll(Completion* done, int most);

  /// So many reads may be under way: of one queue pair, and of all.
  static constexpr uint64_t kReadsOfPair = 128;
  static constexpr uint64_t kReadsInAll = 1024;
  static constexpr uint64_t kRegistrationBytes = uint64_t{1} << 30;
  static constexpr uint64_t kScratchBytes = 64 << 10;

 private:
  bool refuse(const char* why);
  bool open_device(void* list, int count);
  bool find_address();
  bool ask_for_paging();
  bool try_reads(char* scratch);
  bool try_read(QueuePair* pair, char* into, uint32_t local_key, const char* from, uint32_t remote_key, uint64_t bytes);
  int advise(uint64_t address, uint64_t bytes, uint32_t key, bool write);
  void* registration_of(uint64_t offset);

  Scheme scheme_ = Scheme::kOptimal;
  char* alias_ = nullptr;
  uint64_t alias_bytes_ = 0;
  uint32_t (*punches_)(uint64_t offset) = nullptr;
  const char* why_ = nullptr;
  char name_[64] = {};
  bool wants_whole_pages_ = false;
  bool advises_raw_ = false;
  void* context_ = nullptr;
  void* domain_ = nullptr;
  void* completions_ = nullptr;
  uint8_t port_ = 1;
  int gid_index_ = 0;
  uint32_t mtu_ = 0;
  uint32_t reads_at_once_ = 1;
  bool is_ethernet_ = false;
  PairAddress own_ = {};
  void** registrations_ = nullptr;  // by kRegistrationBytes
  // By block: how often it was taken away when the card was last asked to map it, and one more; for reading and for writing.
  uint32_t* mapped_to_read_ = nullptr;
  uint32_t* mapped_to_write_ = nullptr;
};

}  // namespace headroom::rdma
