// The version of the running kernel, for traits that can be known by nothing else.
#pragma once

namespace headroom::base {

/// Whether the running kernel is Linux `major`.`minor` or newer; false if that cannot be told.
bool kernel_is_at_least(int major, int minor);

}  // namespace headroom::base
