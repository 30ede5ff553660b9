// Changes the sampling rate of a waveform, as torchaudio.functional.resample does by default: a
// sinc of six zero crossings on either side, cut off at 0.99 of the lower rate's half and faded
// out by a Hann window. Each output is one weighted sum of its neighbours, so a waveform can come
// in parts.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace feedwater::server {

inline constexpr int64_t kLeastSampleRate = 1000, kMostSampleRate = 384'000;  // of what comes out

// How the outputs lie among the inputs: after `from` inputs and `to` outputs both begin anew.
class ResampleRatio {
 public:
  // The most weights that a table may have. Nearly all pairs of rates are far below.
  static constexpr int64_t kMostWeights = 1 << 20;
  static constexpr int kMostTaps = 1 << 13;  // of one output: from 384,000 to 1,000 Hz

  // InvalidArgument: the rates have so small a common divisor that the table would be larger.
  static absl::StatusOr<ResampleRatio> Make(int64_t from_rate, int64_t to_rate);

  bool is_same() const { return from_ == to_; }
  int64_t weights() const { return to_ * taps_; }
  int taps() const { return taps_; }  // of one output
  // Of the whole waveform, as torchaudio rounds it: up.
  int64_t OutputFrames(int64_t frames) const;
  // The first input of output n; it may be negative, and lie behind the end.
  int64_t FirstInput(int64_t n) const;
  // How many outputs look at no input from `end` on.
  int64_t OutputsUntil(int64_t end) const;

  // The table: `taps` weights of each output from 0 to `to` - 1.
  void MakeWeights(float* weights) const;
  // out[i] = output first + i of a waveform of which `samples` holds the inputs from begin on.
  // REQUIRES: all inputs of these outputs are there, zeros before the first and behind the last.
  void Run(const float* weights, const float* samples, int64_t begin, int64_t first, int64_t count,
           float* out) const;

 private:
  int64_t from_ = 1, to_ = 1;
  int64_t width_ = 0;
  int taps_ = 1;  // a multiple of 8 where the rates differ
};

}  // namespace feedwater::server
