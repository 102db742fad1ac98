// See matched_messages.h.
#include "mpi/backend/messages/matched_messages.h"

#include "base/system_calls.h"
#include "base/threads_lock.h"
#include "direct/endpoint.h"
#include "mpi/backend/abi.h"
#include "mpi/backend/guards.h"
#include "mpi/backend/messages/completion.h"
#include "mpi/backend/messages/direct_requests.h"
#include "mpi/backend/messages/ending.h"
#include "mpi/backend/messages/library_parts.h"
#include "mpi/backend/messages/point_to_point.h"
#include "mpi/backend/messages/polling.h"
#include "mpi/backend/messages/request_contents.h"
#include "mpi/backend/messages/routes.h"
#include "mpi/backend/messages/starting.h"
#include "mpi/backend/messages/waiting.h"
#include "mpi/backend/objects/communicators.h"
#include "mpi/backend/objects/datatypes.h"
#include "mpi/backend/objects/error_handlers.h"
#include "mpi/backend/state.h"
#include "mpi/services.h"

namespace headroom::mpi {
namespace {

struct Token {
  MPI_Message handle;
  direct::Message* message;  // nullptr: free
  MPI_Comm comm;
  MPI_Request sent;  // kept: MPICH 4.0 takes the message with it if it is freed
};

constexpr int kMostTokens = 4096;

Token* tokens = nullptr;
int token_count = 0;
base::ThreadsLock token_lock;

/// A token for `message`; nullptr if there are far too many.
Token* take_token(direct::Message* message, MPI_Comm comm) {
  const LockAmongThreads lock(token_lock);
  for (int index = 0; index < token_count; ++index) {
    if (tokens[index].message == nullptr) {
      tokens[index].message = message;
      tokens[index].comm = comm;
      return &tokens[index];
    }
  }
  const InsideLibrary inside;
  if (tokens == nullptr) {
    tokens = static_cast<Token*>(base::reserve_memory(kMostTokens * sizeof(Token)));
  }
  if (tokens == nullptr || token_count == kMostTokens) {
    return nullptr;
  }
  Token& token = tokens[token_count];
  if (real.Isend[1](nullptr, 0, MPI_BYTE, 0, 0, private_self, &token.sent) != MPI_SUCCESS ||
      real.Mprobe[1](0, 0, private_self, &token.handle, MPI_STATUS_IGNORE) != MPI_SUCCESS) {
    return nullptr;
  }
  ++token_count;
  token.message = message;
  token.comm = comm;
  return &token;
}

Token* token_of(MPI_Message handle) {
  const LockAmongThreads lock(token_lock);
  for (int index = 0; index < token_count; ++index) {
    if (tokens[index].message != nullptr && tokens[index].handle == handle) {
      return &tokens[index];
    }
  }
  return nullptr;
}

void give_back_token(Token& token) {
  const LockAmongThreads lock(token_lock);
  token.message = nullptr;
}

/// Takes the message that fits out; false if there is none. With an error it stays where it is.
bool take_out(const Communicator& communicator, MPI_Comm comm, int source, int tag, MPI_Message* handle, MPI_Status* status,
              int& error) {
  static direct::Message not_yet;
  make_progress();
  const direct::Envelope wanted = envelope_of(communicator, source, tag);
  direct::Found found = {};
  error = MPI_SUCCESS;
  if (!core->endpoint.find(wanted, found)) {
    return false;
  }
  Token* token = take_token(&not_yet, comm);
  if (token == nullptr) {
    error = raise_error(comm, MPI_ERR_NO_MEM);
    return true;
  }
  direct::Message* message = core->endpoint.extract(wanted);
  if (message == nullptr) {  // another thread was first
    give_back_token(*token);
    return false;
  }
  token->message = message;
  *handle = token->handle;
  set_probed(status, message->envelope, message->bytes);
  return true;
}

/// Takes a message out of the library. With the lock where messages are direct, too: a token that was taken out
/// (library_parts.h) could not be put back where it was, and a program that chooses by it would wait for ever. A look does
/// not wait for anybody.
int take_out_of_library(const Probed& probed, int profiled, int source, int tag, MPI_Comm comm, int* flag, MPI_Message* message,
                        MPI_Status* status) {
  if (probed.communicator == nullptr) {
    return real.Improbe[profiled](source, tag, comm, flag, message, status);
  }
  LibraryError error;
  {
    const PartLock lock;
    error = HandlersWait::of_call(real.Improbe[profiled](source, tag, comm, flag, message, status));
  }
  return error.waits ? raise_error(comm, error.error) : error.error;
}

/// Begins to receive a message that was taken out.
int start_matched(DirectRequest& request, Token& token, const Arguments& what, MPI_Message* handle) {
  Datatype* datatype = what.count >= 0 ? datatype_of_message(what.buffer, what.count, what.datatype) : nullptr;
  if (datatype == nullptr) {
    return raise_error(token.comm, what.count < 0 ? MPI_ERR_COUNT : MPI_ERR_TYPE);
  }
  const int error = prepare_receive(request, *datatype, what);
  if (error == MPI_SUCCESS) {
    direct::Message* message = token.message;
    *handle = MPI_MESSAGE_NULL;
    give_back_token(token);
    core->endpoint.receive_message(message, request.receiving);
  }
  return error;
}

}  // namespace

int serve_Improbe(int source, int tag, MPI_Comm comm, int* flag, MPI_Message* message, MPI_Status* status, Entry entry) {
  const Probed probed = ways_to_probe(source, tag, comm);
  const auto take_out_here = [&](int& error) {
    const bool taken =
        probed.communicator != nullptr && take_out(*probed.communicator, comm, source, tag, message, status, error);
    *flag = taken && error == MPI_SUCCESS ? 1 : 0;
    return taken;
  };
  int direct_error = MPI_SUCCESS;
  if (take_out_here(direct_error) || !probed.in_library) {
    return direct_error != MPI_SUCCESS ? direct_error : after_direct_poll(*flag != 0);
  }
  bool first = true;  // direct messages were looked for before
  return poll_library(entry, [&](int profiled, int& error) {
    if (first || !take_out_here(error)) {
      error = take_out_of_library(probed, profiled, source, tag, comm, flag, message, status);
    }
    first = false;
    return look_by(*flag);
  });
}

int serve_Mprobe(int source, int tag, MPI_Comm comm, MPI_Message* message, MPI_Status* status, Entry entry) {
  const Probed probed = ways_to_probe(source, tag, comm);
  if (probed.communicator != nullptr) {
    int direct_error = MPI_SUCCESS;
    const int error = wait_on_both_ways(
        probed, [&] { return take_out(*probed.communicator, comm, source, tag, message, status, direct_error); },
        [&](int* found) { return take_out_of_library(probed, 1, source, tag, comm, found, message, status); });
    return direct_error != MPI_SUCCESS ? direct_error : error;
  }
  if (source == MPI_PROC_NULL || !polls()) {
    const WaitInLibrary waiting;
    return real.Mprobe[entry](source, tag, comm, message, status);
  }
  const InsideLibrary inside;
  return poll_until_done([&](int* done) { return real.Improbe[1](source, tag, comm, done, message, status); });
}

#define HEADROOM_MATCHED_RECEIVE(Name, Immediate, Count)                                                                   \
  int serve_##Name(void* buf, Count count, MPI_Datatype datatype, MPI_Message* message, MPI_Status* status, Entry entry) { \
    if (Token* token = direct_on ? token_of(*message) : nullptr) {                                                         \
      const MPI_Comm comm = token->comm;                                                                                   \
      DirectRequest request;                                                                                               \
      int error = start_matched(request, *token, {buf, count, datatype, 0, 0, comm, SendMode::kStandard}, message);        \
      if (error != MPI_SUCCESS) {                                                                                          \
        return error;                                                                                                      \
      }                                                                                                                    \
      wait_direct([&] {                                                                                                    \
        make_progress();                                                                                                   \
        return try_to_complete(request);                                                                                   \
      });                                                                                                                  \
      share_success();                                                                                                     \
      error = conclude(request, status);                                                                                   \
      return error == MPI_SUCCESS ? error : raise_error(comm, error);                                                      \
    }                                                                                                                      \
    if (!polls()) {                                                                                                        \
      const WaitInLibrary waiting;                                                                                         \
      return real.Name[entry](buf, count, datatype, message, status);                                                      \
    }                                                                                                                      \
    const InsideLibrary inside;                                                                                            \
    MPI_Request request = MPI_REQUEST_NULL;                                                                                \
    const int error = real.Immediate[1](buf, count, datatype, message, &request);                                          \
    if (error != MPI_SUCCESS) {                                                                                            \
      return error;                                                                                                        \
    }                                                                                                                      \
    return poll_until_done([&](int* done) { return real.Test[1](&request, done, status); });                               \
  }                                                                                                                        \
  int serve_##Immediate(void* buf, Count count, MPI_Datatype datatype, MPI_Message* message, MPI_Request* handle,          \
                        Entry entry) {                                                                                     \
    Token* token = direct_on ? token_of(*message) : nullptr;                                                               \
    if (token == nullptr) {                                                                                                \
      const InsideLibrary inside;                                                                                          \
      return real.Immediate[entry](buf, count, datatype, message, handle);                                                 \
    }                                                                                                                      \
    DirectRequest* request = take_request(token->comm);                                                                    \
    if (request == nullptr) {                                                                                              \
      return raise_error(token->comm, MPI_ERR_NO_MEM);                                                                     \
    }                                                                                                                      \
    const int error =                                                                                                      \
        start_matched(*request, *token, {buf, count, datatype, 0, 0, token->comm, SendMode::kStandard}, message);          \
    if (error != MPI_SUCCESS) {                                                                                            \
      recycle(request);                                                                                                    \
      return error;                                                                                                        \
    }                                                                                                                      \
    *handle = request->handle;                                                                                             \
    return MPI_SUCCESS;                                                                                                    \
  }

HEADROOM_MATCHED_RECEIVE(Mrecv, Imrecv, int)
HEADROOM_MATCHED_RECEIVE(Mrecv_c, Imrecv_c, MPI_Count)

bool is_any_message_taken_out_on(MPI_Comm comm) {
  const LockAmongThreads lock(token_lock);
  for (int index = 0; index < token_count; ++index) {
    if (tokens[index].message != nullptr && tokens[index].comm == comm) {
      return true;
    }
  }
  return false;
}

void raise_errors_of_messages_on(MPI_Comm comm, MPI_Comm stand_in) {
  const LockAmongThreads lock(token_lock);
  for (int index = 0; index < token_count; ++index) {
    if (tokens[index].message != nullptr && tokens[index].comm == comm) {
      tokens[index].comm = stand_in;
    }
  }
}

void end_tokens() {
  for (int index = 0; index < token_count; ++index) {
    real.Mrecv[1](nullptr, 0, MPI_BYTE, &tokens[index].handle, MPI_STATUS_IGNORE);
    real.Wait[1](&tokens[index].sent, MPI_STATUS_IGNORE);
  }
  token_count = 0;
}

}  // namespace headroom::mpi
