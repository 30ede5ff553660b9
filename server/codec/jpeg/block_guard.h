// Within these guards every path of libjpeg-turbo (C and SIMD, which overflow differently) gives
// the same samples; a block beyond them makes its image one for libjpeg-turbo.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace feedwater::server::jpeg {

inline constexpr int kMaxColumnSum = 5'800;              // of |coefficient * step|
inline constexpr int kMinValue = -512, kMaxValue = 511;  // of the transform, before the +128
// A block whose sum of |coefficient * step| is not above this cannot break either guard.
inline constexpr int kSafeBlockSum = 2'100;

// The guards and the transform by the book (jidctint.c), in 32 bits: for blocks that the vector
// code cannot judge. False beyond the guards; `samples` may be null.
bool TransformBlockPlain(const int16_t* coefficients, const uint16_t* quant, uint8_t* samples,
                         int stride);

}  // namespace feedwater::server::jpeg
