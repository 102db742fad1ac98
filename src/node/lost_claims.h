// Claims that nobody can give back: a process that is killed between the two words of a reservation, or of taking a slot,
// leaves the sum and its parts different for good. So does one that ends in order, or becomes another program, while another of
// its threads is there. So after an end the difference is looked at, and taken for lost when it has stayed the same for some
// seconds while nobody was at work on the words.
#pragma once

#include "node/ledger.h"

namespace headroom::node {

class LostClaims {
 public:
  /// To be called about once a second by one thread; of the node's processes the one in the first place that is taken does
  /// something, and only once a process has ended. Whether claims were given back.
  bool give_back(Ledger& ledger, const Member& self);

 private:
  struct Difference {
    int64_t bytes;
    uint32_t slots;
    uint64_t states;  // of the members: while one joins or ends, the difference may be on its way
    bool operator==(const Difference&) const = default;
  };
  static bool find(const Ledger& ledger, Difference& found);

  Difference last_ = {};
  int seen_ = 0;
};

}  // namespace headroom::node
