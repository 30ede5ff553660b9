// The tables of a Fourier transform of `size` real numbers: which factors it is done in, and the
// roots of unity. Made when an op is made, used by many threads.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace feedwater::server {

inline constexpr int kMostFourierSize = 1 << 16;
inline constexpr int kLargestFourierFactor = 61;  // the work grows with it

struct Fourier {
  // One pass over the numbers, which divides what is left by `radix`.
  struct Stage {
    int radix = 0;
    int groups = 0;     // what is left behind it
    int stride = 0;     // the radices before it, multiplied
    int twiddles = 0;   // in `roots`: of each group (radix - 1) pairs
    int own_roots = 0;  // in `roots`: of an odd radix, radix pairs
  };

  // InvalidArgument: out of range, or a prime factor over kLargestFourierFactor.
  static absl::StatusOr<Fourier> Make(int size);
  // The bins from 0 to half of the rate.
  int bins() const { return size / 2 + 1; }

  int size = 0;
  // Of an even size, pairs of neighbours are taken for complex numbers, and half as many are
  // transformed.
  bool is_even = false;
  int points = 0;  // complex numbers that are transformed
  std::vector<Stage> stages;
  std::vector<float> roots;       // pairs: cosine, negative sine
  std::vector<float> half_roots;  // even: of bin k, the pair exp(-2 pi i k / size)
};

}  // namespace feedwater::server
