// What the cache keeps of a record: its extents one after the other, each as the file has it or,
// where it is a JPEG that allows it, as coefficients (codec/jpeg/coefficient_store.h).
//
//   4 bytes number of extents, then for each 4 bytes form (0 file, 1 coefficients) and 4 bytes
//   length, padded to 64; then the extents, each at a multiple of 64
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "server/source/dataset.h"

namespace feedwater::server {

struct KeptExtent {
  absl::Span<const std::byte> bytes;
  bool coefficients = false;
};
using KeptExtents = absl::InlinedVector<KeptExtent, 1>;

// Makes `payload` what is kept of these extents. False when they are too large to be kept.
bool PackExtents(const KeptExtents& extents, std::vector<std::byte>* payload);
// The extents of a payload, as views into it. DataLoss when it is not one.
absl::Status UnpackExtents(absl::Span<const std::byte> payload, KeptExtents* extents);

// Dataset::Parse of a record whose extents were kept. A field that is an extent kept as
// coefficients says so by its layout.
absl::Status ParseKept(const Dataset& dataset, int64_t record, const KeptExtents& extents,
                       Record* out);

}  // namespace feedwater::server
