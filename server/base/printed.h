// What a program prints is its result: one that did not get out, as on a full disk, is a failure.
#pragma once

#include "absl/strings/string_view.h"

namespace feedwater::server {

// Flushes std::cout. `exit_status`, or 1 where that was 0 and something could not be written, which
// a line on stderr then says of the `program`.
int ExitStatusOfPrinting(absl::string_view program, int exit_status);

}  // namespace feedwater::server
