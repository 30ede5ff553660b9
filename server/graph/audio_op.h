// What ops on audio share. A waveform is a plain float32 field of [channels, frames] or [frames],
// a spectrogram one of [channels, bands, frames] or [bands, frames]; torchaudio has the same axes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/graph/op.h"
#include "server/graph/op_schema.h"

namespace feedwater::server {

inline const Port kAudioPort = {.field = "audio",
                                .layouts = {Layout::kPlain},
                                .dtypes = {DType::kFloat32},
                                .doc = "The waveform: [channels, frames] or [frames]."};
inline const Port kSpectrogramPort = {
    .field = "mel",
    .layouts = {Layout::kPlain},
    .dtypes = {DType::kFloat32},
    .doc = "The spectrogram: [channels, bands, frames] or [bands, frames]."};

inline constexpr int64_t kMostFrames = int64_t{1} << 31;  // of a waveform that an op makes

// Waveforms or spectrograms that lie one behind the other in a field.
struct AudioShape {
  int64_t channels = 1;  // all axes before the others, multiplied
  int64_t bands = 1;     // of a spectrogram
  int64_t frames = 0;    // -1: open
};

// InvalidArgument: another number of axes, or none of something.
absl::StatusOr<AudioShape> WaveformOf(const TensorSpec& spec);
// The same, and the length must be known; the cure says which op gives it one.
absl::StatusOr<AudioShape> FixedWaveformOf(const TensorSpec& spec);
absl::StatusOr<AudioShape> FixedSpectrogramOf(const TensorSpec& spec);

// `spec` with its last axes replaced: one for a waveform of other length, two for a spectrogram.
TensorSpec WithFrames(TensorSpec spec, int64_t frames);
TensorSpec WithBands(TensorSpec spec, int64_t bands, int64_t frames);

}  // namespace feedwater::server
