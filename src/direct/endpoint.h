// The endpoint: this process's end of all messages inside the node.
//
// Sending writes a record into the channel to the receiver; progress() looks at the channels from all others, matches what came
// (matching.h) and copies its content (receiving.cc). Short content lies in the record, long content is fetched by way of the
// Transfer that lies there (sending.cc). Nothing here waits: a call that must wait makes progress and pauses in turn
// (waiting.h).
//
// The endpoint knows nothing of MPI's types: a receiver is a member of the node session, the data sent are a Content, and a
// message is told by its Envelope. Thread-safe if told so: one lock, and long content is copied without it (apart.cc). The
// state of each message lies in private memory of its own, and no call allocates from the program's heap.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "base/threads_lock.h"
#include "direct/between_nodes.h"
#include "direct/channel.h"
#include "direct/held_spans.h"
#include "direct/layout.h"
#include "direct/matching.h"
#include "direct/message.h"
#include "direct/message_memory.h"
#include "direct/root.h"
#include "direct/tally.h"
#include "direct/transfer.h"
#include "node/session.h"
#include "trace/counters.h"

namespace headroom::direct {

/// Content up to this size goes in the record even where it could be fetched from the sender's memory, while memory is enough
/// and the receiver keeps up; in collectives always, since a rank that sends next to others should not wait. Lines wait for
/// each other, memory that is fetched does not: 1 and 2 KiB one way take 0.46 and 0.62 us in the record, 0.35 and 0.36 fetched,
/// in windows of 64 each 0.39 and 0.41, 0.16 and 0.15; where cores are near each other 0.23 and 0.32, 0.28 and 0.31.
inline constexpr uint64_t kInlineBytes = 512;
/// The same where nobody answers, and so nobody waits for lines (MPI_Bcast, Reduce): 4 KiB on 2 ranks 0.74 us an operation if
/// it is fetched, 0.28 so.
inline constexpr uint64_t kOneWayInlineBytes = 4096;
/// The content that records hold when memory is short, since their memory cannot leave, or when the receiver lags behind.
inline constexpr uint64_t kLeastInlineBytes = 128;

/// Tells the pager that memory is about to be filled whole, as a receiver's is, so that it need not be read from storage
/// before. Costs a look at each block.
void expect_overwriting(const Content& to);
/// The same of a copy within this process's memory, as far as `from` fills it; not if they overlap, which MPI forbids.
void expect_overwriting(const Content& to, const Content& from);

/// So many records of a channel are taken in one look at the channels.
inline constexpr uint32_t kRecordsAtOnce = 4096;

/// A rank that sends so often without having heard from the receiver is likely to go on like that.
inline constexpr uint8_t kManyInARow = 2;

class Endpoint {
 public:
  /// Maps message memory and the memory of all members in `members`; false if any of that cannot be had. Once. `mapped`: where
  /// this process has message memory mapped already, if it has (several endpoints in one process).
  bool open(const node::Session& session, const int* members, int count, char* mapped = nullptr);
  /// From now on calls may come from several threads; this one has called so far.
  void expect_threads() { threads_.expect_several(); }
  /// The threads that call: others of the layer's locks are theirs too.
  [[nodiscard]] base::CallingThreads& threads() { return threads_; }
  [[nodiscard]] bool is_open() const { return open_; }
  [[nodiscard]] MessageMemory& memory() { return memory_; }

  /// Sends to `member`, and looks up to `looks` times whether the receiver has it. kPending: `sending` must be asked by
  /// try_to_finish() until it is, and then is not used any more.
  SendOutcome send(int member, const Envelope& envelope, const Content& content, SendKind kind, uint64_t looks,
                   Sending*& sending);
  /// Whether the send is over; then it is gone. While the receiver copies, this copies too.
  bool try_to_finish(Sending* sending);
  /// The sender would not wait any longer: copies the content aside if there is room for that. `must`: it cannot wait.
  void copy_aside(Sending* sending, bool must);
  /// Takes a send back whose content still lies with the sender, or aside; false if it is too late. The send is finished then.
  /// To another node: false, and `*cancelled` is set when its receiver has said so, before the send is finished.
  bool cancel(Sending* sending, bool* cancelled = nullptr);

  /// Matches `receiving` with a message that is there, or posts it. Its fields `envelope`, `into` and `member` are set.
  void receive(Receiving& receiving);
  bool cancel(Receiving& receiving);
  /// The same of a receive that waits elsewhere too, unless its message is there: it is begun there and posted here in one
  /// step. False: it could not be begun, and is not posted.
  bool receive_elsewhere_too(Receiving& receiving);
  /// Begins it elsewhere once more: it is the last there, so it is the last here, too. Not if it has a message.
  void begin_elsewhere_again(Receiving& receiving);
  /// The receive got a message elsewhere; false if it has one here.
  bool withdraw(Receiving& receiving);
  /// Copies the content that was left to the thread that waits for it (Receiving::is_left). True if the receive is complete.
  bool finish(Receiving& receiving);
  /// Receives a message from `member` without more ado if it comes at once, or false: then receive() it.
  bool receive_next(int member, const Envelope& wanted, const Content& into, NextMessage& got);

