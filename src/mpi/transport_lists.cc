// See transport_lists.h.
#include "mpi/transport_lists.h"

#include <stdio.h>
#include <string.h>

namespace headroom::mpi {

bool has_name(const char* list, const char* name, size_t length) {
  for (const char* at = list; *at != 0; at += strcspn(at, ",") + (at[strcspn(at, ",")] != 0 ? 1 : 0)) {
    const size_t own = strcspn(at, ",");
    if (own == length && strncmp(at, name, length) == 0) {
      return true;
    }
  }
  return false;
}

namespace {

/// UCX's names for several transports at once.
struct Alias {
  const char* name;
  const char* means;
};
constexpr Alias kAliases[] = {
    {"sm", "posix,sysv,xpmem,knem,cma"}, {"shm", "posix,sysv,xpmem,knem,cma"}, {"mm", "posix,sysv,xpmem"}};

constexpr const char* kOfInfiniband[] = {"rc", "ud", "dc", "srd", "ib"};

bool is_off(const char* off, const char* name, size_t length) {
  if (has_name(off, name, length)) {
    return true;
  }
  for (const char* transport : kOfInfiniband) {
    const size_t own = strlen(transport);
    if (length >= own && strncmp(name, transport, own) == 0 && (length == own || name[own] == '_')) {
      return has_name(off, "ib", 2);
    }
  }
  return false;
}

class Text {
 public:
  Text(char* out, size_t room) : out_(out), room_(room) { out_[0] = 0; }
  void add(const char* word, size_t length, const char* between) {
    const size_t more = length + (filled_ > 0 ? strlen(between) : 0);
    fits_ = fits_ && filled_ + more < room_;
    if (!fits_) {
      return;
    }
    if (filled_ > 0) {
      strcpy(out_ + filled_, between);
    }
    filled_ += more;
    memcpy(out_ + filled_ - length, word, length);
    out_[filled_] = 0;
  }
  [[nodiscard]] bool fits() const { return fits_; }
  [[nodiscard]] bool is_empty() const { return filled_ == 0; }

 private:
  char* out_;
  size_t room_;
  size_t filled_ = 0;
  bool fits_ = true;
};

template <typename Each>
void for_each_name(const char* list, Each each) {
  while (*list != 0) {
    const size_t length = strcspn(list, ",");
    if (length > 0) {
      each(list, length);
    }
    list += length + (list[length] != 0 ? 1 : 0);
  }
}

void exclude_all(const char* off, char* out, size_t room) { (void)snprintf(out, room, "^%s", off); }

}  // namespace

bool exclude_from_list(const char* given, const char* off, char* out, size_t room) {
  if (*off == 0) {
    return false;
  }
  if (given == nullptr || *given == 0 || strcmp(given, "all") == 0) {
    exclude_all(off, out, room);
    return true;
  }
  Text text(out, room);
  bool changes_it = false;
  if (*given == '^') {
    text.add(given, strlen(given), "");
    for_each_name(off, [&](const char* name, size_t length) {
      if (!has_name(given + 1, name, length)) {
        text.add(name, length, ",");
        changes_it = true;
      }
    });
    return changes_it && text.fits();
  }
  const auto keep = [&](const char* name, size_t length) {
    if (*name == '\\') {  // exactly this one, as UCX has it
      ++name;
      --length;
    }
    // "ud:aux" is UCX's for an auxiliary use, "verbs;ofi_rxm" libfabric's for one provider over another.
    const size_t plain = strcspn(name, ":;") < length ? strcspn(name, ":;") : length;
    if (is_off(off, name, plain)) {
      changes_it = true;
    } else {
      text.add(name, length, ",");
    }
  };
  for_each_name(given, [&](const char* name, size_t length) {
    for (const Alias& alias : kAliases) {
      if (strlen(alias.name) == length && strncmp(alias.name, name, length) == 0) {
        bool meets_it = false;
        for_each_name(alias.means,
                      [&](const char* one, size_t one_length) { meets_it = meets_it || is_off(off, one, one_length); });
        if (meets_it) {
          for_each_name(alias.means, keep);
          return;
        }
      }
    }
    keep(name, length);
  });
  if (changes_it && text.is_empty()) {
    exclude_all(off, out, room);
  }
  return changes_it && text.fits();
}

}  // namespace headroom::mpi
