// Mel-frequency cepstral coefficients, as torchaudio.transforms.MFCC makes them.
#include <algorithm>
#include <vector>

#include "server/audio/mel_filters.h"
#include "server/graph/decibels.h"
#include "server/graph/mel_params.h"

namespace feedwater::server {
namespace {

struct Params : MelParams {
  int64_t n_mfcc = 40;
  std::string dct_norm = "ortho";
  bool log_mels = false;
};

constexpr double kTopDb = 80;  // torchaudio's
constexpr int64_t kFramesBetweenLooks = 64;
constexpr float kLeastMel = 1e-6f;  // added before the logarithm, as there

class Mfcc : public Op {
 public:
  explicit Mfcc(const Params& params)
      : n_mfcc_(static_cast<int>(params.n_mfcc)),
        log_mels_(params.log_mels),
        mel_(*MelSpectrogram::Make(*SettingsOf(params))),
        cosines_(CosineTransform(mel_.n_mels(), n_mfcc_, params.dct_norm == "ortho")) {}

  static absl::Status Check(const Params& params) {
    FW_RETURN_IF_ERROR(CheckMel(params));
    if (params.n_mfcc <= params.n_mels) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("n_mfcc ", params.n_mfcc, " is over n_mels ", params.n_mels));
  }

  absl::StatusOr<Specs> Plan(absl::Span<const TensorSpec> inputs,
                             const PlanEnvironment&) const override {
    FW_ASSIGN_OR_RETURN(const AudioShape shape, FixedWaveformOf(inputs[0]));
    FW_ASSIGN_OR_RETURN(const int64_t frames, mel_.Frames(shape.frames));
    return Specs{WithBands(inputs[0], n_mfcc_, frames)};
  }

  OpMemory Memory(absl::Span<const TensorSpec> inputs, const PlanEnvironment&) const override {
    const auto shape = FixedWaveformOf(inputs[0]);
    if (!shape.ok()) return {};
    const auto frames = mel_.Frames(shape->frames);
    return {frames.ok() ? Scratch(*shape, *frames) : 0, {}};
  }

  int64_t TableBytes() const override {
    return mel_.TableBytes() + static_cast<int64_t>(cosines_.size() * sizeof(float));
  }

  absl::Status Run(Sample& sample, Draws) const override {
    const Tensor& input = sample.inputs()[0];
    FW_ASSIGN_OR_RETURN(const AudioShape shape, FixedWaveformOf(input.spec));
    FW_ASSIGN_OR_RETURN(const int64_t frames, mel_.Frames(shape.frames));
    FW_ASSIGN_OR_RETURN(Tensor output, sample.Output(0, WithBands(input.spec, n_mfcc_, frames)));
    FW_ASSIGN_OR_RETURN(std::byte* const scratch,
                        sample.Scratch(static_cast<size_t>(Scratch(shape, frames))));
    std::byte* const rest = scratch;
    auto* const mels = reinterpret_cast<float*>(scratch + Aligned(mel_.ScratchBytes(shape.frames)));
    const int64_t bands = mel_.n_mels() * frames, all = shape.channels * bands;
    for (int64_t c = 0; c < shape.channels; ++c) {
      FW_RETURN_IF_ERROR(mel_.Run(input.as<float>() + c * shape.frames, shape.frames, rest,
                                  sample.clock(), mels + c * bands));
    }
    const kernels::SpectrumTable& table = kernels::Spectrums();
    if (log_mels_) {
      table.logarithms(mels, static_cast<size_t>(all), kLeastMel, mels);
    } else {  // of all channels together, as there
      FW_RETURN_IF_ERROR(ToDecibels(mels, all, 10, kTopDb, sample.clock(), mels));
    }
    for (int64_t c = 0; c < shape.channels; ++c) {
      for (int64_t t = 0; t < frames; t += kFramesBetweenLooks) {
        FW_RETURN_IF_ERROR(sample.clock().Check());
        table.transform(mels + c * bands + t, mel_.n_mels(), frames, cosines_.data(), n_mfcc_,
                        std::min(kFramesBetweenLooks, frames - t),
                        output.as<float>() + c * n_mfcc_ * frames + t);
      }
    }
    return absl::OkStatus();
  }

 private:
  static int64_t Aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }
  int64_t Scratch(const AudioShape& shape, int64_t frames) const {
    return Aligned(mel_.ScratchBytes(shape.frames)) +
           shape.channels * mel_.n_mels() * frames * static_cast<int64_t>(sizeof(float));
  }

  const int n_mfcc_;
  const bool log_mels_;
  const MelSpectrogram mel_;
  const std::vector<float> cosines_;
};

const OpRegistrar kRegistrar(
    MelSchema(OpSchema<Params>("mfcc").Summary(
                  "Makes the mel-frequency cepstral coefficients of a waveform, as "
                  "torchaudio.transforms.MFCC does: a mel spectrogram in decibels (80 of them "
                  "below the largest), and the cosine transform of each frame's bands."))
        .Param("n_mfcc", &Params::n_mfcc, "Number of coefficients.", Range(1, kMostMels))
        .Param("dct_norm", &Params::dct_norm,
               "ortho: the cosine transform is orthonormal. none: as it is without.",
               OneOf({"ortho", "none"}))
        .Param("log_mels", &Params::log_mels,
               "Takes the logarithm of the spectrogram plus 1e-6 instead of decibels.")
        .Cost("As mel_spectrogram, and n_mels * n_mfcc multiplications a frame.")
        .Example("- mfcc: {in: audio, out: mel, sample_rate: 16000, n_mels: 40, n_mfcc: 13}")
        .Create<Mfcc>());

}  // namespace
}  // namespace feedwater::server
