// Two endpoints that exchange messages at random, each with a thread of its own or more.
#pragma once

#include <deque>
#include <random>

#include "endpoint_fixture.h"

namespace headroom::direct {

/// What a thread that exchanges messages with one of the other endpoint has under way.
struct Exchange {
  Endpoint& end;
  int self;
  std::mt19937 random;
  uint64_t context = 9;
  int other = 1 - self;  // the member
  int anybody = -1;
  struct Out {
    Sending* sending;
    std::vector<char> content;
  };
  std::deque<Out> out = {};
  std::deque<std::unique_ptr<Asked>> in = {};
  uint32_t sent = 0;
  uint32_t received = 0;
  bool failed = false;

  static uint64_t bytes_of(uint32_t number) {
    const uint64_t sizes[] = {0, 8, 40, 500, 513, 8000, 8200, 20000, 70000, 300000};
    return sizes[number * 2654435761U / 7 % 10];
  }
  void send_one() {
    Out one = {nullptr, std::vector<char>(bytes_of(sent))};
    fill(one.content, sent);
    const SendKind kind = random() % 4 == 0 ? SendKind::kSynchronous : SendKind::kStandard;
    const SendOutcome outcome = end.send(other, {context, self, static_cast<int32_t>(sent % 3)},
                                         {one.content.data(), one.content.size(), nullptr}, kind, random() % 50, one.sending);
    failed = failed || outcome == SendOutcome::kNoMemory;
    ++sent;
    if (outcome == SendOutcome::kPending) {
      out.push_back(std::move(one));
    }
  }
  void finish_sends() {
    for (size_t count = out.size(); count > 0; --count) {
      Out one = std::move(out.front());
      out.pop_front();
      if (random() % 8 == 0) {
        end.copy_aside(one.sending, false);
      }
      if (!end.try_to_finish(one.sending)) {
        out.push_back(std::move(one));
      }
    }
  }
  void ask_one() {
    in.push_back(std::make_unique<Asked>());
    Asked& one = *in.back();
    const auto number = static_cast<uint32_t>(received + in.size() - 1);
    one.expected = {{context, 1 - self, static_cast<int32_t>(number % 3)}, number, bytes_of(number)};
    one.buffer.resize(300000);
    // Messages come in the order of their numbers, so any receive in that order may leave its tag open.
    one.receiving.envelope = {context, random() % 2 == 0 ? kAny : 1 - self,
                              random() % 2 == 0 ? kAny : one.expected.envelope.tag};
    one.receiving.member = one.receiving.envelope.source == kAny ? anybody : other;
    one.receiving.into = {one.buffer.data(), one.buffer.size(), nullptr};
    one.receiving.may_be_left = end.threads().may_be_several() && random() % 4 != 0;
    end.receive(one.receiving);
  }
  bool is_complete(Receiving& receiving) {
    // Now and then nobody comes for what was left, until a thread that makes progress does.
    return receiving.complete.load(std::memory_order_acquire) || (random() % 500 == 0 && end.finish(receiving));
  }
  void finish_receives() {
    while (!in.empty() && is_complete(in.front()->receiving)) {
      Asked& one = *in.front();
      std::vector<char> wanted(one.expected.bytes);
      fill(wanted, one.expected.number);
      failed = failed || one.receiving.bytes != wanted.size() || one.receiving.tag != one.expected.envelope.tag ||
               memcmp(wanted.data(), one.buffer.data(), wanted.size()) != 0;
      in.pop_front();
      ++received;
    }
  }
  void run(uint32_t messages) {
    while (!failed && (received < messages || sent < messages || !out.empty())) {
      if (sent < messages && out.size() < 20 && random() % 2 == 0) {
        send_one();
      }
      if (received + in.size() < messages && in.size() < 10 && random() % 2 == 0) {
        ask_one();
      }
      (void)end.progress();
      finish_sends();
      finish_receives();
    }
    // What was left to the other side is fetched by now, or will be without this one.
  }
};

}  // namespace headroom::direct
