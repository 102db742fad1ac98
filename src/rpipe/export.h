// Marks the functions that the library exports; all else of it is hidden.
#pragma once

#define RPIPE_EXPORT __attribute__((visibility("default")))
