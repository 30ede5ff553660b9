// Changes the sampling rate of a waveform, as torchaudio.transforms.Resample does by default.
#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/audio/resampler.h"
#include "server/graph/audio_op.h"

namespace feedwater::server {
namespace {

struct Params {
  int64_t orig_freq = 0, new_freq = 0;
};

constexpr int64_t kOutputsBetweenLooks = 1 << 14;

class Resample : public Op {
 public:
  explicit Resample(const Params& params)
      : ratio_(*ResampleRatio::Make(params.orig_freq, params.new_freq)) {
    if (ratio_.is_same()) return;
    weights_.resize(static_cast<size_t>(ratio_.weights()));
    ratio_.MakeWeights(weights_.data());
  }
  static absl::Status Check(const Params& params) {
    return ResampleRatio::Make(params.orig_freq, params.new_freq).status();
  }

  absl::StatusOr<Specs> Plan(absl::Span<const TensorSpec> inputs,
                             const PlanEnvironment&) const override {
    FW_ASSIGN_OR_RETURN(const AudioShape shape, FixedWaveformOf(inputs[0]));
    FW_RETURN_IF_ERROR(CheckFrames(shape.frames));
    return Specs{WithFrames(inputs[0], ratio_.OutputFrames(shape.frames))};
  }

  OpMemory Memory(absl::Span<const TensorSpec> inputs, const PlanEnvironment&) const override {
    const auto shape = FixedWaveformOf(inputs[0]);
    return {shape.ok() ? PaddedFrames(shape->frames) * static_cast<int64_t>(sizeof(float)) : 0, {}};
  }

  int64_t TableBytes() const override {
    return static_cast<int64_t>(weights_.size() * sizeof(float));
  }

  absl::Status Run(Sample& sample, Draws) const override {
    const Tensor& input = sample.inputs()[0];
    FW_ASSIGN_OR_RETURN(const AudioShape shape, FixedWaveformOf(input.spec));
    const int64_t frames = ratio_.OutputFrames(shape.frames), before = -ratio_.FirstInput(0);
    FW_ASSIGN_OR_RETURN(Tensor output, sample.Output(0, WithFrames(input.spec, frames)));
    FW_ASSIGN_OR_RETURN(
        std::byte* const scratch,
        sample.Scratch(static_cast<size_t>(PaddedFrames(shape.frames)) * sizeof(float)));
    auto* const padded = reinterpret_cast<float*>(scratch);
    for (int64_t c = 0; c < shape.channels; ++c) {
      std::fill_n(padded, PaddedFrames(shape.frames), 0.0f);
      std::copy_n(input.as<float>() + c * shape.frames, shape.frames, padded + before);
      for (int64_t made = 0; made < frames; made += kOutputsBetweenLooks) {
        FW_RETURN_IF_ERROR(sample.clock().Check());
        ratio_.Run(weights_.data(), padded, -before, made,
                   std::min(kOutputsBetweenLooks, frames - made),
                   output.as<float>() + c * frames + made);
      }
    }
    return absl::OkStatus();
  }

 private:
  int64_t PaddedFrames(int64_t frames) const {
    return frames - ratio_.FirstInput(0) + ratio_.taps();
  }
  absl::Status CheckFrames(int64_t frames) const {
    if (frames < kMostFrames && ratio_.OutputFrames(frames) < kMostFrames) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("takes audio of less than ", kMostFrames,
                                                   " frames, before and behind it, not ", frames));
  }

  ResampleRatio ratio_;
  std::vector<float> weights_;
};

const OpRegistrar kRegistrar(
    OpSchema<Params>("resample")
        .Summary(
            "Changes the sampling rate of a waveform, as torchaudio.transforms.Resample does by "
            "default (sinc_interp_hann, lowpass_filter_width 6, rolloff 0.99). decode_audio "
            "resamples files by itself; this op is for audio that a dataset stores as numbers, and "
            "for a second rate.")
        .Input(kAudioPort)
        .OutputLikeInput()
        .Required("orig_freq", &Params::orig_freq, "Rate of the audio, in Hz.",
                  Range(1, kMostSampleRate))
        .Required("new_freq", &Params::new_freq, "Rate of what comes out, in Hz.",
                  Range(kLeastSampleRate, kMostSampleRate))
        .Cost("About twelve multiplications a sample of the higher rate.")
        .Example("- resample: {in: audio, orig_freq: 16000, new_freq: 8000}")
        .Create<Resample>());

}  // namespace
}  // namespace feedwater::server
