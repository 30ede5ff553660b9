// Cuts a part of fixed length out of a waveform at a random place, all places alike likely.
#include <algorithm>

#include "server/graph/audio_crop.h"

namespace feedwater::server {
namespace {

using Params = AudioCropParams;

class RandomCropAudio : public Op {
 public:
  explicit RandomCropAudio(const Params& params) : params_(params) {}

  absl::StatusOr<Specs> Plan(absl::Span<const TensorSpec> inputs,
                             const PlanEnvironment&) const override {
    return PlanAudioCrop(params_, inputs[0]);
  }

  absl::Status Run(Sample& sample, Draws draws) const override {
    FW_ASSIGN_OR_RETURN(const AudioShape shape, WaveformOf(sample.inputs()[0].spec));
    FW_RETURN_IF_ERROR(CheckAudioLength(params_, shape.frames));
    const int64_t more = shape.frames - params_.frames;
    const int64_t place = draws.Below(std::abs(more) + 1);
    return CropAudio(params_, more > 0 ? place : 0, more > 0 ? 0 : place, sample);
  }

 private:
  const Params params_;
};

const OpRegistrar kRegistrar(
    AudioCropSchema(OpSchema<Params>("random_crop_audio")
                        .Summary("Cuts a part of fixed length out of a waveform at a random place. "
                                 "A shorter waveform comes to lie at a random place."))
        .Randomness(Randomness::kPerSample)
        .Cost("A copy.")
        .Example("- random_crop_audio: {in: audio, frames: 16000}")
        .Create<RandomCropAudio>());

}  // namespace
}  // namespace feedwater::server
