// Sizes, times and counts as people write them.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace feedwater::server {

absl::StatusOr<int64_t> ParseBytes(
    absl::string_view text);  // "512MiB", "8GiB", "1GB", "4096"; refuses overflow and signs
std::string FormatBytes(int64_t bytes);                          // "1.5 GiB"
absl::StatusOr<double> ParseSeconds(absl::string_view text);     // "500ms", "60s", "2min", "1h"
std::string FormatSeconds(double seconds);                       // "1.5 s", "20 ms"
std::string FormatCount(int64_t count, absl::string_view what);  // "1 record", "2 classes"

}  // namespace feedwater::server
