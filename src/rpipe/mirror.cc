#include "rpipe/mirror.h"

#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <unordered_map>
#include <vector>

#include "rpipe/host.h"
#include "rpipe/messenger.h"
#include "rpipe/mirrored_record.h"

namespace headroom::rpipe {

std::atomic<bool> has_mirrors{false};

namespace {

/// A record of this process's that a peer knows of, and how far it was told.
struct Announced {
  int rank;
  const Record* record;
  const Line* lines;
  uint32_t line_count;
  uint64_t first_number;
  uint64_t next_number;
  const char* heap;
  bool has_told_closed;
  bool is_told_open;
};

uint64_t key_of(int rank, uint32_t record) { return uint64_t{static_cast<uint32_t>(rank)} << 32 | record; }

/// All from rpipe_init() to rpipe_finalize().
struct Mirrors {
  MemoryFile memory;
  std::unordered_map<int, std::unique_ptr<Peer>> peers;
  std::unordered_map<uint64_t, std::unique_ptr<MirroredRecord>> records;  // by rank and index
  std::unordered_map<uint32_t, Announced> announced;                      // by index
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
Messenger* messenger = nullptr;  // for good, like the receives that it has posted
Handler handler;
Mirrors* now = nullptr;
uint16_t life = 0;
base::FutexLock lock;

// ---- what comes ----------------------------------------------------------------------------------------------------------

Peer* find_or_make_peer(int rank) {
  if (const auto found = now->peers.find(rank); found != now->peers.end()) {
    return found->second.get();
  }
  const uint64_t bytes = sizeof(Root) + sizeof(uint64_t) * static_cast<uint64_t>(ranks());
  const MemoryFile::Piece piece = now->memory.allocate(bytes);  // of which one page is touched
  if (piece.at == nullptr || now->memory.populate(piece, 0, sizeof(Root)) != 0 ||
      now->memory.populate(piece, offsetof(Root, records) + sizeof(uint64_t) * static_cast<uint64_t>(own_rank()), 8) != 0 ||
      messenger->hear(rank) != 0) {
    return nullptr;
  }
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

void handle_back(const Frame& frame, const char* content) {
  const auto found = now->announced.find(frame.record);
  if (found == now->announced.end()) {
    return;
  }
  auto& record = const_cast<Record&>(*found->second.record);  // what is the peer's of it
  const auto* const more =
      own_memory().at(record.more_marks.load(std::memory_order_relaxed), kMostBuffers);  // nullptr: there are none yet
  auto* const more_marks = reinterpret_cast<std::atomic<uint8_t>*>(const_cast<char*>(more));
  for (uint64_t at = 0; at + sizeof(uint16_t) <= frame.content; at += sizeof(uint16_t)) {
    uint16_t buffer = 0;
    memcpy(&buffer, content + at, sizeof buffer);
    // release, as in Reader::release(): what the reader did with the buffer comes before its use by the writer.
    if (buffer < kFirstMarks) {
      record.marks[buffer].store(1, std::memory_order_release);
    } else if (more_marks != nullptr && buffer < kMostBuffers) {
      more_marks[buffer].store(1, std::memory_order_release);
    }
  }
  record.taken.store(std::max(frame.back.taken, record.taken.load(std::memory_order_relaxed)), std::memory_order_release);
  if (frame.back.is_closed != 0) {
    record.peer_closed.store(1, std::memory_order_release);
  }
}

char* Handler::handle_frame(int rank, const Frame& frame, const char* content) {
  if (now == nullptr || frame.life != life) {
    return nullptr;
  }
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
      handle_back(frame, content);
      return nullptr;
  }
  return nullptr;
}

void Handler::handle_content(int rank, const Frame& frame) {
  MirroredRecord* const record = now == nullptr || frame.life != life ? nullptr : find_record(rank, frame.record);
  if (record != nullptr) {
    record->put_content(frame);
    if (record->is_over_here()) {
      now->to_tell.push_back(record);
    }
  }
}

void Handler::handle_failure(int rank) {
  if (now != nullptr && now->peers.contains(rank)) {
    Peer& peer = *now->peers[rank];
    peer.has_failed.store(true, std::memory_order_relaxed);
    peer.is_dead.store(true, std::memory_order_release);
  }
}

// ---- what goes -----------------------------------------------------------------------------------------------------------

Frame frame_of(FrameKind kind, uint32_t record) {
  Frame frame = {};
  frame.kind = kind;
  frame.life = life;
  frame.record = record;
  return frame;
}

int tell_open(Announced& announced) {
  Frame frame = frame_of(FrameKind::kOpen, announced.record->index);
  frame.open = {announced.record->key.load(std::memory_order_relaxed), announced.record->role, announced.record->flags};
  const int error = messenger->send(announced.rank, frame, nullptr);
  announced.is_told_open = error == 0;
  return error;
}

/// The line of the next notice, if it was written.
const Line* next_line(const Announced& announced) {
  const Line& line = announced.lines[(announced.next_number - announced.first_number) & (announced.line_count - 1)];
  // acquire: pairs with Writer::write().
  return line.number.load(std::memory_order_acquire) == stamp_of(announced.next_number) ? &line : nullptr;
}

int send_notice(Announced& announced, const Line& line) {
  Frame frame = frame_of(FrameKind::kNotice, announced.record->index);
  frame.notice.number = announced.next_number;
  frame.notice.kind = static_cast<uint8_t>(line.kind);
  frame.notice.buffer = line.buffer;
  frame.notice.generation = line.generation;
  const char* content = nullptr;
  switch (line.kind) {
    case Notice::kInline:
      frame.content = line.inline_bytes;
      content = line.content;
      break;
    case Notice::kHeap:
      frame.notice.heap_limit = announced.record->heap_limit.load(std::memory_order_relaxed);
      frame.notice.place = line.heap.offset;
      frame.content = line.heap.bytes;
      if (announced.heap == nullptr) {
        announced.heap = own_memory().at(announced.record->heap.load(std::memory_order_relaxed), frame.notice.heap_limit);
      }
      content = announced.heap + line.heap.offset;
      break;
    case Notice::kNextRing:
      frame.notice.place = line.ring.lines;
      break;
  }
  return messenger->send(announced.rank, frame, content);
}

/// 0, -ENOMEM: not all of it could be sent now; -EIO: nor ever.
int forward_all(Announced& announced) {
  int error = announced.is_told_open ? 0 : tell_open(announced);
  while (const Line* const line = error == 0 ? next_line(announced) : nullptr) {
    error = send_notice(announced, *line);
    if (error != 0) {
      break;
    }
    ++announced.next_number;
    if (line->kind == Notice::kNextRing) {
      announced.lines = reinterpret_cast<const Line*>(own_memory().at(line->ring.offset, line->ring.lines * sizeof(Line)));
      announced.line_count = static_cast<uint32_t>(line->ring.lines);
      announced.first_number = announced.next_number;
    }
  }
  const bool is_closed = announced.record->state.load(std::memory_order_acquire) == static_cast<uint32_t>(EndState::kClosed);
  if (error == 0 && is_closed && !announced.has_told_closed) {
    error = messenger->send(announced.rank, frame_of(FrameKind::kState, announced.record->index), nullptr);
    announced.has_told_closed = error == 0;
  }
  return error;
}

int tell_all_back(MirroredRecord& record) {
  if (record.has_told_over()) {
    return 0;  // the record may be another pipe's there
  }
  do {
    Frame frame = frame_of(FrameKind::kBack, record.record().index);
    const std::vector<uint16_t>& freed = record.freed();
    const size_t count = std::min<size_t>(freed.size(), kMostFreedInFrame);
    frame.content = count * sizeof(uint16_t);
    frame.back.taken = record.record().taken.load(std::memory_order_acquire);
    frame.back.is_closed = count == freed.size() && record.is_over_here() ? 1 : 0;
    if (const int error = messenger->send(record.rank(), frame, reinterpret_cast<const char*>(freed.data()))) {
      return error;
    }
    record.forget_freed(count);
    if (frame.back.is_closed != 0) {
      record.note_told_over();
    }
  } while (!record.freed().empty());
  return 0;
}

void send_what_waits() {
  std::erase_if(now->to_forward, [](uint32_t index) {
    const auto found = now->announced.find(index);
    return found == now->announced.end() || forward_all(found->second) != -ENOMEM;
  });
  std::erase_if(now->to_tell, [](MirroredRecord* record) { return tell_all_back(*record) != -ENOMEM; });
}

void forward_now_or_later(uint32_t index) {
  if (std::find(now->to_forward.begin(), now->to_forward.end(), index) == now->to_forward.end()) {
    now->to_forward.push_back(index);
  }
  if (messenger->may_call()) {
    send_what_waits();
  }
}

void tell_now_or_later(MirroredRecord& record) {
  if (std::find(now->to_tell.begin(), now->to_tell.end(), &record) == now->to_tell.end()) {
    now->to_tell.push_back(&record);
  }
  if (messenger->may_call()) {
    send_what_waits();
  }
}

int move_at_end() {
  const base::LockHolder holder(lock);
  if (now != nullptr) {
    send_what_waits();
  }
  (void)messenger->move();
  return messenger->is_all_sent() ? 1 : 0;
}

void before_fork() { lock.lock(); }
void after_fork_in_parent() { lock.unlock(); }
/// A child has no pipes, and sends nothing: what the parent's are in is left alone.
void after_fork_in_child() {
  lock.reset();
  has_mirrors.store(false, std::memory_order_relaxed);
  transport = nullptr;
  messenger = nullptr;
  now = nullptr;
}

void stop_at_end() {
  const base::LockHolder holder(lock);
  messenger->stop();
  transport = nullptr;
  if (now != nullptr) {
    for (const auto& [rank, peer] : now->peers) {
      handler.handle_failure(rank);
    }
  }
}

}  // namespace

// ---- the interface -------------------------------------------------------------------------------------------------------

int begin_mirrors(const rpipe_transport* given) {
  static bool handles_forks = false;
  if (!handles_forks) {
    handles_forks = true;
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  }
  const base::LockHolder holder(lock);
  transport = given;
  ++life;
  if (transport == nullptr) {
    return 0;
  }
  if (messenger == nullptr) {
    messenger = new Messenger(*transport, handler);
    if (!messenger->open()) {
      delete messenger;
      messenger = nullptr;
      return -EMFILE;
    }
    transport->at_end(move_at_end, stop_at_end);
  }
  now = new Mirrors;
  return now->memory.open() ? 0 : -EMFILE;
}

bool end_mirrors() {
  const base::LockHolder holder(lock);
  if (now == nullptr) {
    return true;
  }
  has_mirrors.store(false, std::memory_order_relaxed);
  if (messenger->may_call()) {
    send_what_waits();
    (void)messenger->move();
  }
  if (messenger->is_all_received()) {  // else something may still come into its memory
    delete now;
  }
  now = nullptr;
  return messenger->is_all_sent();
}

bool has_transport() { return transport != nullptr; }

Peer* mirrored_peer(int rank) {
  const base::LockHolder holder(lock);
  has_mirrors.store(true, std::memory_order_relaxed);
  return find_or_make_peer(rank);
}

void announce(const Peer& peer, const Record& own) {
  const base::LockHolder holder(lock);
  now->announced[own.index] = {peer.rank, &own, own.lines, kFirstLines, 1, 1, nullptr, false, false};
  forward_now_or_later(own.index);
}

void forward(const Record& own) {
  const base::LockHolder holder(lock);
  forward_now_or_later(own.index);
}

void forget_announced(const Record& own) {
  const base::LockHolder holder(lock);
  now->announced.erase(own.index);
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

void tell_freed(const Peer& peer, const Record& theirs, uint32_t buffer) {
  const base::LockHolder holder(lock);
  if (MirroredRecord* const record = find_record(peer.rank, theirs.index)) {
    record->free(static_cast<uint16_t>(buffer));
    tell_now_or_later(*record);
  }
}

void move_mirrors() {
  if (!lock.try_lock()) {
    return;  // who has it does as much
  }
  if (now != nullptr && messenger->may_call()) {
    send_what_waits();
    (void)messenger->move();
  }
  lock.unlock();
}

}  // namespace headroom::rpipe