  /// Whether there is a message that a receive with this envelope would get, and what it is.
  bool find(const Envelope& wanted, Found& found);
  /// The same, and takes it out, so that only receive_message() gets it.
  Message* extract(const Envelope& wanted);
  void receive_message(Message* message, Receiving& receiving);

  /// Looks at the channels and moves what can be moved. True if anything came. Takes so many records of each channel at most,
  /// so that a sender that floods this process does not keep it from everything else.
  bool progress();
  /// Whether the last look has left records in a channel: then nobody will ring for them.
  [[nodiscard]] bool has_left_records() const { return has_left_records_.load(std::memory_order_relaxed); }

  /// Messages to other nodes, too, from now on, over `network`: their members are member_of_rank(). Before the first message.
  void begin_between_nodes(const NetworkFunctions& network, int ranks);
  /// Opens this node's network card as `--rdma` says; false if there is none that can be used. Once, before messages go between
  /// nodes.
  bool open_card();
  /// Memory that never pages, and is never given back, for what the network writes; nullptr if there is none.
  void* allocate_for_network(uint64_t bytes);
  [[nodiscard]] bool expects_network() const;
  /// The end, when all ranks of the job need nothing any more: a rank that was sent anything hears that nothing follows (false:
  /// it was sent nothing); and how many have said so.
  bool say_bye_to(int rank);
  int byes_come();

  /// Wakes `member` if it sleeps.
  void wake(int member);

  /// A tally of this process's, for other processes by its offset in message memory; nullptr if there is no room.
  Tally* make_tally();
  /// This rank is done with it; `ranks` of its communicator by its owner, 0 by the others.
  void let_go_of(Tally* tally, int ranks);

  /// Around a blocking call of the MPI library: a helper thread does what node-mates need of this process meanwhile.
  void go_away();
  void come_back();
  /// Whether node-mates may need this process while it waits for something else: it has receives posted, or a message is under
  /// way that both sides move. If not, it may wait in the MPI library.
  [[nodiscard]] bool is_needed() const {
    return threads_.may_be_several() || posted_.count() != 0 || streams_in_ != nullptr || streams_out_ != nullptr ||
           expects_network();
  }
  /// Called now and then by threads that wait: ends this process if one that it exchanges messages with ended a while ago
  /// without leaving, since the awaited message may never come.
  void end_if_peers_are_lost();
  /// Ends this process: the memory of `member`, which it was using, cannot be had any more.
  [[noreturn]] void report_lost(int member);
  /// Asks processes that are away to look at their channels.
  void ring_away();
  /// Called at times by a rank that waits or polls: rings the ranks whose helpers may be needed, and ends this one if a rank
  /// has died.
  void look_after_peers();
  [[nodiscard]] Root& root_of(int member) { return *memory_.root<Root>(member); }
  [[nodiscard]] Root& own_root() { return *memory_.root<Root>(session_->index); }

  /// Whether everything that was sent needs nothing of this process any more.
  bool is_drained();

 private:
  enum class Taken : uint8_t { kNothing, kAlone, kLocked };
  Taken enter();
  /// Around everything that the program's threads do here. Locks only where another thread may be here too: one of the
  /// program's, or while all of them are away, the helper.
  class Guard {
   public:
    // Inline: a short message costs less than two calls.
    [[gnu::always_inline]] explicit Guard(Endpoint& endpoint) : endpoint_(endpoint) {
      if (__builtin_expect(endpoint.threads_.may_be_several() || endpoint.is_away(), 0)) {
        taken_ = endpoint.enter();
      }
    }
    [[gnu::always_inline]] ~Guard() {
      if (__builtin_expect(taken_ != Taken::kNothing, 0)) {
        endpoint_.lock_.leave(taken_ == Taken::kAlone);
      }
    }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    Endpoint& endpoint_;
    Taken taken_ = Taken::kNothing;
  };

  // away.cc
  [[nodiscard]] bool is_away() { return own_root().away.load(std::memory_order_relaxed) != 0; }
  static void* help(void* endpoint);
  void acknowledge(RecordHeader* record, int member);
  void acknowledge_all();

  // apart.cc
  [[nodiscard]] bool leaves(const Receiving& receiving, const Transfer& transfer) const;
  void leave(Receiving& receiving, RecordHeader* record, int member);
  bool take_left(Receiving& receiving);
  void copy_left(Receiving& receiving);
  void copy_for_another(Receiving& receiving);
  Receiving* take_what_waits_long();

