// A store that fails, for tests (setting store_fault): the N-th read or write ends with a given errno (with N+, all from then
// on; with @F behind it, of those to or from the F-th file, with @F-L, up to the L-th), or the content that the N-th read
// brings is damaged; one whose reads take longer, as on another disk; or one whose writes are known to have ended only later,
// so that much can happen meanwhile: all of them, or those that fail. See store.h.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <new>

#include "base/system_calls.h"
#include "pager/store.h"

namespace headroom::pager {
namespace {

constexpr int kDamage = -1;

class FaultyStore final : public Store {
 public:
  /// The files whose transfers are meant, from the first to the last of these.
  struct Meant {
    long first;
    long last;
  };

  FaultyStore(Store* behind, bool write, int error, long nth, bool and_all_after, const StoreFiles& files, Meant meant)
      : behind_(behind),
        write_(write),
        error_(error),
        left_(nth),
        and_all_after_(and_all_after),
        files_(files),
        meant_(meant) {}

  void submit(const Transfer& transfer) override {
    ++in_flight_;
    const bool meant = transfer.write == write_ && is_meant(transfer.offset);
    left_ -= meant ? 1 : 0;
    if (meant && (left_ == 0 || (and_all_after_ && left_ < 0))) {
      if (error_ != kDamage) {
        failed_[failed_count_++] = {transfer.tag, transfer.write, error_};
        const uint64_t one = 1;
        (void)base::system_call(SYS_write, behind_->descriptor(), &one, sizeof one);
        return;
      }
      damaged_ = transfer;
    }
    behind_->submit(transfer);
  }

  int collect(Completion* out, int most) override {
    if (failed_count_ > 0 && most > 0) {
      --in_flight_;
      *out = failed_[--failed_count_];
      return 1;
    }
    const int found = behind_->collect(out, most);
    for (int index = 0; index < found; ++index) {
      if (damaged_.memory != nullptr && out[index].tag == damaged_.tag && !out[index].write) {
        static_cast<char*>(damaged_.memory)[damaged_.bytes / 2] ^= 1;
        damaged_ = {};
      }
    }
    in_flight_ -= found;
    return found;
  }

  [[nodiscard]] bool has_completions() const override { return failed_count_ > 0 || behind_->has_completions(); }
  void begin_batch() override { behind_->begin_batch(); }
  void end_batch() override { behind_->end_batch(); }

  [[nodiscard]] int descriptor() const override { return behind_->descriptor(); }
  [[nodiscard]] base::StoreChoice kind() const override { return behind_->kind(); }

 private:
  [[nodiscard]] bool is_meant(uint64_t offset) const {
    const int descriptor = place_of(files_, offset).descriptor;
    bool found = false;
    for (long file = meant_.first; file <= meant_.last && file < files_.count; ++file) {
      found = found || files_.descriptors[file] == descriptor;
    }
    return found;
  }

  Store* behind_;
  bool write_;
  int error_;
  long left_;
  bool and_all_after_;
  const StoreFiles& files_;
  Meant meant_;
  Completion failed_[kDepth] = {};
  int failed_count_ = 0;
  Transfer damaged_ = {};
};

class SlowStore final : public Store {
 public:
  SlowStore(Store* behind, long each_us, long block_us) : behind_(behind), each_us_(each_us), block_us_(block_us) {}

  void submit(const Transfer& transfer) override {
    if (!transfer.write) {
      const auto us = each_us_ + block_us_ * static_cast<long>(transfer.bytes / kBlock);
      const timespec pause = {us / 1'000'000, us % 1'000'000 * 1000};
      (void)base::system_call(SYS_nanosleep, &pause, nullptr);
    }
    ++in_flight_;
    behind_->submit(transfer);
  }

  int collect(Completion* out, int most) override {
    const int found = behind_->collect(out, most);
    in_flight_ -= found;
    return found;
  }

  [[nodiscard]] bool has_completions() const override { return behind_->has_completions(); }
  void begin_batch() override { behind_->begin_batch(); }
  void end_batch() override { behind_->end_batch(); }
  [[nodiscard]] int descriptor() const override { return behind_->descriptor(); }
  [[nodiscard]] base::StoreChoice kind() const override { return behind_->kind(); }

 private:
  static constexpr uint64_t kBlock = 256 << 10;
  Store* behind_;
  long each_us_;
  long block_us_;
};

/// Its writes, or those that fail, are said to have ended when that long has passed. The thread that collects stays awake
/// meanwhile.
class LateStore final : public Store {
 public:
  LateStore(Store* behind, uint64_t late_us, bool if_failed)
      : behind_(behind), late_ns_(late_us * 1000), if_failed_(if_failed) {}

  void submit(const Transfer& transfer) override {
    ++in_flight_;
    behind_->submit(transfer);
  }

