#include "server/audio/mel_filters.h"

#include <algorithm>
#include <cmath>

namespace feedwater::server {
namespace {

// Slaney's scale: linear up to 1000 Hz, logarithmic above.
constexpr double kLinearStep = 200.0 / 3, kBreakHz = 1000, kBreakMel = kBreakHz / kLinearStep;
double LogStep() { return std::log(6.4) / 27; }

double ToMel(double hz, MelScale scale) {
  if (scale == MelScale::kHtk) return 2595 * std::log10(1 + hz / 700);
  return hz < kBreakHz ? hz / kLinearStep : kBreakMel + std::log(hz / kBreakHz) / LogStep();
}

double ToHz(double mel, MelScale scale) {
  if (scale == MelScale::kHtk) return 700 * (std::pow(10, mel / 2595) - 1);
  return mel < kBreakMel ? mel * kLinearStep : kBreakHz * std::exp(LogStep() * (mel - kBreakMel));
}

}  // namespace

MelFilters::MelFilters(const MelSettings& settings) {
  const auto n_mels = static_cast<size_t>(settings.n_mels);
  std::vector<double> edges(n_mels + 2);
  const double low = ToMel(settings.f_min, settings.scale),
               high = ToMel(settings.f_max, settings.scale);
  for (size_t i = 0; i < edges.size(); ++i)
    edges[i] = ToHz(low + (high - low) * static_cast<double>(i) / static_cast<double>(n_mels + 1),
                    settings.scale);
  // torchaudio's bins end at the whole number below half of the rate.
  const double step =
      settings.bins > 1 ? static_cast<double>(settings.sample_rate / 2) / (settings.bins - 1) : 0;
  for (size_t m = 0; m < n_mels; ++m) {
    int32_t first = 0;
    std::vector<float> row;
    // From a bin that surely lies below the triangle on: bins times bands would be many.
    const double begin = step > 0 ? std::floor(edges[m] / step) - 1 : 0;
    for (int k = static_cast<int>(std::clamp<double>(begin, 0, settings.bins)); k < settings.bins;
         ++k) {
      const double hz = step * k;
      double weight = std::min((hz - edges[m]) / (edges[m + 1] - edges[m]),
                               (edges[m + 2] - hz) / (edges[m + 2] - edges[m + 1]));
      if (!(weight > 0)) {
        if (row.empty() && hz < edges[m + 2]) continue;
        break;
      }
      if (settings.is_area_one) weight *= 2 / (edges[m + 2] - edges[m]);
      if (row.empty()) first = k;
      row.push_back(static_cast<float>(weight));
    }
    if (row.empty() && first_empty_ < 0) first_empty_ = static_cast<int>(m);
    firsts_.push_back(first);
    counts_.push_back(static_cast<int32_t>(row.size()));
    starts_.push_back(static_cast<int32_t>(weights_.size()));
    weights_.insert(weights_.end(), row.begin(), row.end());
  }
}

kernels::BandedMatrix MelFilters::matrix() const {
  return {firsts_.data(), counts_.data(), starts_.data(), weights_.data(),
          static_cast<int>(firsts_.size())};
}

std::vector<float> HannWindow(int length, int size) {
  std::vector<float> window(static_cast<size_t>(size));
  const double pi = std::acos(-1.0);
  for (int i = 0; i < length; ++i) {
    window[static_cast<size_t>((size - length) / 2 + i)] =
        static_cast<float>(length == 1 ? 1 : 0.5 - 0.5 * std::cos(2 * pi * i / length));
  }
  return window;
}

std::vector<float> CosineTransform(int rows, int columns, bool orthonormal) {
  std::vector<float> matrix;
  const double pi = std::acos(-1.0);
  for (int m = 0; m < rows; ++m) {
    for (int c = 0; c < columns; ++c) {
      double value = std::cos(pi / rows * (m + 0.5) * c);
      if (orthonormal) {
        value *= std::sqrt((c == 0 ? 1.0 : 2.0) / rows);
      } else {
        value *= 2;
      }
      matrix.push_back(static_cast<float>(value));
    }
  }
  return matrix;
}

}  // namespace feedwater::server
