// How long idle processors may take to wake (--latency low).
//
// A thread that jumps about in memory waits for one page after the other. Each time its processor falls idle, and mostly the
// pager's as well, and waking both costs as much as a third of the page (docs/dev/decisions.md, "What a fault costs"). Who may
// write /dev/cpu_dma_latency can tell the kernel how long waking may take; at 0, all idle processors of the machine poll. That
// draws power and takes from what the others may turbo to, so it is asked for only while single pages are awaited, and for a
// moment longer: pages come in runs, and each change interrupts every idle processor. The kernel forgets the wish with the
// process, however that ends.
//
// Private to src/pager; for the pager's thread alone, but for the first and the last.
#pragma once

namespace headroom::pager {

/// Before the pager's thread starts; ends the process if --latency low was asked for and cannot be had (`headroom run` has
/// looked, and says more).
void open_wake_latency();

/// Asks the kernel for fast wake-ups, or no longer, by state.awake_until_ns. Each time the pager's thread goes round.
void follow_wake_latency();

/// Whether they are asked for: the thread is to come round again in kHoldLatencyMs at the latest.
bool holds_wake_latency();
inline constexpr int kHoldLatencyMs = 100;

/// In the child of a fork, which would keep the wish of a parent that has ended.
void forget_wake_latency_in_child();

}  // namespace headroom::pager
