// Files that a command leaves behind.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace feedwater::cli {

// Whether a file could be written there, before any work is done for it. The message has the cure.
absl::Status CheckWritable(const std::string& path);

// Writes the whole file or leaves what was there: under another name first, then renamed. Something
// that is no regular file, such as /dev/stdout, is written to as it is.
absl::Status WriteFile(const std::string& path, const std::string& bytes);

}  // namespace feedwater::cli
