// Cutting or padding a waveform to a fixed length: what crop_audio and random_crop_audio share.
#pragma once

#include <cstdint>

#include "server/graph/audio_op.h"

namespace feedwater::server {

struct AudioCropParams {
  int64_t frames = 0;
  bool pad = true;
  double fill = 0;
};

// Any waveform comes out as `params.frames` long. InvalidArgument: it is known to be shorter, and
// nothing may be added.
absl::StatusOr<Specs> PlanAudioCrop(const AudioCropParams& params, const TensorSpec& input);

// Writes output 0: the input from frame `from` on, with `before` frames of the fill in front of it
// and the rest behind.
absl::Status CropAudio(const AudioCropParams& params, int64_t from, int64_t before, Sample& sample);

// InvalidArgument: the sample's audio is shorter, and nothing may be added.
absl::Status CheckAudioLength(const AudioCropParams& params, int64_t frames);

template <typename Params>
OpSchema<Params> AudioCropSchema(OpSchema<Params> schema) {
  return std::move(schema)
      .Input(kAudioPort)
      .OutputLikeInput()
      .template Required<int64_t>("frames", &Params::frames,
                                  "Length of what comes out: seconds times the sampling rate.",
                                  Range(1, static_cast<double>(kMostFrames)))
      .template Param<bool>(
          "pad", &Params::pad,
          "Makes shorter audio longer with `fill`. With false it is a bad sample.")
      .template Param<double>("fill", &Params::fill, "The value of what is added.",
                              Range(-1e6, 1e6));
}

}  // namespace feedwater::server
