// The report of a node: a short summary on standard error, and every figure as JSON.
#pragma once

#include "node/session.h"

namespace headroom::preload {

/// Written by the last process that leaves, or by the first that ends by an error of Headroom's; reads the ledger only. Takes
/// no lock and allocates nothing.
void write_report(const node::Session& session);

}  // namespace headroom::preload
