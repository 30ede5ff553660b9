// What the cache keeps of a record: its extents one after the other, each as the file has it or,
// where it is a JPEG that allows it, as a coefficient document, which the codec takes in a JPEG's
// place.
//
//   4 bytes number of extents, 4 bytes length of each, padded to 64; then the extents, each at a
//   multiple of 64
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/types/span.h"

namespace feedwater::server {

using ByteSpans = absl::InlinedVector<absl::Span<const std::byte>, 1>;

// Makes `payload` what is kept of these extents. False when they are too large to be kept.
bool PackExtents(const ByteSpans& extents, std::vector<std::byte>* payload);
// The extents of a payload, as views into it. DataLoss when it is not one.
absl::Status UnpackExtents(absl::Span<const std::byte> payload, ByteSpans* extents);

}  // namespace feedwater::server
