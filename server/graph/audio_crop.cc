#include "server/graph/audio_crop.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace feedwater::server {

absl::StatusOr<Specs> PlanAudioCrop(const AudioCropParams& params, const TensorSpec& input) {
  FW_ASSIGN_OR_RETURN(const AudioShape shape, WaveformOf(input));
  if (shape.frames >= 0) FW_RETURN_IF_ERROR(CheckAudioLength(params, shape.frames));
  return Specs{WithFrames(input, params.frames)};
}

absl::Status CheckAudioLength(const AudioCropParams& params, int64_t frames) {
  if (params.pad || frames >= params.frames) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("audio of ", frames, " frames is shorter than ",
                                                 params.frames, "; pad: true makes it longer"));
}

absl::Status CropAudio(const AudioCropParams& params, int64_t from, int64_t before,
                       Sample& sample) {
  const Tensor& input = sample.inputs()[0];
  FW_ASSIGN_OR_RETURN(const AudioShape shape, WaveformOf(input.spec));
  FW_ASSIGN_OR_RETURN(Tensor output, sample.Output(0, WithFrames(input.spec, params.frames)));
  const auto fill = static_cast<float>(params.fill);
  const int64_t count = std::min(params.frames - before, shape.frames - from);
  for (int64_t c = 0; c < shape.channels; ++c) {
    float* const to = output.as<float>() + c * params.frames;
    std::fill_n(to, before, fill);
    std::copy_n(input.as<float>() + c * shape.frames + from, count, to + before);
    std::fill_n(to + before + count, params.frames - before - count, fill);
  }
  return absl::OkStatus();
}

}  // namespace feedwater::server
