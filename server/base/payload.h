// Tensors in one piece of memory, as a daemon and a provider give them to each other: a payload
// (proto/shm/README.md, "Providing a source or an op"). Heads come first, then the tensors in their
// order, each at the next multiple of 64 bytes: where it lies follows from the shapes before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/base/tensor.h"

namespace feedwater::server {

// Of tensors of these specs, which are static. Error when that overflows.
absl::StatusOr<int64_t> PayloadBytes(absl::Span<const TensorSpec> specs);

// Writes a payload of PayloadBytes at `to`. REQUIRES: kMaxTensors and kMaxAxes are kept.
void WritePayload(absl::Span<const Tensor> tensors, std::byte* to);

// The tensors of a payload that somebody else has written, and may still be writing: each head is
// read once, and the tensors are views that stay within `payload` whatever it holds. Their types
// and shapes are those of `declared` (-1: any size). InvalidArgument that names the first one
// that is not so by `names`.
absl::Status ReadPayload(absl::Span<const std::byte> payload, absl::Span<const TensorSpec> declared,
                         absl::FunctionRef<std::string(size_t)> name, std::vector<Tensor>* tensors);

}  // namespace feedwater::server
