// Reading and writing windows beside the exchange: a thread of Headroom's own does the jobs of this process in order, while the
// rank fills or empties the other window.
//
// The thread begins with the first job and stays. Where none can be had, or only the rank's own may use the file, a job is done
// at once by the thread that submits it.
#pragma once

#include <atomic>
#include <cstdint>

#include "collio/coverage.h"
#include "collio/file_access.h"

namespace headroom::collio {

inline constexpr int64_t kScratchBytes = 64 << 10;

struct FileJob {
  FileAccess file;
  bool writes = false;
  char* memory = nullptr;  // of position `begin`
  int64_t begin = 0;       // in the file
  int64_t end = 0;
  const Coverage* covered = nullptr;  // the bytes that ranks write; nullptr: all
  bool fills_holes = false;           // other bytes are read first, and all is written at once; else stretch by stretch
  bool locks = false;                 // the range that it writes without that: others may fill holes there
  char* scratch = nullptr;            // for that, of kScratchBytes
  bool push = false;                  // begin to write the pages to the disk,
  int64_t drop_begin = 0;             // and wait for these, and take them out of the page cache
  int64_t drop_end = 0;
  void (*when_done)() = nullptr;  // called by the thread that did it
  // Filled in:
  int error = 0;
  int64_t got = 0;                // bytes read
  std::atomic<uint32_t> done{1};  // futex
  FileJob* next = nullptr;
};

/// Does the job, here and now.
void do_job(FileJob& job);
/// Has it done; it must stay where it is until `done`.
void submit(FileJob& job);
/// Sleeps until then.
void wait_until_done(const FileJob& job);

}  // namespace headroom::collio
