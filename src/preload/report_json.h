// Every figure of a node as JSON. The shape is described in docs/user/report.md.
#pragma once

#include "node/session.h"

namespace headroom::preload {

/// Writes the file `name`; where the job has several nodes, all but the first one's are called name.HOST. Takes no lock and
/// allocates nothing.
void write_json_file(const node::Ledger& ledger, const char* host, const char* name);

}  // namespace headroom::preload
