// Within these guards every path of libjpeg-turbo (C and SIMD, which overflow differently) gives
// the same samples; a block beyond them makes its image one for libjpeg-turbo.
//
// They hold for the transforms to fewer samples (an image decoded at 1/2, 1/4 or 1/8), too. The sum
// keeps what lies between the two passes within int16: at most 5.13 times a column's sum. And a
// block that was accepted whole (all that a coefficient document has) is accepted at every size:
// the samples of a smaller one are averages of the whole one's, computed with an error below one,
// and that is the one step by which the guards on values are narrower than libjpeg's tables.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace feedwater::server::jpeg {

inline constexpr int kMaxColumnSum = 5'800;              // of |coefficient * step|
inline constexpr int kMinValue = -511, kMaxValue = 510;  // of the transform, before the +128
// A block whose sum of |coefficient * step| is not above this cannot break either guard.
inline constexpr int kSafeBlockSum = 2'100;

// The guards and the transform by the book (jidctint.c, jidctred.c): for blocks that the vector
// code cannot judge. `side`: of the block of samples; 8, 4, 2 or 1. False beyond the guards;
// `samples` may be null.
bool TransformBlockPlain(const int16_t* coefficients, const uint16_t* quant, int side,
                         uint8_t* samples, int stride);

// The transform to 8x8 samples without guards: what lies beyond a sample's range is clipped.
// REQUIRES: products of coefficients and steps below 2^14, as those of real pixels are.
void ClipBlockPlain(const int16_t* coefficients, const uint16_t* quant, uint8_t* samples,
                    int stride);

}  // namespace feedwater::server::jpeg
