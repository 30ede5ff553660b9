// Decodes an audio file to float32 samples of one rate: a file of another rate is resampled, so
// that everything behind this op knows the rate.
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/audio/audio_stream.h"
#include "server/graph/audio_op.h"

namespace feedwater::server {
namespace {

struct Params {
  int64_t sample_rate = 0;
  bool mono = false;
  int64_t channels = 1;
  double max_seconds = 60;
};

// Rates that files usually have: their tables are made once, but for those that are large.
constexpr int64_t kMostKeptWeights = 1 << 16;
constexpr int64_t kUsualRates[] = {8000,  11025, 12000, 16000, 22050, 24000,
                                   32000, 44100, 48000, 88200, 96000, 192000};

int64_t Bytes(int64_t floats) { return floats * static_cast<int64_t>(sizeof(float)); }

class DecodeAudio : public Op {
 public:
  explicit DecodeAudio(const Params& params) : params_(params) {
    for (const int64_t rate : kUsualRates) {
      const auto ratio = ResampleRatio::Make(rate, params_.sample_rate);
      if (!ratio.ok() || ratio->is_same() || ratio->weights() > kMostKeptWeights) continue;
      std::vector<float>& weights = weights_[rate];
      weights.resize(static_cast<size_t>(ratio->weights()));
      ratio->MakeWeights(weights.data());
    }
  }

  static absl::Status Check(const Params& params) {
    if (params.mono && params.channels != 1)
      return absl::InvalidArgumentError("mono: true gives one channel; leave out 'channels'");
    return absl::OkStatus();
  }

  absl::StatusOr<Specs> Plan(absl::Span<const TensorSpec>, const PlanEnvironment&) const override {
    TensorSpec spec{DType::kFloat32, Layout::kPlain, {params_.channels, -1}};
    if (params_.mono) spec.shape = {-1};
    return Specs{spec};
  }

  OpMemory Memory(absl::Span<const TensorSpec>, const PlanEnvironment&) const override {
    const auto frames =
        static_cast<int64_t>(params_.max_seconds * static_cast<double>(params_.sample_rate)) + 1;
    return {Bytes(StreamScratchFloats(channels()) + ResampleRatio::kMostWeights) +
                AudioDecoder::kMostLibraryBytes,
            {Bytes(frames * channels())}};
  }

  int64_t TableBytes() const override {
    int64_t floats = 0;
    for (const auto& [rate, weights] : weights_) floats += static_cast<int64_t>(weights.size());
    return Bytes(floats);
  }

  absl::Status Run(Sample& sample, Draws) const override {
    const Tensor& input = sample.inputs()[0];
    FW_ASSIGN_OR_RETURN(const AudioFile file, ReadAudioFile({input.data, input.bytes()}));
    if (!params_.mono && file.channels != params_.channels) {
      return absl::InvalidArgumentError(
          absl::StrCat(file.format, " of ", file.channels, " channels, not ", params_.channels,
                       "; say channels: ", file.channels, ", or mono: true for their mean"));
    }
    FW_ASSIGN_OR_RETURN(const ResampleRatio ratio,
                        ResampleRatio::Make(file.rate, params_.sample_rate));
    if (file.is_exact) FW_RETURN_IF_ERROR(CheckLength(file, file.most_frames));
    AudioDecoder decoder;
    FW_RETURN_IF_ERROR(decoder.Open(file));
    FW_RETURN_IF_ERROR(CheckLength(file, decoder.frames()));
    FW_ASSIGN_OR_RETURN(
        Tensor output,
        sample.Output(0, WithFrames(sample.planned(0), ratio.OutputFrames(decoder.frames()))));
    const auto known = weights_.find(file.rate);
    const int64_t own_weights = ratio.is_same() || known != weights_.end() ? 0 : ratio.weights();
    FW_ASSIGN_OR_RETURN(
        std::byte* const memory,
        sample.Scratch(static_cast<size_t>(Bytes(StreamScratchFloats(channels()) + own_weights))));
    auto* const scratch = reinterpret_cast<float*>(memory);
    AudioStream stream{&file, &decoder, &ratio, nullptr, channels()};
    if (own_weights > 0) {
      float* const weights = scratch + StreamScratchFloats(channels());
      ratio.MakeWeights(weights);
      stream.weights = weights;
    } else if (known != weights_.end()) {
      stream.weights = known->second.data();
    }
    return RunStream(stream, scratch, sample.clock(), output.as<float>());
  }

 private:
  int channels() const { return static_cast<int>(params_.channels); }

  absl::Status CheckLength(const AudioFile& file, int64_t frames) const {
    const double seconds = static_cast<double>(frames) / static_cast<double>(file.rate);
    if (seconds <= params_.max_seconds) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(file.format, " of ", seconds, " s is over max_seconds ", params_.max_seconds,
                     ", for which memory is reserved; raise it if the file is good"));
  }

  const Params params_;
  std::map<int64_t, std::vector<float>> weights_;  // by the file's rate
};

const OpRegistrar kRegistrar(
    OpSchema<Params>("decode_audio")
        .Summary(
            "Decodes an audio file (WAV, FLAC, Ogg Vorbis, Ogg Opus or MP3, told apart by content) "
            "to float32 samples from -1 to 1, as torchaudio.load does, and resamples it to one "
            "rate, as torchaudio.functional.resample does. Files that are cut off or damaged, that "
            "hold no samples, or an infinite one, are bad samples. WAV of floats may hold more "
            "than 1.")
        .Input({.field = "data",
                .layouts = {Layout::kEncoded},
                .dtypes = {},
                .doc = "The bytes of an audio file."})
        .Output({.field = "audio",
                 .layouts = {Layout::kPlain},
                 .dtypes = {DType::kFloat32},
                 .doc = "The waveform: [channels, frames]; with mono: true [frames]."})
        .Required("sample_rate", &Params::sample_rate,
                  "Rate of what comes out, in Hz. Files of another rate are resampled.",
                  Range(kLeastSampleRate, kMostSampleRate))
        .Param("mono", &Params::mono,
               "Gives the mean of all channels, without an axis for them: [frames]. Files of any "
               "number of channels are taken.")
        .Param("channels", &Params::channels,
               "How many channels files have, where they are kept; others are bad samples.",
               Range(1, kMostAudioChannels))
        .Param("max_seconds", &Params::max_seconds,
               "Longer files are bad samples. A worker reserves the memory for files of this "
               "length.",
               Range(0.001, 36000))
        .Cost("Most of an audio pipeline's CPU time for FLAC, Ogg and MP3; WAV is read as fast as "
              "memory. Resampling from 44,100 to 16,000 Hz takes about as long as the mel "
              "spectrogram behind it.")
        .Example("- decode_audio: {in: data, out: audio, sample_rate: 16000}")
        .Create<DecodeAudio>());

}  // namespace
}  // namespace feedwater::server
