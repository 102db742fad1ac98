// See file_worker.h.
#include "collio/file_worker.h"

#include <string.h>

#include <algorithm>

#include "base/own_threads.h"
#include "base/system_calls.h"

namespace headroom::collio {
namespace {

struct Queue {
  base::FutexLock lock;
  FileJob* first = nullptr;
  FileJob** last = &first;
  std::atomic<uint32_t> submitted{0};  // futex
  bool has_worker = false;
};

Queue& queue() {
  static Queue jobs;
  return jobs;
}

FileJob* take_job(Queue& jobs) {
  const base::LockHolder lock(jobs.lock);
  FileJob* job = jobs.first;
  if (job != nullptr) {
    jobs.first = job->next;
    if (jobs.first == nullptr) {
      jobs.last = &jobs.first;
    }
  }
  return job;
}

void finish(FileJob& job) {
  void (*const when_done)() = job.when_done;
  std::atomic<uint32_t>* const done = &job.done;
  done->store(1, std::memory_order_release);  // from here on the job may be gone; a futex that is not there wakes nobody
  base::futex_wake(done, 1, false);
  if (when_done != nullptr) {
    when_done();
  }
}

void* work(void*) {
  Queue& jobs = queue();
  for (;;) {
    const uint32_t seen = jobs.submitted.load(std::memory_order_acquire);
    FileJob* job = take_job(jobs);
    if (job == nullptr) {
      base::futex_wait(&jobs.submitted, seen, -1, false);
      continue;
    }
    do_job(*job);
    finish(*job);
  }
}

int write_stretches(const FileJob& job) {
  int error = 0;
  int64_t begin = 0;
  int64_t end = job.begin;
  while (error == 0 && end < job.end && job.covered->next_stretch(end, begin, end)) {
    error = job.file.write(job.file, job.memory + (begin - job.begin), end - begin, begin);
  }
  return error;
}

/// Reads the bytes that nobody writes into their places in the window; behind the end of the file they are zeros.
int fill_holes(const FileJob& job) {
  for (int64_t at = job.begin; at < job.end; at += kScratchBytes) {
    const int64_t end = std::min(at + kScratchBytes, job.end);
    int64_t hole = at;
    int64_t begin = 0;
    int64_t after = 0;
    bool has_read = false;
    while (hole < end) {
      const bool found = job.covered->next_stretch(hole, begin, after);
      const int64_t hole_end = found ? std::min(begin, end) : end;
      if (hole_end > hole) {
        if (!has_read) {
          const int64_t got = job.file.read(job.file, job.scratch, end - at, at);
          if (got < 0) {
            return static_cast<int>(-got);
          }
          memset(job.scratch + got, 0, static_cast<size_t>(end - at - got));
          has_read = true;
        }
        memcpy(job.memory + (hole - job.begin), job.scratch + (hole - at), static_cast<size_t>(hole_end - hole));
      }
      hole = found ? after : end;
    }
  }
  return 0;
}

int write_window(const FileJob& job) {
  const int64_t bytes = job.end - job.begin;
  if (!job.fills_holes) {
    if (job.locks) {
      job.file.lock(job.file, job.begin, bytes);
    }
    const int error = job.covered != nullptr ? write_stretches(job) : job.file.write(job.file, job.memory, bytes, job.begin);
    if (job.locks) {
      job.file.unlock(job.file, job.begin, bytes);
    }
    return error;
  }
  // Ranks that have opened the file on their own may be writing in the holes.
  job.file.lock(job.file, job.begin, bytes);
  const int filled = fill_holes(job);
  const int error = filled != 0 ? filled : job.file.write(job.file, job.memory, bytes, job.begin);
  job.file.unlock(job.file, job.begin, bytes);
  return error;
}

}  // namespace

void do_job(FileJob& job) {
  job.error = 0;
  job.got = 0;
  if (job.writes) {
    job.error = write_window(job);
  } else {
    const int64_t got = job.file.read(job.file, job.memory, job.end - job.begin, job.begin);
    job.error = got < 0 ? static_cast<int>(-got) : 0;
    job.got = std::max<int64_t>(got, 0);
  }
  if (job.error == 0 && job.push) {
    job.file.push(job.file, job.begin, job.end - job.begin);
  }
  if (job.error == 0 && job.drop_end > job.drop_begin) {
    job.error = job.file.drop(job.file, job.drop_begin, job.drop_end - job.drop_begin);
  }
}

void submit(FileJob& job) {
  job.done.store(0, std::memory_order_relaxed);
  job.next = nullptr;
  if (job.file.wants_its_rank) {
    do_job(job);
    finish(job);
    return;
  }
  Queue& jobs = queue();
  {
    const base::LockHolder lock(jobs.lock);
    jobs.has_worker = jobs.has_worker || base::start_thread("headroom-files", work, nullptr);
    if (jobs.has_worker) {
      *jobs.last = &job;
      jobs.last = &job.next;
      jobs.submitted.fetch_add(1, std::memory_order_release);
    }
  }
  if (jobs.has_worker) {
    base::futex_wake(&jobs.submitted, 1, false);
    return;
  }
  do_job(job);
  finish(job);
}

void wait_until_done(const FileJob& job) {
  while (job.done.load(std::memory_order_acquire) == 0) {
    base::futex_wait(&job.done, 0, -1, false);
  }
}

}  // namespace headroom::collio
