// Making room: the rank that gives way when memory is short, and the request to it; see room.cc.
//
// Private to src/pager; for the pager thread alone unless a line says otherwise.
#pragma once

#include <cstdint>

namespace headroom::pager {

enum class Urgency : uint8_t { kSomebodyWaits, kNobodyWaits };

/// Any thread: an allocation did not fit: every process of the node is told, once, and watches its memory from then on. Nothing
/// need leave yet.
void note_short();

/// Starts to free memory until `bytes` are free or on their way out; asks other ranks if they have more than their share.
void make_room(int64_t bytes, Urgency urgency = Urgency::kSomebodyWaits);
/// Something has to leave memory: ranks take turns from now on.
void note_lack_of_room();
/// If nothing has had to for some time, and all that there is would fit: they need not.
void end_lack_of_room();
void answer_requests_for_room();
/// Others were asked for room that nobody wants by now (a reader that it was for has ended): no need to look for it.
void forget_old_question();
/// Rings the ranks that have asked when there is room.
void tell_of_room();

}  // namespace headroom::pager
