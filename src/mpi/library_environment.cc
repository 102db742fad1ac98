// See library_environment.h.
#include "mpi/library_environment.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/system_calls.h"

namespace headroom::mpi {
namespace {

constexpr size_t kMostChanges = 40;

/// A value that is set in place of the user's (nullptr: there was none).
struct Change {
  char name[kMostName];
  const char* before;
  char after[kMostValue];
  bool is_unset;
};
Change changes[kMostChanges];
size_t change_count = 0;
char overridden[1024];

Change* change_of(const char* name) {
  for (size_t index = 0; index < change_count; ++index) {
    if (strcmp(changes[index].name, name) == 0) {
      return &changes[index];
    }
  }
  return nullptr;
}

}  // namespace

const char* value_now(const char* name) {
  const size_t length = strlen(name);
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (strncmp(*entry, name, length) == 0 && (*entry)[length] == '=') {
      return *entry + length + 1;
    }
  }
  return nullptr;
}

const char* users_value(const char* name) {
  const Change* change = change_of(name);
  const char* now = value_now(name);
  const bool is_ours = change != nullptr && (now == nullptr ? change->is_unset : strcmp(now, change->after) == 0);
  return is_ours ? change->before : now;
}

bool was_changed(const char* name) { return change_of(name) != nullptr; }

void note_overridden(const char* name, const char* before, const char* after) {
  const size_t length = strlen(overridden);
  (void)snprintf(overridden + length, sizeof overridden - length, "%s%s=%s -> %s", length == 0 ? "" : "; ", name, before,
                 after);
}

void forget_overridden() { overridden[0] = 0; }
const char* overridden_settings() { return overridden; }

void set_for_library(const char* name, const char* value) {
  const char* before = users_value(name);
  const char* now = value_now(name);
  if (value == now || (now != nullptr && value != nullptr && strcmp(now, value) == 0)) {
    return;
  }
  Change* change = change_of(name);
  if (change == nullptr && change_count < kMostChanges) {
    change = &changes[change_count++];
    (void)snprintf(change->name, sizeof change->name, "%s", name);
  }
  if (change != nullptr) {
    base::log_debug(base::Part::kMpi, "%s is %s for the MPI library", name, value != nullptr ? value : "not set");
    change->before = before;
    (void)snprintf(change->after, sizeof change->after, "%s", value != nullptr ? value : "");
    change->is_unset = value == nullptr;
  }
}

void apply_changes() {
  size_t count = 0;
  while (environ != nullptr && environ[count] != nullptr) {
    ++count;
  }
  constexpr size_t kLongest = sizeof(Change::name) + 1 + kMostValue;
  const size_t entries = count + change_count + 1;
  auto* fresh = static_cast<char**>(base::reserve_memory(entries * sizeof(char*) + change_count * kLongest));
  if (fresh == nullptr) {
    return;
  }
  auto* text = reinterpret_cast<char*>(fresh + entries);
  size_t filled = 0;
  for (size_t index = 0; index < count; ++index) {
    bool is_changed = false;
    for (size_t each = 0; each < change_count; ++each) {
      const size_t length = strlen(changes[each].name);
      is_changed = is_changed || (strncmp(environ[index], changes[each].name, length) == 0 && environ[index][length] == '=');
    }
    if (!is_changed) {
      fresh[filled++] = environ[index];
    }
  }
  for (size_t each = 0; each < change_count; ++each) {
    if (changes[each].is_unset) {
      continue;
    }
    (void)snprintf(text, kLongest, "%.47s=%.511s", changes[each].name, changes[each].after);
    fresh[filled++] = text;
    text += kLongest;
  }
  fresh[filled] = nullptr;
  environ = fresh;
}

}  // namespace headroom::mpi
