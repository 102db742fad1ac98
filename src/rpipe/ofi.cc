// See ofi.h.
#include "rpipe/ofi.h"

#include <netinet/in.h>
#include <pthread.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <sched.h>
#include <signal.h>

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

constexpr int kLastTag = 3;  // after those of messenger.cc
constexpr uint64_t kGoneAfterNs = 200'000'000;
constexpr uint64_t kLookForDeathsNs = 10'000'000;
constexpr uint64_t kLongestEndNs = 2'000'000'000;
constexpr uint64_t kShortestSleepNs = 500'000;
constexpr uint64_t kLongestSleepNs = 8'000'000;
constexpr int kMostLeftToOthers = 4;  // which may not tell all that is to be told

struct Operation {
  fi_context2 context;  // libfabric's; first, since completions name it
  enum class State : uint8_t { kOnItsWay, kOver, kFailed } state;
  bool sends;
  bool is_left;  // nobody asks for it any more
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
  uint64_t last_came_ns = 0;
  uint64_t ended_ns = 0;  // its connection was closed; 0: it was not
};

struct Ofi {
  OfiEndpoint endpoint;
  DeathWatch watch;
  int self = 0;
  std::vector<OfiCard> cards;
  std::vector<Rank> ranks;
  std::deque<Operation> operations;  // for good
  std::vector<Operation*> free_operations;
  std::vector<int> waiting;  // ranks some of whose operations libfabric has not taken
  std::vector<int> ended;
  uint64_t looked_for_deaths_ns = 0;

  pthread_t thread = {};
  bool has_thread = false;
  std::atomic<uint32_t> stops{0};
  std::atomic<uint64_t> tests{0};  // ever, by any thread
  std::atomic<uint64_t> over{0};   // operations, ever
};

Ofi* ofi = nullptr;
const rpipe_at_end* calls = nullptr;

uint64_t tag_of(int sender, int tag) { return static_cast<uint64_t>(sender) << 8 | static_cast<unsigned>(tag); }

// ---- operations ----------------------------------------------------------------------------------------------------------

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
  Rank& to = ofi->ranks[static_cast<size_t>(operation.rank)];
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

bool try_to_give(Operation& operation) {
  const long result = give_to_library(operation);
  if (result != 0 && result != -FI_EAGAIN) {
    operation.state = Operation::State::kFailed;
  }
  return result != -FI_EAGAIN;
}

std::vector<Operation*>& queue_of(const Operation& operation) {
  Rank& rank = ofi->ranks[static_cast<size_t>(operation.rank)];
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
  if (std::erase(queue_of(operation), &operation) > 0 || operation.state != Operation::State::kOnItsWay) {
    ofi->free_operations.push_back(&operation);
  } else {
    operation.is_left = true;  // libfabric will say that it is over
  }
}

/// Looks for a rank's death from now on.
void watch(int rank) {
  Rank& other = ofi->ranks[static_cast<size_t>(rank)];
  const OfiCard& card = ofi->cards[static_cast<size_t>(rank)];
  if (other.is_watched || card.watch_port == 0 || ofi->watch.port() == 0) {
    return;
  }
  other.is_watched = true;
  sockaddr_in6 address = {};
  memcpy(&address, card.name, std::min<size_t>(sizeof address, card.bytes));
  address.sin6_port = card.watch_port;
  ofi->watch.watch(ofi->self, rank, address, card.nonce);
}

// ---- progress ------------------------------------------------------------------------------------------------------------

void finish(void* context, Operation::State state) {
  auto& operation = *static_cast<Operation*>(context);
  operation.state = state;
  ofi->over.fetch_add(1, std::memory_order_relaxed);
  Rank& rank = ofi->ranks[static_cast<size_t>(operation.rank)];
  if (!operation.sends && state == Operation::State::kOver) {
    rank.has_come = true;
    rank.last_came_ns = rank.ended_ns == 0 ? 0 : base::monotonic_ns();
  }
  if (operation.is_left) {
    ofi->free_operations.push_back(&operation);
  }
}

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
        finish(error.op_context, Operation::State::kFailed);
      }
      continue;
    }
    for (ssize_t each = 0; each < came; ++each) {
      finish(entries[each].op_context, Operation::State::kOver);
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
  ofi->watch.move(ofi->ended);
  for (const int rank : ofi->ended) {
    if (static_cast<size_t>(rank) < ofi->ranks.size() && ofi->ranks[static_cast<size_t>(rank)].ended_ns == 0) {
      ofi->ranks[static_cast<size_t>(rank)].ended_ns = now_ns;
    }
  }
}

void progress() {
  take_completions();
  if (!ofi->waiting.empty()) {
    give_what_waits();
  }
  look_for_deaths();
}

bool is_gone(const Rank& rank) {
  return rank.ended_ns != 0 && base::monotonic_ns() - std::max(rank.ended_ns, rank.last_came_ns) > kGoneAfterNs;
}

// ---- the transport -------------------------------------------------------------------------------------------------------

int may_call(int /*expects_it*/) { return ofi != nullptr ? 1 : 0; }

int send(int rank, int tag, const void* from, size_t bytes, uint64_t* request) {
  watch(rank);
  char* const at = const_cast<char*>(static_cast<const char*>(from));
  const Operation wanted = {{}, Operation::State::kOnItsWay, true, false, rank, 0, tag_of(ofi->self, tag), at, bytes};
  *request = reinterpret_cast<uint64_t>(&begin_operation(wanted));
  return 0;
}

