// Filters of uint8 HWC images, and of planes of floats. Every function is pure, allocates nothing
// (the caller gives scratch) and gives the same bytes on every SIMD target. The only error is the
// clock's: too much time, or a sample that nobody waits for.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "server/base/work_clock.h"
#include "server/codec/row_source.h"  // Size

namespace feedwater::server {

inline constexpr int kMaxBlurRadius = 127;

// A Gaussian of 2 * radius + 1 weights, from its middle outwards.
struct Gaussian {
  int radius = 0;
  std::array<int16_t, kMaxBlurRadius + 1> fixed;  // one is 1 << 15, and 32767 stands for it too
  std::array<float, kMaxBlurRadius + 1> weights;
};

// As torchvision makes it: `kernel` weights that add up to one. Those at the ends that round to
// nothing are left out. REQUIRES: kernel odd, at most 2 * kMaxBlurRadius + 1; sigma > 0.
Gaussian MakeGaussian(int kernel, double sigma);

// Blurs along x and y, with the image mirrored at its edges (the edge pixel stands once). Results
// differ from those with exact weights by 1 at most.
absl::Status GaussianBlur(const uint8_t* pixels, Size size, int channels, const Gaussian& x,
                          const Gaussian& y, std::byte* scratch, WorkClock& clock, uint8_t* out);
size_t BlurScratch(Size size, int channels, int radius_x, int radius_y);  // bytes

// The same for a plane of floats; `out` may be `plane`. Scratch: BlurFloatScratch.
absl::Status GaussianBlur(const float* plane, Size size, const Gaussian& x, const Gaussian& y,
                          std::byte* scratch, WorkClock& clock, float* out);
size_t BlurFloatScratch(Size size, int radius_x, int radius_y);

// As Pillow's ImageEnhance.Sharpness, byte for byte: 0 is smooth, 1 changes nothing, 2 is sharper.
// `out` is not `pixels`.
absl::Status AdjustSharpness(const uint8_t* pixels, Size size, int channels, float factor,
                             WorkClock& clock, uint8_t* out);

// The mean of `length` pixels along a line through each one; `dx`, `dy`: its direction, the larger
// of them 1 or -1. Edges are mirrored. Scratch: MotionScratch. REQUIRES: length odd, at most
// kMaxMotion.
inline constexpr int kMaxMotion = 63;
absl::Status MotionBlur(const uint8_t* pixels, Size size, int channels, int length, double dx,
                        double dy, std::byte* scratch, WorkClock& clock, uint8_t* out);
size_t MotionScratch(Size size, int channels, int length);

// The median of the `side` x `side` pixels around each one, channel by channel; beyond its edges
// the image goes on as its edge. The bytes are those of OpenCV's medianBlur and Pillow's
// MedianFilter. Scratch: MedianScratch. REQUIRES: side is 3, 5 or 7.
inline constexpr int kMaxMedianSide = 7;
absl::Status MedianBlur(const uint8_t* pixels, Size size, int channels, int side,
                        std::byte* scratch, WorkClock& clock, uint8_t* out);
size_t MedianScratch(Size size, int channels, int side);

}  // namespace feedwater::server
