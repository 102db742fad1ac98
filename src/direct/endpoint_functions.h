// The endpoint for code that does not link with it: the MPI backends. There is one for each of MPI's binary interfaces, a
// library of its own that is loaded when it is known which one the program uses (mpi/library.cc); the functions that it may
// call are handed to it.
#pragma once

#include "direct/endpoint.h"

namespace headroom::direct {

struct EndpointFunctions {
  base::CallingThreads* (*expect_threads)();
  SendOutcome (*send)(int member, const Envelope& envelope, const Content& content, SendKind kind, uint64_t looks,
                      Sending*& sending);
  bool (*try_to_finish)(Sending* sending);
  void (*copy_aside)(Sending* sending, bool must);
  bool (*cancel_send)(Sending* sending, bool* cancelled);
  void (*receive)(Receiving& receiving);
  bool (*receive_next)(int member, const Envelope& wanted, const Content& into, NextMessage& got);
  bool (*cancel_receive)(Receiving& receiving);
  bool (*receive_elsewhere_too)(Receiving& receiving);
  void (*begin_elsewhere_again)(Receiving& receiving);
  bool (*withdraw)(Receiving& receiving);
  bool (*finish)(Receiving& receiving);
  bool (*find)(const Envelope& wanted, Found& found);
  Message* (*extract)(const Envelope& wanted);
  void (*receive_message)(Message* message, Receiving& receiving);
  bool (*progress)();
  bool (*is_needed)();
  void (*go_away)();
  void (*come_back)();
  bool (*is_drained)();
  void (*look_after_peers)();
  void (*add_run)(LayoutBuilder& builder, int64_t offset, uint64_t bytes, uint64_t count, int64_t stride);
  void (*add_layout)(LayoutBuilder& builder, const LayoutBuilder& other, int64_t offset, uint64_t count, int64_t stride);
  bool (*is_contiguous)(const LayoutBuilder& builder, int64_t extent);
  Layout* (*finish_layout)(const LayoutBuilder& builder, int64_t extent);
  void (*drop_builder)(LayoutBuilder& builder);
  void (*let_go)(Layout* layout);
  void (*copy_content)(const Content& to, const Content& from);
  void (*expect_overwriting)(const Content& to, const Content& from);
  void (*wake)(int member);
  bool (*open_card)();
  void (*begin_between_nodes)(const NetworkFunctions& network, int ranks);
  void* (*allocate_for_network)(uint64_t bytes);
  bool (*expects_network)();
  bool (*say_bye_to)(int rank);
  int (*byes_come)();
  Tally* (*make_tally)();
  void (*let_go_of_tally)(Tally* tally, int ranks);
  uint64_t (*offset_of_tally)(const Tally* tally);
  Tally* (*tally_at)(uint64_t offset);
};
EndpointFunctions endpoint_functions();

}  // namespace headroom::direct
