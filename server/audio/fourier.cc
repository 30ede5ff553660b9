#include "server/audio/fourier.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace feedwater::server {
namespace {

// exp(-2 pi i k / n), with the quarter turns exact.
void AddRoot(int64_t k, int64_t n, std::vector<float>* roots) {
  k %= n;
  const double angle = 2 * std::acos(-1.0) * static_cast<double>(k) / static_cast<double>(n);
  double cosine = std::cos(angle), sine = std::sin(angle);
  if (4 * k == n || 4 * k == 3 * n) cosine = 0;
  if (2 * k == n) sine = 0;
  roots->push_back(static_cast<float>(cosine));
  roots->push_back(static_cast<float>(-sine));
}

}  // namespace

absl::StatusOr<Fourier> Fourier::Make(int size) {
  if (size < 1 || size > kMostFourierSize) {
    return absl::InvalidArgumentError(
        absl::StrCat("a Fourier transform of ", size, " is not between 1 and ", kMostFourierSize));
  }
  Fourier made;
  made.size = size;
  made.is_even = size % 2 == 0;
  made.points = made.is_even ? size / 2 : size;
  int left = made.points, stride = 1;
  while (left > 1) {
    int radix = left % 4 == 0 ? 4 : 2;
    while (left % radix != 0) radix += radix == 2 ? 1 : 2;
    if (radix > kLargestFourierFactor) {
      return absl::InvalidArgumentError(
          absl::StrCat(size, " has the prime factor ", radix, ", over ", kLargestFourierFactor,
                       "; a number of the factors 2, 3 and 5 is the fastest"));
    }
    Stage stage;
    stage.radix = radix;
    stage.groups = left / radix;
    stage.stride = stride;
    stage.twiddles = static_cast<int>(made.roots.size());
    for (int group = 0; group < stage.groups; ++group) {
      for (int k = 1; k < radix; ++k) AddRoot(int64_t{group} * k, left, &made.roots);
    }
    stage.own_roots = static_cast<int>(made.roots.size());
    if (radix % 2 == 1) {
      for (int k = 0; k < radix; ++k) AddRoot(k, radix, &made.roots);
    }
    made.stages.push_back(stage);
    left = stage.groups;
    stride *= radix;
  }
  if (made.is_even) {
    for (int k = 0; k < made.bins(); ++k) AddRoot(k, size, &made.half_roots);
  }
  return made;
}

}  // namespace feedwater::server
