// See ofi.h.
#include "rpipe/ofi.h"

#include <netinet/in.h>
#include <pthread.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>

#include "base/system_calls.h"
#include "headroom/rpipe.h"
#include "rpipe/death_watch.h"
#include "rpipe/keep_signals.h"
#include "rpipe/ofi_endpoint.h"

namespace headroom::rpipe {

namespace {

constexpr int kLastTag = 3;   // that messenger.cc does not use
constexpr int kTagBits = 16;  // of its tags
constexpr uint64_t kGoneAfterNs = 200'000'000;
constexpr uint64_t kGoneWithContentAfterNs = 5'000'000'000;
constexpr uint64_t kShortestEndNs = 100'000'000;
constexpr uint64_t kLookForDeathsNs = 10'000'000;
constexpr uint64_t kLongestEndNs = 2'000'000'000;
constexpr uint64_t kShortestSleepNs = 500'000;
constexpr uint64_t kLongestSleepNs = 8'000'000;
constexpr int kMostLeftToOthers = 4;  // which may not tell all that is to be told

struct Operation {
  fi_context2 context;  // libfabric's; first, since completions name it
  enum class State : uint8_t { kOnItsWay, kOver, kFailed } state;
  bool sends;
  bool is_left;     // nobody asks for it any more
  bool is_content;  // that was announced
  int rank;
  uint64_t flags;
  uint64_t tag;
  char* at;
  size_t bytes;
};

struct Rank {
  fi_addr_t address = FI_ADDR_NOTAVAIL;
  std::vector<Operation*> sends;     // that libfabric has not taken yet
  std::vector<Operation*> receives;  // the same
  bool is_watched = false;
  bool has_last_posted = false;
  bool has_come = false;  // anything from it
  int contents = 0;       // that were announced and have not come
  uint64_t last_came_ns = 0;
  uint64_t refused_ns = 0;  // it, or a firewall, has refused a connection
  uint64_t ended_ns = 0;    // it has ended, or nothing can be sent to it; 0: not so
};

struct Ofi {
  std::deque<Operation> operations;  // for good: the endpoint, which is closed first, may have some of them
  OfiEndpoint endpoint;
  DeathWatch watch;
  int self = 0;
  std::vector<OfiCard> cards;
  std::vector<Rank> ranks;
  std::vector<Operation*> free_operations;
  std::vector<int> waiting;  // ranks some of whose operations libfabric has not taken
  std::vector<int> ended, refused;
  uint64_t looked_for_deaths_ns = 0;