  // endpoint.cc
  bool progress_locked(uint32_t most_records = kRecordsAtOnce);
  bool look_for_channels();
  void try_attaching(int member);
  [[nodiscard]] int pid_of(int member) const { return session_->ledger->members[member].pid.load(std::memory_order_relaxed); }
  void arrived(int member, RecordHeader* record);
  bool hand_over(const Envelope& envelope, RecordHeader* record, int member, uint64_t bytes);
  void ask_what_was_not_asked();

  // posting.cc
  bool take_waiting(Receiving& receiving, bool looks);
  static bool has_message(const Receiving& receiving);
  bool take_out_of_queue(Receiving& receiving);
  void post(Receiving& receiving);
  void unpost(Receiving& receiving);
  void count_asking(const Receiving& receiving, int change);
  bool take_next(Receiving& receiving);
  Message* find_locked(const Envelope& wanted);
  void drop(Message* message);

  // sending.cc
  ChannelWriter* writer_to(int member);
  [[nodiscard]] bool is_in_a_row(int member) const { return sent_in_a_row_[member] >= kManyInARow; }
  void one_more_in_a_row(int member) {
    sent_in_a_row_[member] = static_cast<uint8_t>(sent_in_a_row_[member] + (is_in_a_row(member) ? 0 : 1));
  }
  [[nodiscard]] uint64_t most_in_record(int member, SendKind kind) const;
  bool write_record(int member, const Envelope& envelope, const Content& content, bool passes_on);
  bool begin_record(int member, const Envelope& envelope, uint64_t payload, bool on_line, RecordHeader*& record);
  RecordHeader* begin_own_record(const Envelope& envelope, uint64_t payload, bool on_line);
  void advance(ChannelReader& reader, int member, RecordHeader* record) {
    reader.advance(record);
    sent_in_a_row_[member] = 0;
  }
  bool offer(Sending& sending);
  bool offer_attached(Sending& sending);
  bool set_matched_aside(Sending& sending, bool must);
  bool finish_if_over(Sending* sending);
  void reap();
  void help_receiver(Sending& sending);
  void release(Sending* sending);

  // aside.cc
  [[nodiscard]] uint64_t most_aside() const;
  [[nodiscard]] bool has_room_aside(uint64_t bytes, uint64_t more) const;
  bool set_aside(Sending& sending, bool must);
  bool set_aside_at_once(Sending& sending);
  bool set_own_aside(Sending& sending);
  bool gather_aside(Sending& sending);
  void release_aside(Sending& sending);

  // streaming.cc
  bool begin_stream(Sending& sending);
  void end_stream(Sending& sending);
  void set_stream_aside(Sending& sending);
  bool move_stream(Sending& sending);
  bool move_stream(Receiving& receiving);

  // between_nodes.cc
  SendOutcome send_to_other_node(int member, const Envelope& envelope, const Content& content, SendKind kind,
                                 Sending*& sending);
  OutgoingRecord* make_record(int rank, WireKind kind, uint64_t payload);
  void post_record(OutgoingRecord* out);
  void fly(OutgoingRecord* out);
  void send_queued(RemotePeer& peer);
  void tell_taken(int rank);
  bool land_records();
  void take_remote_message(int rank, const WireRecord& wire);
  void take_wire_record(int rank, const WireRecord& wire, uint64_t bytes);
  bool move_between_nodes(bool surely);
  bool is_drained_between_nodes();

  // between_nodes_content.cc
  Sending* begin_remote_sending(int member, const Content& content, bool synchronous);
  void release_remote_sending(Sending* sending);
  void cancel_remote_sending(Sending* sending, bool* cancelled);
  void end_remote_sending(Sending* sending, bool cancelled);
  void finish_remote_sending(Sending* sending);
  bool hold_piece(NetworkPiece& piece, char* address, uint64_t bytes, bool write);
  void end_piece(NetworkPiece& piece);
  NetworkPiece* begin_piece();
  bool count_bounce(NetworkPiece& piece);
  char* make_bounce(NetworkPiece& piece);
  void send_piece(int rank, const WireRecord& wire);
  Arrival* begin_arrival(int rank, const WireRecord& offer, RecordHeader* record);
  void end_arrival(Arrival* arrival, bool cancelled);
  Arrival* find_arrival(int rank, uint64_t transfer);
  void cancel_arrival(int rank, uint64_t transfer);
  bool ask_for_piece(Receiving& receiving, Arrival& arrival, uint64_t wanted);
  bool move_arrival(Receiving& receiving);
  bool move_pieces();

