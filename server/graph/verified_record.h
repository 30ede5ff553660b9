// From a record's bytes in a dataset's files to its fields: parsed, and its images looked at.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "server/source/dataset.h"

namespace feedwater::server {

// Dataset::Parse; DataLoss too where an image carries a checksum and is not as it was written
// (VerifyImage). What a cache gives has been verified there.
absl::Status ParseVerified(const Dataset& dataset, int64_t record,
                           absl::Span<const absl::Span<const std::byte>> bytes, Record* out);

}  // namespace feedwater::server
