// MPI_Sendrecv_replace and the nonblocking forms that send and receive.
//
// The content to send is copied first, so that the buffer is free; content for other nodes is copied by the library's own
// packing.
#pragma once

namespace headroom::mpi {

struct Arguments;
struct DirectRequest;
struct Route;

/// Begins both parts of a call of which one at least is direct; `replaces`: into the memory that is sent.
int start_parts(DirectRequest& receive, DirectRequest& send, const Route& from, const Route& to, const Arguments& in,
                const Arguments& out, bool replaces);

}  // namespace headroom::mpi
