#include "server/codec/axis_filter.h"

#include <algorithm>
#include <cmath>

namespace feedwater::server {
namespace {

struct Triangle {
  static constexpr double kSupport = 1.0;
  static double At(double x) { return std::max(0.0, 1.0 - std::fabs(x)); }
};

// Keys' cubic with a = -0.5, as Pillow's.
struct Cubic {
  static constexpr double kSupport = 2.0;
  static double At(double x) {
    constexpr double a = -0.5;
    x = std::fabs(x);
    if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
    if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
    return 0.0;
  }
};

// weights[i] = round(exact[i] * inverse_sum * one), then corrected to sum `one`.
template <typename T>
void Quantise(const double* exact, int taps, double inverse_sum, int32_t one, T* weights) {
  const double factor = inverse_sum * one;
  int32_t rest = one;
  int largest = 0;
  for (int k = 0; k < taps; ++k) {
    const double scaled = exact[k] * factor;
    weights[k] = static_cast<T>(static_cast<int32_t>(scaled + (scaled < 0 ? -0.5 : 0.5)));
    rest -= weights[k];
    if (exact[k] > exact[largest]) largest = k;
  }
  weights[largest] = static_cast<T>(weights[largest] + rest);
}

}  // namespace

void AxisFilter::Build(int in, int out, int window, int outputs, Kernel kernel, bool mirrored) {
  count = outputs;
  start.resize(count);
  switch (kernel) {
    case Kernel::kNearest:
      BuildNearest(in, out, window);
      break;
    case Kernel::kTriangle:
      BuildWeighted<Triangle>(in, out, window);
      break;
    case Kernel::kCubic:
      BuildWeighted<Cubic>(in, out, window);
      break;
  }
  if (mirrored) Mirror(in, kernel != Kernel::kNearest);
  SetRange();
}

void AxisFilter::BuildIdentity(int in, int window, int outputs, bool mirrored) {
  count = outputs;
  taps = 1;
  start.resize(count);
  for (int i = 0; i < count; ++i) start[i] = window + i;
  if (mirrored) Mirror(in, false);
  SetRange();
}

void AxisFilter::BuildNearest(int in, int out, int window) {
  taps = 1;
  // Adding up, not multiplying: Pillow does, and the two differ in the last bit where that decides.
  const double scale = static_cast<double>(in) / out;
  double centre = scale * 0.5;
  for (int i = 0; i < window; ++i) centre += scale;
  for (int i = 0; i < count; ++i, centre += scale)
    start[i] = std::min(static_cast<int>(centre), in - 1);
}

template <typename Shape>
void AxisFilter::BuildWeighted(int in, int out, int window) {
  const double scale = static_cast<double>(in) / out;
  const double stretch = std::max(scale, 1.0);
  const double inverse_stretch = 1.0 / stretch;
  const double support = Shape::kSupport * stretch;
  auto begin_of = [&](double centre) {
    return std::max(0, static_cast<int>(centre - support + 0.5));
  };
  auto end_of = [&](double centre) {
    return std::min(in, static_cast<int>(centre + support + 0.5));
  };

  taps = 1;
  for (int i = 0; i < count; ++i) {
    const double centre = (window + i + 0.5) * scale;
    taps = std::max(taps, end_of(centre) - begin_of(centre));
  }
  const size_t weights = static_cast<size_t>(count) * taps;
  if (is_wide()) {
    if (wide.size() < weights) wide.resize(weights);
    scratch_.resize(taps);
  } else if (narrow.size() < weights) {
    narrow.resize(weights);
  }
  double few[kMaxNarrowTaps];
  double* exact = is_wide() ? scratch_.data() : few;
  for (int i = 0; i < count; ++i) {
    const double centre = (window + i + 0.5) * scale;
    const int first = begin_of(centre), used = end_of(centre) - first;
    start[i] = std::min(first, in - taps);
    const int shift = first - start[i];
    std::fill_n(exact, taps, 0.0);
    double sum = 0;
    for (int k = 0; k < used; ++k) {
      const double weight = Shape::At((k + first - centre + 0.5) * inverse_stretch);
      exact[shift + k] = weight;
      sum += weight;
    }
    const double inverse_sum = sum != 0 ? 1.0 / sum : 1.0;
    if (is_wide()) {
      Quantise(exact, taps, inverse_sum, 1 << kWideBits, &wide[static_cast<size_t>(i) * taps]);
    } else {
      Quantise(exact, taps, inverse_sum, 1 << kNarrowBits, &narrow[static_cast<size_t>(i) * taps]);
    }
  }
}

void AxisFilter::Mirror(int in, bool weighted) {
  for (int32_t& s : start) s = in - taps - s;
  std::reverse(start.begin(), start.end());
  // Reversing all weights reverses both the outputs and the weights of each.
  const auto used = static_cast<std::ptrdiff_t>(count) * taps;
  if (weighted && is_wide()) std::reverse(wide.begin(), wide.begin() + used);
  if (weighted && !is_wide()) std::reverse(narrow.begin(), narrow.begin() + used);
}

void AxisFilter::SetRange() {
  begin = count > 0 ? start.front() : 0;
  end = count > 0 ? start.back() + taps : 0;
  for (int32_t& s : start) s -= begin;
}

}  // namespace feedwater::server