  int collect(Completion* out, int most) override {
    int found = behind_->collect(out, most);
    const uint64_t now = base::monotonic_ns();
    int kept = 0;
    for (int index = 0; index < found; ++index) {
      if (out[index].write && (!if_failed_ || out[index].error != 0)) {
        withheld_[withheld_count_++] = {out[index], now + late_ns_};
      } else {
        out[kept++] = out[index];
      }
    }
    found = kept;
    for (int index = 0; index < withheld_count_ && found < most;) {
      if (withheld_[index].due_ns > now) {
        ++index;
        continue;
      }
      out[found++] = withheld_[index].completion;
      withheld_[index] = withheld_[--withheld_count_];
    }
    in_flight_ -= found;
    if (withheld_count_ > 0) {
      const uint64_t one = 1;
      (void)base::system_call(SYS_write, descriptor(), &one, sizeof one);
    }
    return found;
  }

  [[nodiscard]] bool has_completions() const override { return withheld_count_ > 0 || behind_->has_completions(); }
  void begin_batch() override { behind_->begin_batch(); }
  void end_batch() override { behind_->end_batch(); }
  [[nodiscard]] int descriptor() const override { return behind_->descriptor(); }
  [[nodiscard]] base::StoreChoice kind() const override { return behind_->kind(); }

 private:
  struct Withheld {
    Completion completion;
    uint64_t due_ns;
  };
  Store* behind_;
  uint64_t late_ns_;
  bool if_failed_;
  Withheld withheld_[kDepth] = {};
  int withheld_count_ = 0;
};

int error_of_name(const char* name, size_t length) {
  const struct {
    const char* name;
    int value;
  } known[] = {{"EIO", EIO}, {"ENOSPC", ENOSPC}, {"EDQUOT", EDQUOT}, {"EINVAL", EINVAL}, {"EROFS", EROFS}, {"DAMAGE", kDamage}};
  for (const auto& entry : known) {
    if (strlen(entry.name) == length && strncmp(entry.name, name, length) == 0) {
      return entry.value;
    }
  }
  return 0;
}

/// read|write:ERRNO:N with what may follow, or nullptr.
Store* make_failing_store(Store* behind, const StoreFiles& files, const char* specification) {
  alignas(FaultyStore) static char place[sizeof(FaultyStore)];
  const bool write = strncmp(specification, "write:", 6) == 0;
  if (!write && strncmp(specification, "read:", 5) != 0) {
    return nullptr;
  }
  const char* name = specification + (write ? 6 : 5);
  const char* colon = strchr(name, ':');
  const int error = colon != nullptr ? error_of_name(name, static_cast<size_t>(colon - name)) : 0;
  char* end = nullptr;
  const long nth = colon != nullptr ? strtol(colon + 1, &end, 10) : 0;
  const bool and_all_after = nth > 0 && *end == '+';
  end += and_all_after ? 1 : 0;
  FaultyStore::Meant meant = {0, kMostFiles - 1};
  if (nth > 0 && *end == '@') {
    meant.first = strtol(end + 1, &end, 10);
    meant.last = *end == '-' ? strtol(end + 1, &end, 10) : meant.first;
  }
  const bool files_exist = meant.first >= 0 && meant.first <= meant.last && meant.last < kMostFiles;
  const bool possible = error != 0 && !(write && error == kDamage) && nth > 0 && *end == 0 && files_exist;
  return possible ? new (place) FaultyStore(behind, write, error, nth, and_all_after, files, meant) : nullptr;
}

/// late:US, or late:US: with a fault behind it; or nullptr.
Store* make_late_store(Store* behind, const StoreFiles& files, const char* specification) {
  alignas(LateStore) static char place[sizeof(LateStore)];
  char* end = nullptr;
  const long us = strtol(specification, &end, 10);
  const bool if_failed = *end == ':';
  behind = if_failed ? make_failing_store(behind, files, end + 1) : behind;
  const bool possible = us > 0 && (if_failed ? behind != nullptr : *end == 0);
  return possible ? new (place) LateStore(behind, static_cast<uint64_t>(us), if_failed) : nullptr;
}

/// slow:EACH_US:BLOCK_US, or nullptr.
Store* make_slow_store(Store* behind, const char* specification) {
  alignas(SlowStore) static char place[sizeof(SlowStore)];
  char* end = nullptr;
  const long each_us = strtol(specification, &end, 10);
  const long block_us = *end == ':' ? strtol(end + 1, &end, 10) : -1;
  return *end == 0 && each_us >= 0 && block_us >= 0 ? new (place) SlowStore(behind, each_us, block_us) : nullptr;
}

}  // namespace

Store* make_faulty_store(Store* behind, const StoreFiles& files, const char* specification) {
  if (strncmp(specification, "slow:", 5) == 0) {
    return make_slow_store(behind, specification + 5);
  }
  if (strncmp(specification, "late:", 5) == 0) {
    return make_late_store(behind, files, specification + 5);
  }
  return make_failing_store(behind, files, specification);
}

}  // namespace headroom::pager
