// Logging is spdlog's; this file only sets it up. Use spdlog::info("...", args) and its siblings
// anywhere in the server.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace feedwater::server {

enum class LogFormat { kText, kJson };

// To stderr; kJson writes one JSON object a line with the keys time, level, message. `level`:
// trace|debug|info|warning|error.
absl::Status SetUpLogging(LogFormat format, absl::string_view level);

}  // namespace feedwater::server
