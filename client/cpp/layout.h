// What a daemon says about a stream: its outputs, their places in a slot, and whether a daemon that
// came back says the same as before (client/python/feedwater/layout.py compares the same things).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "feedwater/client.h"
#include "feedwater/v1/control.pb.h"

namespace feedwater {

// What a batch consists of. InternalError when that does not lie inside a slot.
absl::StatusOr<std::vector<Field>> FieldsOf(const v1::OpenStreamResponse& opened);

// A field of `samples` samples in the slot that begins at `slot`. InternalError when what the slot
// says of its rows makes no sense. `offsets`: what those of a ragged field are kept in; it outlives
// the tensor.
absl::StatusOr<Tensor> TensorOf(const Field& field, const v1::Field& place, uint32_t samples,
                                const std::byte* slot, std::vector<int64_t>* offsets);

// FailedPrecondition naming the first difference between two answers for one stream: everything
// that a program may have read from the first, and that decides which bytes of a slot are whose.
// Where production starts, how many slots there are and the daemon's version may differ.
absl::Status CheckSameLayout(const v1::OpenStreamResponse& now,
                             const v1::OpenStreamResponse& before);

}  // namespace feedwater