  // between_nodes_card.cc
  bool make_bounces();
  CardHold hold_for_card(NetworkPiece& piece, char* address, uint64_t bytes, bool write, uint64_t& offset);
  void end_card_piece(NetworkPiece& piece);
  void prefetch_for_card(NetworkPiece& piece, bool write);
  bool is_readable(const Content& content);
  CardHold hold_ready(Sending& sending, uint64_t first, uint64_t count);
  static void tell_ready(const Sending& sending, WireRecord& record);
  bool offer_to_card(Sending& sending, OutgoingRecord* offer);
  void send_ready(Sending& sending, bool is_held, bool later);
  void let_go_of_ready(Sending& sending, uint64_t came);
  void want_piece(const WireRecord& wire);
  void ask_to_read_from(int rank);
  void let_read(int rank, const WireRecord& wire);

  // reading_by_card.cc
  void begin_to_read_from(int rank, const WireRecord& wire);
  int take_bounce_slot();
  void give_back_bounce_slot(int slot);
  void end_broken_connection(RemotePeer& peer);
  void post_read(NetworkPiece& piece, char* into, uint32_t key, uint64_t from, uint64_t bytes);
  void post_whole_pages(NetworkPiece& piece, char* into, uint64_t from);
  [[nodiscard]] bool has_room_to_read(int rank) const;
  bool read_ready(Receiving& receiving, Arrival& arrival, uint64_t wanted);
  void finish_read(NetworkPiece& piece);
  bool move_card();
  void take_ready(int rank, const WireRecord& wire);
  void prepare_to_read(const Receiving& receiving, uint64_t wanted);
  bool move_by_card(Receiving& receiving, Arrival& arrival, uint64_t wanted);

  // receiving.cc
  template <typename Done>
  void wait_for_other_side(int member, Done done);
  bool claim(RecordHeader* record, int member);
  static void unclaim(RecordHeader* record);
  static void set_matched(RecordHeader* record);
  void deliver(Receiving& receiving, RecordHeader* record, int member, uint64_t bytes);
  void fetch(RecordHeader* record, const Content& into, int member);
  void fetch_content(RecordHeader* record, const Content& into, int member);
  void end_fetch(RecordHeader* record, const Content& into, int member);
  void take_payload(RecordHeader* record, uint64_t bytes, const Content& to);
  bool fetch_together(RecordHeader* record, const Content& from, const Content& to, int member, const Way& way);
  void fetch_with_help(RecordHeader* record, const Content& from, const Content& to, int member);
  bool share_pieces(RecordHeader* record, const Content& from, const Content& to, int member, const Way& way,
                    uint64_t piece_bytes, uint64_t done);
  void combine(const Content& from, const Content& to, int member, const Way& way);

  const node::Session* session_ = nullptr;
  bool is_peer_[node::kMaxMembers] = {};
  MessageMemory memory_;
  bool open_ = false;
  bool can_pass_on_ = false;  // lines, to other cores (channel.h)
  base::CallingThreads threads_;
  base::ThreadsLock lock_;
  ChannelWriter writers_[node::kMaxMembers];
  ChannelReader readers_[node::kMaxMembers];
  uint8_t sent_in_a_row_[node::kMaxMembers] = {};  // records to each member since one from it came
  uint8_t delay_[node::kMaxMembers] = {};          // before a message of each member is looked for, in pauses
  int reading_[node::kMaxMembers] = {};            // members whose channels are open
  int reading_count_ = 0;
  int writing_[node::kMaxMembers] = {};  // members that this process has a channel to
  int writing_count_ = 0;
  uint32_t known_opened_ = 0;
  std::atomic<bool> has_left_records_ = false;
  PostedQueue posted_;
  UnexpectedQueue unexpected_;
  Message* free_messages_ = nullptr;
  Tally* free_tallies_ = nullptr;
  Sending* free_sendings_ = nullptr;
  Sending* streams_out_ = nullptr;
  Receiving* streams_in_ = nullptr;
  Receiving* first_left_ = nullptr;  // to be copied without the lock (apart.cc), first in, first out
  Receiving* last_left_ = nullptr;
  uint32_t looks_past_left_ = 0;            // of threads that wait for something else
  std::atomic<uint64_t> filled_bytes_ = 0;  // held, of receives that are being copied by both sides
  LeftSendings left_;
  HeldSpans held_;                         // for receivers
  std::atomic<uint64_t> aside_bytes_ = 0;  // in message memory: copies of what is sent, and rings
  int64_t asking_ = 0;                     // posted receives that must be asked
  std::atomic<bool> has_helper_ = false;
  bool helping_ = false;      // the helper has the lock
  uint64_t asked_about_ = 0;  // messages
  bool unasked_ = false;      // it left messages that receives must be asked about
  BetweenNodes between_;
};

/// This process's.
Endpoint& endpoint();

}  // namespace headroom::direct
