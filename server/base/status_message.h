// The same error in other words.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace feedwater::server {

// The status with another message. Code and payloads stay: they say what the caller can do next,
// such as to make room for memory that was refused.
absl::Status WithMessage(const absl::Status& status, absl::string_view message);

}  // namespace feedwater::server
