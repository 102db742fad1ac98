// Reads the settings table from the environment; see settings.h.
#include "base/settings.h"

#include <cstdlib>
#include <cstring>

#include "base/log.h"

namespace headroom::base {
namespace detail {
Settings current;
}

namespace {

/// Index of `word` in a list of words separated by spaces, or -1.
int index_of_choice(const char* choices, const char* word) {
  const size_t length = strlen(word);
  int index = 0;
  for (const char* at = choices; *at != 0; ++index) {
    const size_t step = strcspn(at, " ");
    if (step == length && strncmp(at, word, length) == 0) {
      return index;
    }
    at += step + (at[step] == ' ' ? 1 : 0);
  }
  return -1;
}

void store(const SettingRow& row, const char* value) {
  char* field = reinterpret_cast<char*>(&detail::current) + row.offset;
  switch (row.kind) {
    case SettingKind::kBytes: {
      const Result<uint64_t> bytes = parse_bytes(value);
      if (!bytes.ok()) {
        die("%s=%s is not a size: a number, and K, M, G or T (powers of 1024): 512M, 1.5G", row.environment, value);
      }
      memcpy(field, &bytes.value, sizeof bytes.value);
      return;
    }
    case SettingKind::kCount: {
      char* end = nullptr;
      const uint64_t count = strtoull(value, &end, 10);
      if (*value == 0 || *end != 0 || *value == '-') {
        die("%s=%s is not a number", row.environment, value);
      }
      memcpy(field, &count, sizeof count);
      return;
    }
    case SettingKind::kPath:
    case SettingKind::kText:
      memcpy(field, &value, sizeof value);
      return;
    case SettingKind::kChoice: {
      const int index = index_of_choice(row.choices, value);
      if (index < 0) {
        die("%s=%s is unknown; choose one of: %s", row.environment, value, row.choices);
      }
      memcpy(field, &index, sizeof index);
      return;
    }
  }
}

}  // namespace

Result<uint64_t> parse_bytes(const char* text) {
  char* end = nullptr;
  const double number = strtod(text, &end);
  if (end == text || !(number >= 0) || number > 1e18) {
    return Status::kInvalid;
  }
  const char* const units = "KMGT";
  double factor = 1;
  if (*end != 0) {
    const char* unit = strchr(units, *end & ~0x20);
    if (unit == nullptr) {
      return Status::kInvalid;
    }
    for (const char* step = units; step <= unit; ++step) {
      factor *= 1024;
    }
    ++end;
    end += *end == 'i' ? 1 : 0;
    end += (*end & ~0x20) == 'B' ? 1 : 0;
  }
  if (*end != 0 || number * factor > 1e18) {
    return Status::kInvalid;
  }
  return static_cast<uint64_t>(number * factor);
}

void load_settings() {
  for (const SettingRow& row : kSettingRows) {
    const char* value = getenv(row.environment);
    store(row, value != nullptr && *value != 0 ? value : row.default_value);
  }
  if (!set_log_levels(detail::current.log)) {
    die("HEADROOM_LOG=%s is unknown: error, warn, info, debug or trace, or PART:LEVEL,... with folders of src/ as parts",
        detail::current.log);
  }
}

const char* choice_name(const char* setting, int value, char* buffer, uint64_t buffer_bytes) {
  for (const SettingRow& row : kSettingRows) {
    if (strcmp(row.name, setting) != 0) {
      continue;
    }
    const char* at = row.choices;
    for (int index = 0; index < value && *at != 0; ++index) {
      at += strcspn(at, " ");
      at += *at == ' ' ? 1 : 0;
    }
    const size_t length = strcspn(at, " ");
    if (length + 1 > buffer_bytes) {
      break;
    }
    memcpy(buffer, at, length);
    buffer[length] = 0;
    return buffer;
  }
  return "?";
}

}  // namespace headroom::base
