// How sends and receives begin.
//
// Each fills in a request, on the stack of a blocking call or with a handle, and gives it to the endpoint. Buffered and
// replaced content is sent from a copy; if nobody will ask about such a send, its request is among those that are looked after
// (ending.h). A receive that may be from other nodes too goes both ways (library_parts.h).
#pragma once

namespace headroom::mpi {

struct Arguments;
struct Datatype;
struct DirectRequest;
struct Route;

/// After a start that failed: the request is not under way, and has nothing that its next user would take for its own.
void forget_start(DirectRequest& request);

/// Begins a send; `request.sending` is nullptr if it is complete already.
int start_send(DirectRequest& request, const Route& route, const Arguments& what);

/// Puts a request that nobody will ask about among those that are looked after.
void leave_request(DirectRequest* request);

/// Frees the copy that was sent from, if there is one.
void drop_copy(DirectRequest& request);

/// Begins a standard send of a copy of what is to be sent, so that the program may write to its own at once. The memory is the
/// program's kind: a long copy moves to storage like the program's own.
int start_send_of_copy(DirectRequest& request, const Route& route, const Arguments& what);

/// Fills in where a receive puts its message.
int prepare_receive(DirectRequest& request, Datatype& datatype, const Arguments& what);

/// Begins a receive; MPI's error.
int start_receive(DirectRequest& request, const Route& route, const Arguments& what);

}  // namespace headroom::mpi
