// How long idle processors may take to wake (--latency low).
//
// A thread that jumps about in memory waits for one page after the other. Each time its processor falls idle, and mostly the
// pager's as well, and waking both costs as much as a third of the page (docs/dev/decisions.md, "Where the time of such a fault
// goes"). Who may write /dev/cpu_dma_latency can tell the kernel how long waking may take; at 0, all idle processors of the
// machine poll. That draws power and takes from what the others may turbo to, so it is asked for only while many single pages
// are awaited, and for a moment longer: pages come in runs, and each change interrupts every idle processor. The wish is the
// open file's: the kernel forgets it with the last process that has it open, so a forked child closes it.
//
// Private to src/pager; for the pager's thread alone, but for the first and the last.
#pragma once

namespace headroom::pager {

/// Before the pager's thread starts. Warns if what --latency low asks for cannot be had; `headroom run` has refused that, but a
/// program may have given rights up.
void open_wake_latency();

/// Asks the kernel for fast wake-ups, or no longer, by the pages that were read. Each time the pager's thread goes round.
void follow_wake_latency();

/// The thread is about to wait for something else than pages, perhaps for long.
void end_wake_latency();

/// Whether they are asked for: the thread is to come round again in kHoldLatencyMs at the latest.
bool holds_wake_latency();
inline constexpr int kHoldLatencyMs = 100;

/// In the child of a fork, which would keep the wish of a parent that has ended.
void forget_wake_latency_in_child();

}  // namespace headroom::pager
