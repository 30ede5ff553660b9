// Cuts a waveform to a fixed length at its begin, middle or end, or makes it longer.
#include <algorithm>

#include "server/graph/audio_crop.h"

namespace feedwater::server {
namespace {

struct Params : AudioCropParams {
  std::string align = "start";
};

class CropAudioOp : public Op {
 public:
  explicit CropAudioOp(const Params& params)
      : params_(params),
        halves_(params.align == "start"    ? 0
                : params.align == "center" ? 1
                                           : 2) {}

  absl::StatusOr<Specs> Plan(absl::Span<const TensorSpec> inputs,
                             const PlanEnvironment&) const override {
    return PlanAudioCrop(params_, inputs[0]);
  }

  absl::Status Run(Sample& sample, Draws) const override {
    FW_ASSIGN_OR_RETURN(const AudioShape shape, WaveformOf(sample.inputs()[0].spec));
    FW_RETURN_IF_ERROR(CheckAudioLength(params_, shape.frames));
    const int64_t more = shape.frames - params_.frames;
    return CropAudio(params_, std::max<int64_t>(0, more) * halves_ / 2,
                     std::max<int64_t>(0, -more) * halves_ / 2, sample);
  }

 private:
  const Params params_;
  const int64_t halves_;  // of what is left out or added, how much is in front
};

const OpRegistrar kRegistrar(
    AudioCropSchema(
        OpSchema<Params>("crop_audio")
            .Summary("Cuts a waveform to a fixed length, or makes a shorter one longer: as "
                     "librosa.util.fix_length and Whisper's pad_or_trim do with align: start."))
        .Param("align", &Params::align,
               "Which part is kept, and where a shorter waveform comes to lie.",
               OneOf({"start", "center", "end"}))
        .Cost("A copy.")
        .Example("- crop_audio: {in: audio, frames: 16000}")
        .Create<CropAudioOp>());

}  // namespace
}  // namespace feedwater::server
