// The mel spectrogram of a waveform, as torchaudio.transforms.MelSpectrogram makes it.
#include "server/graph/mel_params.h"

namespace feedwater::server {
namespace {

using Params = MelParams;

class MelSpectrogramOp : public Op {
 public:
  explicit MelSpectrogramOp(const Params& params)
      : mel_(*MelSpectrogram::Make(*SettingsOf(params))) {}
  static absl::Status Check(const Params& params) { return CheckMel(params); }

  absl::StatusOr<Specs> Plan(absl::Span<const TensorSpec> inputs,
                             const PlanEnvironment&) const override {
    FW_ASSIGN_OR_RETURN(const AudioShape shape, FixedWaveformOf(inputs[0]));
    FW_ASSIGN_OR_RETURN(const int64_t frames, mel_.Frames(shape.frames));
    return Specs{WithBands(inputs[0], mel_.n_mels(), frames)};
  }

  OpMemory Memory(absl::Span<const TensorSpec> inputs, const PlanEnvironment&) const override {
    const auto shape = FixedWaveformOf(inputs[0]);
    return {shape.ok() ? mel_.ScratchBytes(shape->frames) : 0, {}};
  }

  int64_t TableBytes() const override { return mel_.TableBytes(); }

  absl::Status Run(Sample& sample, Draws) const override {
    const Tensor& input = sample.inputs()[0];
    FW_ASSIGN_OR_RETURN(const AudioShape shape, FixedWaveformOf(input.spec));
    FW_ASSIGN_OR_RETURN(const int64_t frames, mel_.Frames(shape.frames));
    FW_ASSIGN_OR_RETURN(Tensor output,
                        sample.Output(0, WithBands(input.spec, mel_.n_mels(), frames)));
    FW_ASSIGN_OR_RETURN(std::byte* const scratch,
                        sample.Scratch(static_cast<size_t>(mel_.ScratchBytes(shape.frames))));
    for (int64_t c = 0; c < shape.channels; ++c) {
      FW_RETURN_IF_ERROR(mel_.Run(input.as<float>() + c * shape.frames, shape.frames, scratch,
                                  sample.clock(), output.as<float>() + c * mel_.n_mels() * frames));
    }
    return absl::OkStatus();
  }

 private:
  const MelSpectrogram mel_;
};

const OpRegistrar kRegistrar(
    MelSchema(OpSchema<Params>("mel_spectrogram")
                  .Summary("Makes the mel spectrogram of a waveform, as "
                           "torchaudio.transforms.MelSpectrogram does; with n_fft: 2048, "
                           "hop_length: 512, pad_mode: constant, norm: slaney, mel_scale: slaney "
                           "as librosa.feature.melspectrogram does. Its numbers are floats of 32 "
                           "bits, equal on machines of one kind."))
        .Cost("About a microsecond a frame of 400 samples: several frames are transformed at once "
              "in the lanes of SIMD registers.")
        .Example("- mel_spectrogram: {in: audio, out: mel, sample_rate: 16000, n_mels: 40}")
        .Create<MelSpectrogramOp>());

}  // namespace
}  // namespace feedwater::server
