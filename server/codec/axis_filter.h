// How one axis of an image is resampled: for each output sample the first input sample it needs and
// the weights of that and the next ones. Pillow's definitions: the filter's support grows with the
// downscale factor (antialiasing), the centre of output i is (i + 0.5) * scale, weights are
// normalised to sum one.
//
// Weights are integers: `narrow` (int16) where an output needs at most kMaxNarrowTaps inputs, else
// `wide` (int32). The rounding error is put on the largest weight, so that every sum is exactly one
// and a flat image stays flat.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace feedwater::server {

enum class Kernel { kNearest, kTriangle, kCubic };

// What is resampled of an axis of `in` samples: `length` samples from `offset` on. A fractional box
// (a crop of an image that was decoded smaller) begins and ends within a sample, which then counts
// as any other.
struct AxisBox {
  int in = 0;
  double offset = 0, length = 0;
};

struct AxisFilter {
  static constexpr int kMaxNarrowTaps = 16;
  static constexpr int kNarrowBits = 14, kWideBits = 20;  // a weight of one is 1 << bits

  int count = 0;           // outputs
  int taps = 1;            // weights per output, zeros included
  int begin = 0, end = 0;  // inputs used by any output
  std::vector<int32_t>
      start;  // per output, counted from `begin`, ascending; start + taps <= end - begin
  std::vector<int16_t> narrow;  // count * taps (the vector may be longer)
  std::vector<int32_t> wide;

  bool is_wide() const { return taps > kMaxNarrowTaps; }
  size_t HeldBytes() const {
    return sizeof(int32_t) * (start.capacity() + wide.capacity()) +
           sizeof(int16_t) * narrow.capacity() + sizeof(double) * scratch_.capacity();
  }

  // Resizes the box to `out` samples and keeps outputs [window, window + count). `mirrored`: the
  // input is stored in reverse, but the box is not; starts and order of outputs are those of the
  // stored input, so that output i stands for output count - 1 - i. Memory grows with count * (in /
  // out), nothing is allocated once the vectors are large enough. REQUIRES: a box of whole samples
  // for kNearest.
  void Build(const AxisBox& box, int out, int window, int count, Kernel kernel, bool mirrored);

  // The same without resampling: output i is input window + i.
  void BuildIdentity(int in, int window, int count, bool mirrored);

 private:
  void BuildNearest(int in, int out, int window);
  template <typename Shape>
  void BuildWeighted(const AxisBox& box, int out, int window);
  void Mirror(int in, bool weighted);
  void SetRange();

  std::vector<double> scratch_;
};

}  // namespace feedwater::server
