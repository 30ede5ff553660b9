#include "server/audio/resampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "server/audio/waveform_kernels.h"

namespace feedwater::server {
namespace {

constexpr double kZeroCrossings = 6, kRollOff = 0.99;

int64_t FloorDivide(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

}  // namespace

absl::StatusOr<ResampleRatio> ResampleRatio::Make(int64_t from_rate, int64_t to_rate) {
  if (from_rate < 1 || to_rate < kLeastSampleRate || from_rate > kMostSampleRate ||
      to_rate > kMostSampleRate) {
    return absl::InvalidArgumentError(absl::StrCat("from ", from_rate, " to ", to_rate,
                                                   " Hz: audio comes out at ", kLeastSampleRate,
                                                   " to ", kMostSampleRate, " Hz"));
  }
  const int64_t divisor = std::gcd(from_rate, to_rate);
  ResampleRatio ratio;
  ratio.from_ = from_rate / divisor;
  ratio.to_ = to_rate / divisor;
  if (ratio.is_same()) return ratio;
  const double lower = static_cast<double>(std::min(ratio.from_, ratio.to_)) * kRollOff;
  ratio.width_ =
      static_cast<int64_t>(std::ceil(kZeroCrossings * static_cast<double>(ratio.from_) / lower));
  ratio.taps_ = static_cast<int>((2 * ratio.width_ + 1 + 7) / 8 * 8);
  if (ratio.weights() > kMostWeights) {
    return absl::InvalidArgumentError(
        absl::StrCat("from ", from_rate, " to ", to_rate, " Hz takes a table of ", ratio.weights(),
                     " weights, over ", kMostWeights,
                     ": the two rates have no large common divisor; choose a rate that has"));
  }
  return ratio;
}

int64_t ResampleRatio::OutputFrames(int64_t frames) const {
  return (frames * to_ + from_ - 1) / from_;
}

int64_t ResampleRatio::FirstInput(int64_t n) const {
  if (is_same()) return n;
  return FloorDivide(n * from_, to_) - width_;
}

int64_t ResampleRatio::OutputsUntil(int64_t end) const {
  if (is_same()) return end;
  const int64_t last = end - taps_ + width_ + 1;  // above the middles of those outputs
  return last <= 0 ? 0 : (last * to_ + from_ - 1) / from_;
}

void ResampleRatio::MakeWeights(float* weights) const {
  const double pi = std::acos(-1.0), from = static_cast<double>(from_);
  const double lower = static_cast<double>(std::min(from_, to_)) * kRollOff;
  for (int64_t phase = 0; phase < to_; ++phase) {
    const int64_t first = FirstInput(phase);
    for (int k = 0; k < taps_; ++k) {
      // In zero crossings from the middle, computed as torchaudio does it.
      const double t = (static_cast<double>(first + k) / from -
                        static_cast<double>(phase) / static_cast<double>(to_)) *
                       lower;
      double weight = 0;
      if (std::abs(t) < kZeroCrossings) {
        const double fade = std::cos(t * pi / kZeroCrossings / 2);
        weight = (t == 0 ? 1 : std::sin(t * pi) / (t * pi)) * fade * fade * lower / from;
      }
      *weights++ = static_cast<float>(weight);
    }
  }
}

void ResampleRatio::Run(const float* weights, const float* samples, int64_t begin, int64_t first,
                        int64_t count, float* out) const {
  if (is_same()) {
    std::copy_n(samples + (first - begin), count, out);
    return;
  }
  const kernels::WaveformTable& table = kernels::Waveforms();
  const int64_t whole = from_ / to_, part = from_ % to_;
  int64_t phase = first % to_, at = FirstInput(first) - begin, done = 0;
  // Outputs of the same phase use the same weights; from one output to the next the place moves by
  // from_ / to_, whose fraction is in the phase.
  int64_t fraction = first * from_ % to_;
  while (done < count) {
    out[done++] = table.weighted_sum(weights + phase * taps_, samples + at, taps_);
    if (++phase == to_) phase = 0;
    at += whole;
    if ((fraction += part) >= to_) fraction -= to_, ++at;
  }
}

}  // namespace feedwater::server