int receive(int rank, int tag, void* into, size_t bytes, uint64_t* request) {
  watch(rank);
  Rank& from = ofi->ranks[static_cast<size_t>(rank)];
  Operation wanted = {{}, Operation::State::kOnItsWay, false, true, rank, 0, tag_of(rank, kLastTag), nullptr, 0};
  if (!from.has_last_posted) {
    from.has_last_posted = true;
    (void)begin_operation(wanted);
  }
  wanted.is_left = false;
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
  ofi->tests.fetch_add(1, std::memory_order_relaxed);
  if (operation.state == Operation::State::kOnItsWay) {
    progress();
  }
  if (operation.state == Operation::State::kOnItsWay) {
    if (!is_gone(ofi->ranks[static_cast<size_t>(operation.rank)])) {
      return 0;
    }
    leave(operation);
    *request = 0;
    return -EIO;
  }
  const bool failed = operation.state == Operation::State::kFailed;
  ofi->free_operations.push_back(&operation);
  *request = 0;
  return failed ? -EIO : 1;
}

void cancel(uint64_t* request) {
  if (*request == 0) {
    return;
  }
  auto& operation = *reinterpret_cast<Operation*>(*request);
  (void)fi_cancel(&ofi->endpoint.endpoint()->fid, &operation.context);
  leave(operation);
  *request = 0;
}

// ---- the thread that moves what nobody moves -----------------------------------------------------------------------------

void* move_now_and_then(void* /*unused*/) {
  (void)pthread_setname_np(pthread_self(), "rpipe-progress");
  uint64_t sleep_ns = kShortestSleepNs;
  uint64_t tests = 0;
  int left_to_others = 0;
  while (ofi->stops.load(std::memory_order_acquire) == 0) {
    base::futex_wait(&ofi->stops, 0, static_cast<int64_t>(sleep_ns), false);
    if (tests != ofi->tests.load(std::memory_order_relaxed) && ++left_to_others < kMostLeftToOthers) {
      tests = ofi->tests.load(std::memory_order_relaxed);  // another thread does
      sleep_ns = kShortestSleepNs;
      continue;
    }
    left_to_others = 0;
    const uint64_t over = ofi->over.load(std::memory_order_relaxed);
    (void)calls->move(1);
    tests = ofi->tests.load(std::memory_order_relaxed);
    sleep_ns = over != ofi->over.load(std::memory_order_relaxed) ? kShortestSleepNs : std::min(2 * sleep_ns, kLongestSleepNs);
  }
  return nullptr;
}

void at_end(const rpipe_at_end* given) {
  calls = given;
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  (void)pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are the program's threads'
  ofi->has_thread = pthread_create(&ofi->thread, nullptr, move_now_and_then, nullptr) == 0;
  (void)pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// ---- the end -------------------------------------------------------------------------------------------------------------

/// What libfabric says is over was given to the network, no more. The last message is over when it was received.
void send_last(uint64_t until_ns) {
  std::vector<Operation*> last;
  for (size_t rank = 0; rank < ofi->ranks.size(); ++rank) {
    const Rank& other = ofi->ranks[rank];
    if (other.has_come && other.address != FI_ADDR_NOTAVAIL && other.ended_ns == 0) {
      last.push_back(&begin_operation({{},
                                       Operation::State::kOnItsWay,
                                       true,
                                       false,
                                       static_cast<int>(rank),
                                       FI_DELIVERY_COMPLETE,
                                       tag_of(ofi->self, kLastTag),
                                       nullptr,
                                       0}));
    }
  }
  const auto is_over = [](const Operation* operation) {
    return operation->state != Operation::State::kOnItsWay || ofi->ranks[static_cast<size_t>(operation->rank)].ended_ns != 0;
  };
  while (!std::all_of(last.begin(), last.end(), is_over) && base::monotonic_ns() < until_ns) {
    progress();
    sched_yield();
  }
}

void end(int64_t timeout_ns) {
  const uint64_t longest_ns = timeout_ns < 0 ? kLongestEndNs : std::min(kLongestEndNs, static_cast<uint64_t>(timeout_ns));
  const uint64_t until_ns = base::monotonic_ns() + longest_ns;
  while (calls->move(1) == 0 && base::monotonic_ns() < until_ns) {
    sched_yield();
  }
  ofi->stops.store(1, std::memory_order_release);
  base::futex_wake(&ofi->stops, 1, false);
  if (ofi->has_thread) {
    (void)pthread_join(ofi->thread, nullptr);
  }
  send_last(until_ns);
  calls->stop();
  close_ofi();
}

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
                                   .moves_by_itself = 1,
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
  const char* const why_not = ofi->endpoint.open();
  if (why_not != nullptr) {
    (void)snprintf(card.why_not, sizeof card.why_not, "%s", why_not);
    return card;
  }
  card.bytes = static_cast<uint32_t>(ofi->endpoint.read_name(card.name, sizeof card.name));
  if (card.bytes == 0) {
    (void)snprintf(card.why_not, sizeof card.why_not, "libfabric's names on this network are longer than they may be");
    return card;
  }
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
