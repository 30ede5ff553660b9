// Single numbers of any dtype, for the paths that are not worth a kernel. Every conversion
// rounds once. To an integer it rounds to nearest even and saturates; NaN becomes 0. Memory need
// not be aligned.
#pragma once

#include <cstddef>
#include <cstdint>

#include "server/base/status.h"
#include "server/base/tensor.h"

namespace feedwater::server {

uint16_t FloatToHalf(float value);  // round to nearest even
float HalfToFloat(uint16_t half);
uint16_t FloatToBFloat16(float value);  // round to nearest even
float BFloat16ToFloat(uint16_t value);

bool IsFloating(DType dtype);  // float16, bfloat16, float32, float64
double LoadDouble(DType dtype, const std::byte* from);
void StoreDouble(DType dtype, double value, std::byte* to);
// A class number of an integer type. InvalidArgument: it is outside 0..classes-1.
absl::StatusOr<int64_t> LoadClass(DType dtype, const std::byte* from, int64_t classes);
// Integers become integers directly, not by way of double.
void ConvertElements(DType from_type, const std::byte* from, DType to_type, std::byte* to,
                     int64_t count);

}  // namespace feedwater::server
