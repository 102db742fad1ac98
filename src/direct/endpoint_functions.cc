// See endpoint_functions.h.
#include "direct/endpoint_functions.h"

namespace headroom::direct {

EndpointFunctions endpoint_functions() {
  EndpointFunctions functions = {};
  functions.expect_threads = [] {
    endpoint().expect_threads();
    return &endpoint().threads();
  };
  functions.send = [](int member, const Envelope& envelope, const Content& content, SendKind kind, uint64_t looks,
                      Sending*& sending) { return endpoint().send(member, envelope, content, kind, looks, sending); };
  functions.try_to_finish = [](Sending* sending) { return endpoint().try_to_finish(sending); };
  functions.copy_aside = [](Sending* sending, bool must) { endpoint().copy_aside(sending, must); };
  functions.cancel_send = [](Sending* sending, bool* cancelled) { return endpoint().cancel(sending, cancelled); };
  functions.receive = [](Receiving& receiving) { endpoint().receive(receiving); };
  functions.receive_next = [](int member, const Envelope& wanted, const Content& into, NextMessage& got) {
    return endpoint().receive_next(member, wanted, into, got);
  };
  functions.cancel_receive = [](Receiving& receiving) { return endpoint().cancel(receiving); };
  functions.receive_elsewhere_too = [](Receiving& receiving) { return endpoint().receive_elsewhere_too(receiving); };
  functions.begin_elsewhere_again = [](Receiving& receiving) { endpoint().begin_elsewhere_again(receiving); };
  functions.withdraw = [](Receiving& receiving) { return endpoint().withdraw(receiving); };
  functions.finish = [](Receiving& receiving) { return endpoint().finish(receiving); };
  functions.find = [](const Envelope& wanted, Found& found) { return endpoint().find(wanted, found); };
  functions.extract = [](const Envelope& wanted) { return endpoint().extract(wanted); };
  functions.receive_message = [](Message* message, Receiving& receiving) { endpoint().receive_message(message, receiving); };
  functions.progress = [] { return endpoint().progress(); };
  functions.is_needed = [] { return endpoint().is_needed(); };
  functions.go_away = [] { endpoint().go_away(); };
  functions.come_back = [] { endpoint().come_back(); };
  functions.look_after_peers = [] { endpoint().look_after_peers(); };
  functions.is_drained = [] { return endpoint().is_drained(); };
  functions.add_run = [](LayoutBuilder& builder, int64_t offset, uint64_t bytes, uint64_t count, int64_t stride) {
    builder.add(offset, bytes, count, stride);
  };
  functions.add_layout = [](LayoutBuilder& builder, const LayoutBuilder& other, int64_t offset, uint64_t count,
                            int64_t stride) { builder.add_all(other, offset, count, stride); };
  functions.is_contiguous = [](const LayoutBuilder& builder, int64_t extent) { return builder.is_contiguous(extent); };
  functions.finish_layout = [](const LayoutBuilder& builder, int64_t extent) {
    return builder.finish(endpoint().memory(), extent);
  };
  functions.drop_builder = [](LayoutBuilder& builder) { builder.drop(); };
  functions.copy_content = [](const Content& to, const Content& from) {
    expect_overwriting(to, from);
    copy_content(to, from);
  };
  functions.expect_overwriting = [](const Content& to, const Content& from) { expect_overwriting(to, from); };
  functions.wake = [](int member) { endpoint().wake(member); };
  functions.open_card = [] { return endpoint().open_card(); };
  functions.begin_between_nodes = [](const NetworkFunctions& network, int ranks) {
    endpoint().begin_between_nodes(network, ranks);
  };
  functions.allocate_for_network = [](uint64_t bytes) { return endpoint().allocate_for_network(bytes); };
  functions.expects_network = [] { return endpoint().expects_network(); };
  functions.say_bye_to = [](int rank) { return endpoint().say_bye_to(rank); };
  functions.byes_come = [] { return endpoint().byes_come(); };
  functions.make_tally = [] { return endpoint().make_tally(); };
  functions.let_go_of_tally = [](Tally* tally, int ranks) { endpoint().let_go_of(tally, ranks); };
  functions.offset_of_tally = [](const Tally* tally) { return endpoint().memory().offset_of(tally); };
  functions.tally_at = [](uint64_t offset) { return endpoint().memory().at<Tally>(offset); };
  functions.let_go = [](Layout* layout) { let_go(layout, endpoint().memory()); };
  return functions;
}

}  // namespace headroom::direct