  pthread_t thread = {};
  bool has_thread = false;
  std::atomic<uint32_t> stops{0};
  std::atomic<uint64_t> moves{0};  // ever, by any thread
  std::atomic<uint64_t> over{0};   // operations, ever
};

Ofi* ofi = nullptr;
const rpipe_at_end* calls = nullptr;

uint64_t tag_of(int sender, int tag) { return static_cast<uint64_t>(sender) << kTagBits | static_cast<unsigned>(tag); }

// ---- operations ----------------------------------------------------------------------------------------------------------

Rank& rank_of(const Operation& operation) { return ofi->ranks[static_cast<size_t>(operation.rank)]; }

Operation& take_operation() {
  if (ofi->free_operations.empty()) {
    ofi->operations.emplace_back();
    return ofi->operations.back();
  }
  Operation& taken = *ofi->free_operations.back();
  ofi->free_operations.pop_back();
  return taken;
}

/// 0, -FI_EAGAIN, or another error.
long give_to_library(Operation& operation) {
  fid_ep* const endpoint = ofi->endpoint.endpoint();
  if (!operation.sends) {
    return fi_trecv(endpoint, operation.at, operation.bytes, nullptr, FI_ADDR_UNSPEC, operation.tag, 0, &operation.context);
  }
  Rank& to = rank_of(operation);
  const OfiCard& card = ofi->cards[static_cast<size_t>(operation.rank)];
  if (to.address == FI_ADDR_NOTAVAIL && fi_av_insert(ofi->endpoint.addresses(), card.name, 1, &to.address, 0, nullptr) != 1) {
    to.address = FI_ADDR_NOTAVAIL;
    return -FI_EHOSTUNREACH;
  }
  iovec content = {operation.at, operation.bytes};
  fi_msg_tagged message = {};
  message.msg_iov = &content;
  message.iov_count = 1;
  message.addr = to.address;
  message.tag = operation.tag;
  message.context = &operation.context;
  return fi_tsendmsg(endpoint, &message, operation.flags | FI_COMPLETION);
}

void finish(Operation& operation, Operation::State state) {
  operation.state = state;
  ofi->over.fetch_add(1, std::memory_order_relaxed);
  Rank& rank = rank_of(operation);
  rank.contents -= operation.is_content ? 1 : 0;
  if (!operation.sends && state == Operation::State::kOver) {
    rank.has_come = true;
    rank.last_came_ns = rank.ended_ns == 0 ? 0 : base::monotonic_ns();
  } else if (operation.sends && state == Operation::State::kFailed && rank.ended_ns == 0) {
    rank.ended_ns = base::monotonic_ns();
  }
  if (operation.is_left) {
    ofi->free_operations.push_back(&operation);
  }
}

bool try_to_give(Operation& operation) {
  const long result = give_to_library(operation);
  if (result != 0 && result != -FI_EAGAIN) {
    finish(operation, Operation::State::kFailed);
  }
  return result != -FI_EAGAIN;
}

std::vector<Operation*>& queue_of(const Operation& operation) {
  Rank& rank = rank_of(operation);
  return operation.sends ? rank.sends : rank.receives;
}

Operation& begin_operation(const Operation& wanted) {
  Operation& operation = take_operation();
  operation = wanted;
  std::vector<Operation*>& queue = queue_of(operation);
  if (!queue.empty() || !try_to_give(operation)) {
    queue.push_back(&operation);
    if (std::find(ofi->waiting.begin(), ofi->waiting.end(), operation.rank) == ofi->waiting.end()) {
      ofi->waiting.push_back(operation.rank);
    }
  }
  return operation;
}

void give_what_waits() {
  const auto give = [](std::vector<Operation*>& queue) {
    const auto refused = std::find_if(queue.begin(), queue.end(), [](Operation* each) { return !try_to_give(*each); });
    queue.erase(queue.begin(), refused);
  };
  std::erase_if(ofi->waiting, [&](int rank) {
    Rank& other = ofi->ranks[static_cast<size_t>(rank)];
    give(other.receives);
    give(other.sends);
    return other.receives.empty() && other.sends.empty();
  });
}

/// Nobody asks for it any more, nor for its memory.
void leave(Operation& operation) {
  if (operation.state != Operation::State::kOnItsWay) {
    ofi->free_operations.push_back(&operation);
  } else if (std::erase(queue_of(operation), &operation) > 0) {
    rank_of(operation).contents -= operation.is_content ? 1 : 0;
    ofi->free_operations.push_back(&operation);
  } else {
    operation.is_left = true;  // libfabric will say that it is over
    (void)fi_cancel(&ofi->endpoint.endpoint()->fid, &operation.context);
  }
}

/// Looks for a rank's death from now on.
void watch(int rank) {
  Rank& other = ofi->ranks[static_cast<size_t>(rank)];
  const OfiCard& card = ofi->cards[static_cast<size_t>(rank)];
  if (other.is_watched || card.watch_port == 0 || ofi->watch.port() == 0) {
    return;
  }
  sockaddr_in6 address = {};
  memcpy(&address, card.name, std::min<size_t>(sizeof address, card.bytes));
  address.sin6_port = card.watch_port;
  other.is_watched = ofi->watch.watch(ofi->self, rank, address, card.nonce);
}

// ---- progress ------------------------------------------------------------------------------------------------------------

void take_completions() {
  constexpr size_t kAtOnce = 16;
  fi_cq_entry entries[kAtOnce];
  for (;;) {
    const ssize_t came = fi_cq_read(ofi->endpoint.completions(), entries, kAtOnce);
    if (came == -FI_EAVAIL) {
      fi_cq_err_entry error = {};
      if (fi_cq_readerr(ofi->endpoint.completions(), &error, 0) < 1) {
        return;
      }
      if (error.op_context != nullptr) {
        finish(*static_cast<Operation*>(error.op_context), Operation::State::kFailed);
      }
      continue;
    }
    for (ssize_t each = 0; each < came; ++each) {
      finish(*static_cast<Operation*>(entries[each].op_context), Operation::State::kOver);
    }
    if (came < static_cast<ssize_t>(kAtOnce)) {
      return;
    }
  }
}

void look_for_deaths() {
  const uint64_t now_ns = base::monotonic_ns();
  if (now_ns - ofi->looked_for_deaths_ns < kLookForDeathsNs) {
    return;
  }
  ofi->looked_for_deaths_ns = now_ns;
  ofi->ended.clear();
  ofi->refused.clear();
  ofi->watch.move(ofi->ended, ofi->refused);
  for (const int rank : ofi->ended) {
    if (static_cast<size_t>(rank) < ofi->ranks.size() && ofi->ranks[static_cast<size_t>(rank)].ended_ns == 0) {
      ofi->ranks[static_cast<size_t>(rank)].ended_ns = now_ns;
    }
  }
  for (const int rank : ofi->refused) {
    ofi->ranks[static_cast<size_t>(rank)].refused_ns = now_ns;
  }
}

void progress() {
  ofi->moves.fetch_add(1, std::memory_order_relaxed);
  take_completions();
  if (!ofi->waiting.empty()) {
    give_what_waits();
  }
  look_for_deaths();
}

bool is_gone(const Rank& rank) {
  if (rank.refused_ns != 0 && !rank.has_come && base::monotonic_ns() - rank.refused_ns > kGoneWithContentAfterNs) {
    return true;
  }
  const uint64_t after_ns = rank.contents > 0 ? kGoneWithContentAfterNs : kGoneAfterNs;
  return rank.ended_ns != 0 && base::monotonic_ns() - std::max(rank.ended_ns, rank.last_came_ns) > after_ns;
}

// ---- the transport -------------------------------------------------------------------------------------------------------

int may_call(int /*expects_it*/) { return ofi != nullptr ? 1 : 0; }

int send(int rank, int tag, const void* from, size_t bytes, uint64_t* request) {
  watch(rank);
  char* const at = const_cast<char*>(static_cast<const char*>(from));
  const Operation wanted = {{}, Operation::State::kOnItsWay, true, false, false, rank, 0, tag_of(ofi->self, tag), at, bytes};
  *request = reinterpret_cast<uint64_t>(&begin_operation(wanted));
  return 0;
}

int receive(int rank, int tag, void* into, size_t bytes, uint64_t* request) {
  watch(rank);
  Rank& from = ofi->ranks[static_cast<size_t>(rank)];
  Operation wanted = {{}, Operation::State::kOnItsWay, false, true, false, rank, 0, tag_of(rank, kLastTag), nullptr, 0};
  if (!from.has_last_posted) {
    from.has_last_posted = true;
    (void)begin_operation(wanted);
  }
  wanted.is_left = false;
  wanted.is_content = tag != RPIPE_TAG_OF_FRAMES;
  from.contents += wanted.is_content ? 1 : 0;
  wanted.tag = tag_of(rank, tag);
  wanted.at = static_cast<char*>(into);
  wanted.bytes = bytes;
  *request = reinterpret_cast<uint64_t>(&begin_operation(wanted));
  return 0;
}

int test(uint64_t* request) {
  if (*request == 0) {
    return 1;
  }
  auto& operation = *reinterpret_cast<Operation*>(*request);
  if (operation.state == Operation::State::kOnItsWay) {
    if (!is_gone(rank_of(operation))) {
      return 0;
    }
    leave(operation);
    *request = 0;
    return -EIO;
  }
  // A message that could not be sent is over: those that the rank had sent before it ended may still come (is_gone()).
  const bool failed = operation.state == Operation::State::kFailed && !operation.sends;
  ofi->free_operations.push_back(&operation);
  *request = 0;
  return failed ? -EIO : 1;
}

void cancel(uint64_t* request) {
  if (*request == 0) {
    return;
  }
  auto& operation = *reinterpret_cast<Operation*>(*request);
  leave(operation);
  *request = 0;
}

// ---- the thread that moves while no other does ---------------------------------------------------------------------------

void* move_now_and_then(void* /*unused*/) {
  (void)pthread_setname_np(pthread_self(), "rpipe-progress");
  uint64_t sleep_ns = kShortestSleepNs;
  uint64_t moves = 0;
  int left_to_others = 0;
  while (ofi->stops.load(std::memory_order_acquire) == 0) {
    base::futex_wait(&ofi->stops, 0, static_cast<int64_t>(sleep_ns), false);
    if (moves != ofi->moves.load(std::memory_order_relaxed) && ++left_to_others < kMostLeftToOthers) {
      moves = ofi->moves.load(std::memory_order_relaxed);  // another thread does
      sleep_ns = kShortestSleepNs;
      continue;
    }
    left_to_others = 0;
    const uint64_t over = ofi->over.load(std::memory_order_relaxed);
    (void)calls->move(1);
    moves = ofi->moves.load(std::memory_order_relaxed);
    sleep_ns = over != ofi->over.load(std::memory_order_relaxed) ? kShortestSleepNs : std::min(2 * sleep_ns, kLongestSleepNs);
  }
  return nullptr;
}

void stop_thread() {
  if (ofi != nullptr && ofi->has_thread) {
    ofi->stops.store(1, std::memory_order_release);
    base::futex_wake(&ofi->stops, 1, false);
    (void)pthread_join(ofi->thread, nullptr);
    ofi->has_thread = false;
  }
}

void at_end(const rpipe_at_end* given) {
  static bool stops_at_exit = false;
  if (!stops_at_exit) {
    stops_at_exit = atexit(stop_thread) == 0;  // before libfabric's own end
  }
  calls = given;
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  (void)pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are the program's threads'
  ofi->has_thread = pthread_create(&ofi->thread, nullptr, move_now_and_then, nullptr) == 0;
  (void)pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// ---- the end -------------------------------------------------------------------------------------------------------------

/// A send that libfabric says is over was given to the network, no more. The last message is over when it was received.
void send_last(uint64_t until_ns) {
  std::vector<Operation*> last;
  for (size_t rank = 0; rank < ofi->ranks.size(); ++rank) {
    const Rank& other = ofi->ranks[rank];
    if (other.has_come && other.address != FI_ADDR_NOTAVAIL && other.ended_ns == 0) {
      last.push_back(&begin_operation({{},
                                       Operation::State::kOnItsWay,
                                       true,
                                       false,
                                       false,
                                       static_cast<int>(rank),
                                       FI_DELIVERY_COMPLETE,
                                       tag_of(ofi->self, kLastTag),
                                       nullptr,
                                       0}));
    }
  }
  const auto is_over = [](const Operation* operation) {
    return operation->state != Operation::State::kOnItsWay || rank_of(*operation).ended_ns != 0;
  };
  while (!std::all_of(last.begin(), last.end(), is_over) && base::monotonic_ns() < until_ns) {
    progress();
    sched_yield();
  }
}

void end(int64_t timeout_ns) {
  const uint64_t wanted_ns = timeout_ns < 0 ? kLongestEndNs : static_cast<uint64_t>(timeout_ns);
  const uint64_t longest_ns = std::clamp(wanted_ns, kShortestEndNs, kLongestEndNs);
  const uint64_t until_ns = base::monotonic_ns() + longest_ns;
  while (calls->move(1) == 0 && base::monotonic_ns() < until_ns) {
    sched_yield();
  }
  stop_thread();
  send_last(until_ns);
  calls->stop();
  close_ofi();
}

int moves_by_itself() { return ofi != nullptr && ofi->has_thread ? 1 : 0; }

/// In a forked child: libfabric's objects are the parent's, and are left alone.
void leave_to_parent() {
  if (ofi != nullptr) {
    ofi->watch.close_copies();
    ofi = nullptr;
  }
}

const rpipe_transport transport = {.backend = RPIPE_OFI,
                                   .name = "libfabric",
                                   .failure = "has ended, or the network to it has failed",
                                   .moves_by_itself = moves_by_itself,
                                   .move = progress,
                                   .may_call = may_call,
                                   .send = send,
                                   .receive = receive,
                                   .test = test,
                                   .cancel = cancel,
                                   .at_end = at_end,
                                   .end = end,
                                   .leave_to_parent = leave_to_parent};

}  // namespace

OfiCard open_ofi(uint64_t nonce) {
  OfiCard card = {};
  card.nonce = nonce;
  ofi = new Ofi;
  const KeepSignals keep;
  const char* const why_not = ofi->endpoint.open(find_ofi_library());
  if (why_not != nullptr) {
    (void)snprintf(card.why_not, sizeof card.why_not, "%s", why_not);
    return card;
  }
  card.bytes = static_cast<uint32_t>(ofi->endpoint.read_name(card.name, sizeof card.name));
  if (card.bytes == 0) {
    (void)snprintf(card.why_not, sizeof card.why_not, "libfabric's names on this network are longer than they may be");
    return card;
  }
  ofi->endpoint.describe(card.network, sizeof card.network);
  if (ofi->endpoint.has_internet_names()) {
    sockaddr_in6 own = {};
    memcpy(&own, card.name, std::min<size_t>(sizeof own, card.bytes));
    (void)ofi->watch.begin(own, nonce);
    card.watch_port = ofi->watch.port();
  }
  return card;
}

const rpipe_transport* join_ofi(int self, const std::vector<OfiCard>& all) {
  ofi->self = self;
  ofi->cards = all;
  ofi->ranks = std::vector<Rank>(all.size());
  return &transport;
}

void close_ofi() {
  delete ofi;
  ofi = nullptr;
}

}  // namespace headroom::rpipe
