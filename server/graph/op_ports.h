// Whether a field may enter an op, by what the op's schema declares.
#pragma once

#include "server/graph/op.h"
#include "server/graph/op_schema.h"

namespace feedwater::server {

// Whether a field `name` that is `spec` may be input i of the op: InvalidArgument says what the op
// takes and what to do, which for a field of the dataset (`is_of_dataset`) is another op before.
absl::Status CheckPort(const OpEntry& entry, size_t i, absl::string_view name,
                       const TensorSpec& spec, bool is_of_dataset);

// Sizes only: a shape that overflows is refused long before memory is asked for.
absl::Status CheckSizes(const Specs& planned);

// InvalidArgument where it is an image with a side of 0, which no op knows what to do with: a
// record may say so of itself. REQUIRES: its sizes are settled.
absl::Status CheckNotEmpty(const TensorSpec& spec);

// Whether `spec` is what was planned, with every size settled.
absl::Status CheckPlanned(const TensorSpec& spec, const TensorSpec& planned);

// What an op has `made`, in bytes at most. Where its memory does not tell, an output has as many
// numbers as an input at most: joint ops drop rows, others change nothing but how numbers are
// stored. Images and masks of open size are counted with Op::MostPixels, and *is_bound becomes
// true. Open rows become as many as there are at most.
// `environment` is that of Op::Memory, with most_bytes of the inputs.
ByteCounts MostBytesMade(const OpEntry& entry, const Op& op, const OpMemory& memory,
                         absl::Span<const TensorSpec> inputs, const PlanEnvironment& environment,
                         Specs* made, bool* is_bound);

}  // namespace feedwater::server
