#include "server/codec/axis_filter.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace feedwater::server {
namespace {

// Without branches, whose outcome nothing could predict.
struct Triangle {
  static constexpr double kSupport = 1.0;
  static constexpr bool kNegative = false;  // has negative weights
  static double At(double x) { return std::max(0.0, 1.0 - std::fabs(x)); }
};

// Keys' cubic with a = -0.5, as Pillow's.
struct Cubic {
  static constexpr double kSupport = 2.0;
  static constexpr bool kNegative = true;
  static double At(double x) {
    constexpr double a = -0.5;
    x = std::fabs(x);
    const double inner = ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
    const double outer = (((x - 5) * x + 8) * x - 4) * a;
    return x < 1.0 ? inner : x < 2.0 ? outer : 0.0;
  }
};

// The weights of `taps` inputs from `start` on for an output at `centre`: rounded so that they sum
// to `one`. `exact` is room for taps values. Inputs outside the filter's support get zero, those
// outside the image are never asked for. Inlined with `taps` a constant where it is small.
template <typename Shape, typename T>
inline __attribute__((always_inline)) void Weigh(int start, double centre, double inverse_stretch,
                                                 int taps, int32_t one, double* exact, T* weights) {
  double sum = 0, most = -1;
  int largest = 0;
  for (int k = 0; k < taps; ++k) {
    exact[k] = Shape::At((k + start - centre + 0.5) * inverse_stretch);
    sum += exact[k];
    largest = exact[k] > most ? k : largest;
    most = std::max(most, exact[k]);
  }
  const double factor = (sum != 0 ? 1.0 / sum : 1.0) * one;
  int32_t rest = one;
  for (int k = 0; k < taps; ++k) {
    const double scaled = exact[k] * factor;
    const double half = Shape::kNegative ? std::copysign(0.5, scaled) : 0.5;
    const auto weight = static_cast<int32_t>(scaled + half);
    weights[k] = static_cast<T>(weight);
    rest -= weight;
  }
  weights[largest] = static_cast<T>(weights[largest] + rest);
}

}  // namespace

void AxisFilter::Build(const AxisBox& box, int out, int window, int outputs, Kernel kernel,
                       bool mirrored) {
  count = outputs;
  start.resize(count);
  switch (kernel) {
    case Kernel::kNearest:
      BuildNearest(box.in, out, window);
      break;
    case Kernel::kTriangle:
      BuildWeighted<Triangle>(box, out, window);
      break;
    case Kernel::kCubic:
      BuildWeighted<Cubic>(box, out, window);
      break;
  }
  if (mirrored) Mirror(box.in, kernel != Kernel::kNearest);
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
void AxisFilter::BuildWeighted(const AxisBox& box, int out, int window) {
  const int in = box.in;
  const double scale = box.length / out;
  const double stretch = std::max(scale, 1.0);
  const double inverse_stretch = 1.0 / stretch;
  const double support = Shape::kSupport * stretch;
  const auto centre_of = [&](int i) { return box.offset + (window + i + 0.5) * scale; };
  auto begin_of = [&](double centre) {
    return std::max(0, static_cast<int>(centre - support + 0.5));
  };
  auto end_of = [&](double centre) {
    return std::min(in, static_cast<int>(centre + support + 0.5));
  };

  taps = 1;
  for (int i = 0; i < count; ++i) {
    const double centre = centre_of(i);
    taps = std::max(taps, end_of(centre) - begin_of(centre));
  }
  const size_t weights = static_cast<size_t>(count) * taps;
  for (int i = 0; i < count; ++i) start[i] = std::min(begin_of(centre_of(i)), in - taps);
  if (is_wide()) {
    if (wide.size() < weights) wide.resize(weights);
    scratch_.resize(taps);
    for (int i = 0; i < count; ++i) {
      Weigh<Shape>(start[i], centre_of(i), inverse_stretch, taps, 1 << kWideBits, scratch_.data(),
                   &wide[static_cast<size_t>(i) * taps]);
    }
    return;
  }
  if (narrow.size() < weights) narrow.resize(weights);
  const auto fill = [&]<int kTaps>(std::integral_constant<int, kTaps>) {
    double exact[kTaps];
    for (int i = 0; i < count; ++i) {
      Weigh<Shape>(start[i], centre_of(i), inverse_stretch, kTaps, 1 << kNarrowBits, exact,
                   &narrow[static_cast<size_t>(i) * kTaps]);
    }
  };
  switch (taps) {
#define FW_TAPS(n) \
  case n:          \
    return fill(std::integral_constant<int, n>());
    // clang-format off
    FW_TAPS(1) FW_TAPS(2) FW_TAPS(3) FW_TAPS(4) FW_TAPS(5) FW_TAPS(6) FW_TAPS(7) FW_TAPS(8)
    FW_TAPS(9) FW_TAPS(10) FW_TAPS(11) FW_TAPS(12) FW_TAPS(13) FW_TAPS(14) FW_TAPS(15) FW_TAPS(16)
    // clang-format on
#undef FW_TAPS
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
