// Lines on standard error, for facts that the caller of a function cannot learn from an error number.
#pragma once

#include <cstdarg>
#include <cstdio>

#include "base/system_calls.h"

namespace headroom::rpipe {

__attribute__((format(printf, 1, 2))) inline void say(const char* format, ...) {
  char text[512];
  int length = snprintf(text, sizeof text, "rpipe: ");
  va_list arguments;
  va_start(arguments, format);
  length += vsnprintf(text + length, sizeof text - static_cast<size_t>(length) - 1, format, arguments);
  va_end(arguments);
  if (length > static_cast<int>(sizeof text) - 2) {
    length = sizeof text - 2;
  }
  text[length++] = '\n';
  constexpr int kStandardError = 2;
  (void)base::system_call(SYS_write, kStandardError, text, length);
}

}  // namespace headroom::rpipe
