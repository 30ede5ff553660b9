// What a cache of kind `decoded` keeps of a record: the fields that the graph's prefix without
// randomness makes of it (Plan::RunPrefix), one after the other.
//
//   32 bytes digest of the prefix, 4 bytes number of fields, then for each field 4 bytes number of
//   axes and 8 bytes for each axis, padded to 64; then the fields, each at a multiple of 64.
//   Little-endian
//
// Types and layouts are the plan's and not written: the digest covers them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "server/cache/block.h"
#include "server/graph/plan.h"

namespace feedwater::server {

inline constexpr int64_t kMaxKeptFieldBytes = kMaxBlockBytes - kBlockUnit;

// Makes `payload` what is kept of these fields. False when they are too large to be kept.
bool PackFields(const PlanPrefix& prefix, const Record& record, std::vector<std::byte>* payload);
// The fields of a payload, as views into it. DataLoss when it is not one of this prefix.
absl::Status UnpackFields(const PlanPrefix& prefix, absl::Span<const std::byte> payload,
                          Record* record);

}  // namespace feedwater::server
