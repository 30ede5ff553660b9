#include "server/graph/audio_op.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace feedwater::server {
namespace {

absl::Status NotLike(absl::string_view wanted, const TensorSpec& spec) {
  return absl::InvalidArgumentError(
      absl::StrCat("takes ", wanted, ", but the field is ", spec.ToString()));
}

}  // namespace

absl::StatusOr<AudioShape> WaveformOf(const TensorSpec& spec) {
  const size_t axes = spec.shape.size();
  const bool fits =
      spec.dtype == DType::kFloat32 && (axes == 1 || axes == 2) &&
      std::all_of(spec.shape.begin(), spec.shape.end() - 1, [](int64_t side) { return side > 0; });
  if (!fits) return NotLike("a waveform of [channels, frames] or [frames]", spec);
  return AudioShape{axes == 2 ? spec.shape[0] : 1, 1, spec.shape[axes - 1]};
}

absl::StatusOr<AudioShape> FixedWaveformOf(const TensorSpec& spec) {
  FW_ASSIGN_OR_RETURN(const AudioShape shape, WaveformOf(spec));
  if (shape.frames > 0) return shape;
  if (shape.frames == 0) return NotLike("a waveform of at least one frame", spec);
  return absl::InvalidArgumentError(
      absl::StrCat("needs audio of a known length, but the field is ", spec.ToString(),
                   "; put crop_audio or random_crop_audio before it"));
}

absl::StatusOr<AudioShape> FixedSpectrogramOf(const TensorSpec& spec) {
  const size_t axes = spec.shape.size();
  if (spec.dtype != DType::kFloat32 || (axes != 2 && axes != 3) || !spec.IsStatic() ||
      std::find(spec.shape.begin(), spec.shape.end(), 0) != spec.shape.end()) {
    return NotLike("a spectrogram of [channels, bands, frames] or [bands, frames]", spec);
  }
  return AudioShape{axes == 3 ? spec.shape[0] : 1, spec.shape[axes - 2], spec.shape[axes - 1]};
}

TensorSpec WithFrames(TensorSpec spec, int64_t frames) {
  spec.shape.back() = frames;
  return spec;
}

TensorSpec WithBands(TensorSpec spec, int64_t bands, int64_t frames) {
  spec.shape.back() = bands;
  spec.shape.push_back(frames);
  return spec;
}

}  // namespace feedwater::server
