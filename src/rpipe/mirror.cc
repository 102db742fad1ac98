// See mirror.h.
#include "rpipe/mirror.h"

#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <unordered_map>
#include <vector>

#include "rpipe/announced_record.h"
#include "rpipe/messenger.h"
#include "rpipe/mirrored_record.h"

namespace headroom::rpipe {

std::atomic<bool> has_mirrors{false};

namespace {

uint64_t key_of(int rank, uint32_t record) { return uint64_t{static_cast<uint32_t>(rank)} << 32 | record; }

/// Two ranks' knowledge of each other's waiting (Frame::waits).
struct Waiting {
  uint64_t frames_sent = 0;  // of the kind kWaits, ever
  uint64_t frames_received = 0;
  WaitsFor told = WaitsFor::kNothing;
  uint64_t told_received = 0;
  WaitsFor heard = WaitsFor::kNothing;
  uint64_t heard_received = 0;
};

/// All from rpipe_init() to rpipe_finalize().
struct Mirrors {
  MemoryFile memory;
  std::unordered_map<int, std::unique_ptr<Peer>> peers;
  std::unordered_map<uint64_t, std::unique_ptr<MirroredRecord>> records;  // by rank and index
  std::unordered_map<uint32_t, AnnouncedRecord> announced;                // by index
  std::vector<int> to_hear;                                               // ranks
  std::vector<uint32_t> to_forward;                                       // by index
  std::vector<MirroredRecord*> to_tell;
  MemoryFile::Piece piece;  // of records
  uint64_t piece_used = 0;
};

class Handler final : public FrameHandler {
 public:
  char* handle_frame(int rank, const Frame& frame, const char* content) override;
  void handle_content(int rank, const Frame& frame) override;
  void handle_failure(int rank) override;
};

const rpipe_transport* transport = nullptr;
BetweenNodes between_nodes;
Messenger* messenger = nullptr;  // as long as the transport, like the receives that it has posted: MPI's for good
// Never destroyed: a thread of the transport may use them while the process ends.
Handler& handler = *new Handler;
Mirrors* now = nullptr;
auto& waiting = *new std::unordered_map<int, Waiting>;  // by rank; the same
std::atomic<uint64_t> handled{0};                       // from other nodes
uint16_t life = 0;
int rank_count = 0;
base::FutexLock lock;

// ---- frames that come ----------------------------------------------------------------------------------------------------

Peer* find_or_make_peer(int rank) {
  if (const auto found = now->peers.find(rank); found != now->peers.end()) {
    return found->second.get();
  }
  const uint64_t bytes = sizeof(Root) + sizeof(uint64_t) * static_cast<uint64_t>(ranks());
  const MemoryFile::Piece piece = now->memory.allocate(bytes);  // of which one page is touched
  if (piece.at == nullptr || now->memory.populate(piece, 0, sizeof(Root)) != 0 ||
      now->memory.populate(piece, offsetof(Root, records) + sizeof(uint64_t) * static_cast<uint64_t>(own_rank()), 8) != 0) {
    return nullptr;
  }
  now->to_hear.push_back(rank);
  auto peer = std::make_unique<Peer>();
  peer->rank = rank;
  peer->is_mirrored = true;
  memcpy(peer->host, peer_of(rank).host, sizeof peer->host);
  peer->memory.open(now->memory);
  peer->root.store(reinterpret_cast<Root*>(piece.at), std::memory_order_release);
  return (now->peers[rank] = std::move(peer)).get();
}

/// A record in the peer's list, without a key.
MirroredRecord* make_record(int rank, uint32_t index) {
  constexpr uint64_t kAtOnce = 64 << 10;
  Peer* const peer = find_or_make_peer(rank);
  if (peer == nullptr) {
    return nullptr;
  }
  if (now->piece.at == nullptr || now->piece_used + kRecordBytes > kAtOnce) {
    now->piece = now->memory.allocate_populated(kAtOnce);
    now->piece_used = 0;
  }
  if (now->piece.at == nullptr) {
    return nullptr;
  }
  auto* const record = reinterpret_cast<Record*>(now->piece.at + now->piece_used);
  std::atomic<uint64_t>& list = peer->root.load(std::memory_order_relaxed)->records[own_rank()];
  record->index = index;
  record->next = list.load(std::memory_order_relaxed);
  list.store(now->piece.offset + now->piece_used, std::memory_order_release);
  now->piece_used += kRecordBytes;
  auto made = std::make_unique<MirroredRecord>(now->memory, *record, rank);
  return (now->records[key_of(rank, index)] = std::move(made)).get();
}

MirroredRecord* find_record(int rank, uint32_t index) {
  const auto found = now->records.find(key_of(rank, index));
  return found == now->records.end() ? nullptr : found->second.get();
}

char* Handler::handle_frame(int rank, const Frame& frame, const char* content) {
  if (frame.kind == FrameKind::kWaits) {
    Waiting& with = waiting[rank];
    ++with.frames_received;
    with.heard = static_cast<WaitsFor>(frame.waits.waits_for);
    with.heard_received = frame.waits.received;
  }
  if (now == nullptr || frame.life != life) {
    return nullptr;
  }
  handled.fetch_add(1, std::memory_order_relaxed);
  MirroredRecord* record = nullptr;
  switch (frame.kind) {
    case FrameKind::kOpen:
      record = find_record(rank, frame.record);
      record = record == nullptr ? make_record(rank, frame.record) : record;
      if (record == nullptr) {
        handle_failure(rank);
      } else {
        record->open(frame);
      }
      return nullptr;
    case FrameKind::kNotice:
      record = find_record(rank, frame.record);
      return record == nullptr ? nullptr : record->put(frame, content);
    case FrameKind::kState:
      record = find_record(rank, frame.record);
      if (record != nullptr) {
        record->close();
      }
      return nullptr;
    case FrameKind::kBack:
      if (const auto found = now->announced.find(frame.record); found != now->announced.end()) {
        found->second.put_back(frame, content);
      }
      return nullptr;
    case FrameKind::kWaits:
      return nullptr;
  }
  return nullptr;
}

void Handler::handle_content(int rank, const Frame& frame) {
  MirroredRecord* const record = now == nullptr || frame.life != life ? nullptr : find_record(rank, frame.record);
  if (record != nullptr) {
    handled.fetch_add(1, std::memory_order_relaxed);
    record->put_content(frame);
    if (record->is_over_here()) {
      now->to_tell.push_back(record);
    }
  }
}

void Handler::handle_failure(int rank) {
  handled.fetch_add(1, std::memory_order_relaxed);
  if (now != nullptr && now->peers.contains(rank)) {
    Peer& peer = *now->peers[rank];
    peer.has_failed.store(true, std::memory_order_relaxed);
    peer.is_dead.store(true, std::memory_order_release);
  }
}

// ---- frames that go ------------------------------------------------------------------------------------------------------

void send_what_is_forwarded() {
  std::erase_if(now->to_forward, [](uint32_t index) {
    const auto found = now->announced.find(index);
    return found == now->announced.end() || found->second.forward(*messenger, life) != -ENOMEM;
  });
}

void send_what_waits() {
  std::erase_if(now->to_hear, [](int rank) { return messenger->hear(rank) != -ENOMEM; });
  // The count of what was taken goes before the word that the end has closed: a writer that closes waits for it.
  std::erase_if(now->to_tell, [](MirroredRecord* record) { return record->tell_back(*messenger, life) != -ENOMEM; });
  send_what_is_forwarded();
}

/// Whether this rank's threads need not tell what was taken and freed until one of them waits.
bool may_tell_later() {
  return transport != nullptr && transport->moves_by_itself != nullptr && transport->moves_by_itself() != 0;
}

bool is_nothing_left_to_send() { return now->to_hear.empty() && now->to_tell.empty() && now->to_forward.empty(); }

void forward_now_or_later(const Record& own) {
  if (std::find(now->to_forward.begin(), now->to_forward.end(), own.index) == now->to_forward.end()) {
    now->to_forward.push_back(own.index);
  }
  const bool is_open = own.state.load(std::memory_order_relaxed) == static_cast<uint32_t>(EndState::kOpen);
  if (messenger->may_call(true)) {
    is_open&& may_tell_later() ? send_what_is_forwarded() : send_what_waits();
  }
}

void tell_now_or_later(MirroredRecord& record) {
  if (std::find(now->to_tell.begin(), now->to_tell.end(), &record) == now->to_tell.end()) {
    now->to_tell.push_back(&record);
  }
  const bool may_wait = may_tell_later() && !record.is_over_here() && !record.has_much_to_tell();
  if (!may_wait && messenger->may_call(true)) {
    send_what_waits();
  }
}

/// Mirrors that were left while something was still coming into their memory. Never destroyed: at the end of a forked child
/// that would give the parent's budget back.
auto* left = new std::vector<std::unique_ptr<Mirrors>>;

void forget_left() {
  if (messenger != nullptr && messenger->is_all_received()) {
    left->clear();
  }
}

int move_at_end(int sends) {
  const base::LockHolder holder(lock);
  if (now != nullptr && sends != 0) {
    send_what_waits();
  }
  messenger->move();
  return messenger->is_all_sent() ? 1 : 0;
}

uint64_t sent_to(int rank) {
  const base::LockHolder holder(lock);
  return messenger->sent_to(rank);
}

int look_for_received(const uint64_t* frames) {
  const base::LockHolder holder(lock);
  bool has_all = messenger->is_all_received();
  for (int rank = 0; rank < rank_count; ++rank) {
    if (frames[rank] > messenger->received_from(rank)) {
      (void)messenger->hear(rank);
      has_all = false;
    }
  }
  return has_all ? 1 : 0;
}

void before_fork() { lock.lock(); }
void after_fork_in_parent() { lock.unlock(); }
/// A child has no pipes, and sends nothing: the objects of the parent's pipes are left alone.
void after_fork_in_child() {
  lock.reset();
  has_mirrors.store(false, std::memory_order_relaxed);
  if (transport != nullptr && transport->leave_to_parent != nullptr) {
    transport->leave_to_parent();
  }
  transport = nullptr;
  messenger = nullptr;
  now = nullptr;
  waiting.clear();
  left = new std::vector<std::unique_ptr<Mirrors>>;
}

void stop_at_end() {
  const base::LockHolder holder(lock);
  messenger->stop();
  forget_left();
  transport = nullptr;
  if (now != nullptr) {
    for (const auto& [rank, peer] : now->peers) {
      handler.handle_failure(rank);
    }
  }
}

}  // namespace

// ---- the interface -------------------------------------------------------------------------------------------------------

void count_life() { ++life; }

int begin_mirrors(const rpipe_transport* given) {
  static bool handles_forks = false;
  if (!handles_forks) {
    handles_forks = true;
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  }
  const base::LockHolder holder(lock);
  transport = given;
  between_nodes = {};
  if (transport == nullptr) {
    return 0;
  }
  between_nodes = {transport->backend, transport->name, transport->failure};
  auto mirrors = std::make_unique<Mirrors>();
  auto made = messenger == nullptr ? std::make_unique<Messenger>(*transport, handler) : nullptr;
  if (!mirrors->memory.open() || (made != nullptr && !made->open())) {
    transport = nullptr;
    return -EMFILE;
  }
  rank_count = ranks();
  forget_left();
  now = mirrors.release();
  if (made != nullptr) {
    messenger = made.release();
    static const rpipe_at_end calls = {move_at_end, sent_to, look_for_received, stop_at_end};
    transport->at_end(&calls);
  }
  return 0;
}

namespace {

/// False: something of this process's own file is still being sent.
bool leave_mirrors() {
  const base::LockHolder holder(lock);
  if (now == nullptr) {
    return true;
  }
  has_mirrors.store(false, std::memory_order_relaxed);
  if (messenger->may_call(true)) {
    send_what_waits();
    messenger->move();
  }
  left->emplace_back(now);
  now = nullptr;
  forget_left();
  return messenger->is_all_sent();
}

}  // namespace

bool end_mirrors(int64_t timeout_ns) {
  const bool is_all_sent = leave_mirrors();
  if (transport == nullptr || transport->end == nullptr) {
    return is_all_sent;
  }
  transport->end(timeout_ns);
  const base::LockHolder holder(lock);
  delete messenger;  // the transport has ended: nobody is at work on its memory
  messenger = nullptr;
  waiting.clear();
  left->clear();
  return true;
}

const BetweenNodes& messages_between_nodes() { return between_nodes; }
bool has_transport() { return transport != nullptr; }

Peer* mirrored_peer(int rank) {
  const base::LockHolder holder(lock);
  has_mirrors.store(true, std::memory_order_relaxed);
  return find_or_make_peer(rank);
}

void announce(const Peer& peer, Record& own) {
  const base::LockHolder holder(lock);
  now->announced.insert_or_assign(own.index, AnnouncedRecord(peer.rank, own));
  forward_now_or_later(own);
}

void forward(const Record& own) {
  const base::LockHolder holder(lock);
  forward_now_or_later(own);
}

bool try_to_forget(const Record& own) {
  const base::LockHolder holder(lock);
  const auto found = now->announced.find(own.index);
  if (found == now->announced.end()) {
    return true;
  }
  if (!found->second.has_told_closed() || messenger->is_sending_content_of(own.index)) {
    return false;
  }
  now->announced.erase(found);
  return true;
}

void tell_back(const Peer& peer, const Record& theirs) {
  const base::LockHolder holder(lock);
  if (MirroredRecord* const record = find_record(peer.rank, theirs.index)) {
    tell_now_or_later(*record);
    record->release_if_over();
  }
}

void tell_taken(const Peer& peer, const Record& theirs) {
  const base::LockHolder holder(lock);
  MirroredRecord* const record = find_record(peer.rank, theirs.index);
  if (record != nullptr && record->is_all_taken()) {
    tell_now_or_later(*record);
  }
}

void tell_freed(const Peer& peer, const Record& theirs, uint32_t buffer, uint64_t bytes) {
  const base::LockHolder holder(lock);
  if (MirroredRecord* const record = find_record(peer.rank, theirs.index)) {
    record->free(static_cast<uint16_t>(buffer), bytes);
    tell_now_or_later(*record);
  }
}

uint64_t handled_from_nodes() { return handled.load(std::memory_order_acquire); }

void tell_waits(const Peer& peer, WaitsFor waits_for, uint64_t handled_before) {
  const base::LockHolder holder(lock);
  Waiting& with = waiting[peer.rank];
  const uint64_t received = messenger->received_from(peer.rank) - with.frames_received;
  const bool knows = waits_for == with.told && (waits_for == WaitsFor::kNothing || received == with.told_received);
  // One of the two may wait for something that was announced and has not come, or has not gone.
  const bool has_looked = handled.load(std::memory_order_relaxed) == handled_before;
  const bool may_tell =
      waits_for == WaitsFor::kNothing || (has_looked && messenger->is_all_received() && is_nothing_left_to_send());
  if (knows || !may_tell || !messenger->may_call(true)) {
    return;
  }
  Frame frame = frame_of(FrameKind::kWaits, life, 0);
  frame.waits = {received, static_cast<uint32_t>(waits_for)};
  if (messenger->send(peer.rank, frame, nullptr) == 0) {
    ++with.frames_sent;
    with.told = waits_for;
    with.told_received = received;
  }
}

bool waits_for_this_rank(const Peer& peer) {
  const base::LockHolder holder(lock);
  const Waiting& with = waiting[peer.rank];
  return is_nothing_left_to_send() && with.heard != WaitsFor::kNothing &&
         with.heard_received == messenger->sent_to(peer.rank) - with.frames_sent;
}

void move_mirrors(bool expects_it, bool tells) {
  if (!lock.try_lock()) {
    return;  // its holder moves the same, and tells soon what is not told then
  }
  if (now != nullptr && messenger->may_call(expects_it)) {
    if (tells || !may_tell_later()) {
      send_what_waits();
    }
    messenger->move();
  }
  lock.unlock();
}

}  // namespace headroom::rpipe
