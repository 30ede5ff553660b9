// Numbers of one type made into another, and read from text: exactly, or not at all.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/base/tensor.h"

namespace feedwater::server {

bool IsInteger(DType dtype);     // bool is none
bool IsHalf(DType dtype);        // float16, bfloat16
bool FitsFloat32(double value);  // false: it would become infinite

// A number in text. False: it is none, or beyond float64.
bool ReadDouble(absl::string_view text, double* number);

// `count` numbers of the type `stored`, at any address, become `wanted` ones at `to`. Integers must
// keep their value; floats may be rounded, but not to infinity. InvalidArgument that says which
// number does not fit.
// Halves cannot be converted here.
absl::Status Convert(const std::byte* from, DType stored, std::byte* to, DType wanted,
                     int64_t count);

// One number written as text, put at `to` as `wanted`. InvalidArgument where it is none, or does
// not fit.
absl::Status ParseNumber(absl::string_view text, std::byte* to, DType wanted);

}  // namespace feedwater::server
