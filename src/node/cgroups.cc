// See cgroups.h.
#include "node/cgroups.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>

#include "base/system_calls.h"

namespace headroom::node {
namespace {

using base::system_call;

bool has_controller(const char* list, const char* name) {
  const size_t length = strlen(name);
  for (const char* at = list; (at = strstr(at, name)) != nullptr; at += length) {
    if ((at == list || at[-1] == ',') && (at[length] == 0 || at[length] == ',')) {
      return true;
    }
  }
  return false;
}

}  // namespace

bool read_text(const char* path, char* text, size_t room) {
  const long file = system_call(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
  if (base::is_error(file)) {
    return false;
  }
  const long bytes = system_call(SYS_read, file, text, room - 1);
  (void)system_call(SYS_close, file);
  text[std::max<long>(bytes, 0)] = 0;
  return bytes > 0;
}

void visit_cgroups(const char* own_cgroups, const char* root, const char* controller,
                   void (*visit)(const char* folder, bool unified, void* context), void* context) {
  char text[4096];
  if (!read_text(own_cgroups, text, sizeof text)) {
    return;
  }
  char* rest = nullptr;
  for (char* line = strtok_r(text, "\n", &rest); line != nullptr; line = strtok_r(nullptr, "\n", &rest)) {
    char* controllers = strchr(line, ':');  // "4:cpu,cpuacct:/path", in version 2 "0::/path"
    char* path = controllers != nullptr ? strchr(controllers + 1, ':') : nullptr;
    if (path == nullptr) {
      continue;
    }
    *path++ = 0;
    ++controllers;
    const bool unified = *controllers == 0;
    if (!unified && !has_controller(controllers, controller)) {
      continue;
    }
    char folder[1024];
    (void)snprintf(folder, sizeof folder, "%s%s%s", root, unified ? "" : "/", unified ? "" : controller);
    const size_t top = strlen(folder);
    (void)snprintf(folder + top, sizeof folder - top, "%s", strcmp(path, "/") == 0 ? "" : path);
    for (;;) {
      visit(folder, unified, context);
      char* last = strrchr(folder, '/');
      if (last == nullptr || static_cast<size_t>(last - folder) < top) {
        break;
      }
      *last = 0;
    }
  }
}

}  // namespace headroom::node
