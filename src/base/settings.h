// Settings: read once from the environment, by the table in settings.toml.
//
// `headroom run` checks and fills in every setting and passes it on as HEADROOM_NAME, so the settings that the preloaded
// library reads here are normally complete. A value that does not parse is an error that names the variable and the value.
// Nothing here allocates: texts point into the environment block as it was when the process began.
#pragma once

#include "base/settings_table.h"
#include "base/status.h"

namespace headroom::base {

/// Parses "512M", "4G", "1048576", "1.5G" into bytes (binary units K, M, G, T). Returns an error for anything else.
Result<uint64_t> parse_bytes(const char* text);

/// Reads all settings from the environment. The first bad one ends the process with a message and exit status 2.
void load_settings();

/// The settings of this process; load_settings() must have run. Thread-safe: never changed afterwards.
inline const Settings& settings();

/// The word that the user would write for a choice, e.g. choice_name("engine", 1) = "userfaultfd".
const char* choice_name(const char* setting, int value, char* buffer, uint64_t buffer_bytes);

namespace detail {
extern Settings current;
}
inline const Settings& settings() { return detail::current; }  // inline: every MPI call asks

}  // namespace headroom::base
