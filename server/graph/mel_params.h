// What ops that make mel spectrograms share: parameters with torchaudio's names and defaults.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/audio/resampler.h"
#include "server/audio/spectrogram.h"
#include "server/graph/audio_op.h"

namespace feedwater::server {

inline constexpr int64_t kMostMels = 512;  // an op's tables grow with it

struct MelParams {
  int64_t sample_rate = 0;
  int64_t n_fft = 400;
  std::optional<int64_t> win_length, hop_length;
  double f_min = 0;
  std::optional<double> f_max;
  int64_t n_mels = 128;
  double power = 2;
  bool center = true;
  std::string pad_mode = "reflect";
  std::string norm = "none";
  std::string mel_scale = "htk";
};

// InvalidArgument: parameters that do not fit together.
absl::StatusOr<SpectrogramSettings> SettingsOf(const MelParams& params);
absl::Status CheckMel(const MelParams& params);

template <typename Params>
OpSchema<Params> MelSchema(OpSchema<Params> schema) {
  return std::move(schema)
      .Input(kAudioPort)
      .Output({.field = "mel",
               .layouts = {Layout::kPlain},
               .dtypes = {DType::kFloat32},
               .doc = "[channels, bands, frames] or [bands, frames]."})
      .template Required<int64_t>("sample_rate", &Params::sample_rate,
                                  "Rate of the audio, in Hz: what decode_audio was told.",
                                  Range(1, kMostSampleRate))
      .template Param<int64_t>(
          "n_fft", &Params::n_fft,
          "Samples of a frame. A number of the factors 2, 3 and 5 is the fastest.",
          Range(1, kMostFourierSize))
      .template Param<std::optional<int64_t>>(
          "win_length", &Params::win_length,
          "Length of the Hann window in the middle of a frame; by default n_fft.",
          Range(1, kMostFourierSize))
      .template Param<std::optional<int64_t>>(
          "hop_length", &Params::hop_length,
          "Samples from one frame to the next; by default half of win_length.", Range(1, 1 << 20))
      .template Param<double>("f_min", &Params::f_min, "Lowest frequency of the bands, in Hz.",
                              Range(0, kMostSampleRate))
      .template Param<std::optional<double>>(
          "f_max", &Params::f_max,
          "Highest frequency of the bands, in Hz; by default half of sample_rate.",
          Range(0, kMostSampleRate))
      .template Param<int64_t>(
          "n_mels", &Params::n_mels,
          "Number of bands. Where it is large and n_fft small, no frequency lies in some low "
          "bands, "
          "which are all zeros, as in torchaudio: `feedwater validate` says so.",
          Range(1, kMostMels))
      .template Param<double>("power", &Params::power, "2: bands are of powers. 1: of magnitudes.",
                              Range(1, 2))
      .template Param<bool>(
          "center", &Params::center,
          "Frame t has sample t * hop_length in its middle; the ends are padded by n_fft / 2. "
          "With false it begins there.")
      .template Param<std::string>("pad_mode", &Params::pad_mode,
                                   "What the ends are padded with. constant: zeros.",
                                   OneOf({"reflect", "constant", "replicate"}))
      .template Param<std::string>(
          "norm", &Params::norm,
          "slaney: each band's weights have an area of one, as librosa's do by default. none: "
          "the highest weight is one.",
          OneOf({"none", "slaney"}))
      .template Param<std::string>("mel_scale", &Params::mel_scale,
                                   "htk: torchaudio's default. slaney: librosa's default.",
                                   OneOf({"htk", "slaney"}));
}

}  // namespace feedwater::server
