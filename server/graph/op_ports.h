// Whether a field may enter an op, by what the op's schema declares.
#pragma once

#include "server/graph/op_schema.h"

namespace feedwater::server {

// Whether a field `name` that is `spec` may be input i of the op: InvalidArgument says what the op
// takes and what to do.
absl::Status CheckPort(const OpEntry& entry, size_t i, absl::string_view name,
                       const TensorSpec& spec);

// Sizes only: a shape that overflows is refused long before memory is asked for.
absl::Status CheckSizes(const Specs& planned);

// Whether `spec` is what was planned, with every size settled.
absl::Status CheckPlanned(const TensorSpec& spec, const TensorSpec& planned);

// Makes of open rows among what an op writes as many as there are at most: of joint ops, which drop
// rows alone, those that they read, and else those that the op's memory tells.
void SettleRows(const OpEntry& entry, const OpMemory& memory, absl::Span<const TensorSpec> inputs,
                Specs* made);

}  // namespace feedwater::server
