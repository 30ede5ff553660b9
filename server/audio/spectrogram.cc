#include "server/audio/spectrogram.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/audio/waveform_kernels.h"
#include "server/base/status.h"

namespace feedwater::server {
namespace {

constexpr int64_t kFramesBetweenLooks = 64;  // a multiple of all targets' lanes

int64_t Aligned(int64_t floats) { return (floats + 15) / 16 * 16; }

MelSettings WithBins(MelSettings mel, int bins) {
  mel.bins = bins;
  return mel;
}

}  // namespace

void PadEdges(const float* waveform, int64_t samples, int64_t edge, EdgePadding padding,
              float* out) {
  std::copy_n(waveform, samples, out + edge);
  for (int64_t i = 0; i < edge; ++i) {
    float left = 0, right = 0;
    if (padding == EdgePadding::kReflect) {
      left = waveform[edge - i];
      right = waveform[samples - 2 - i];
    } else if (padding == EdgePadding::kReplicate) {
      left = waveform[0];
      right = waveform[samples - 1];
    }
    out[i] = left;
    out[edge + samples + i] = right;
  }
}

absl::StatusOr<MelSpectrogram> MelSpectrogram::Make(const SpectrogramSettings& settings) {
  absl::StatusOr<Fourier> fourier = Fourier::Make(settings.n_fft);
  if (!fourier.ok())
    return absl::InvalidArgumentError(absl::StrCat("n_fft: ", fourier.status().message()));
  return MelSpectrogram(settings, *std::move(fourier));
}

MelSpectrogram::MelSpectrogram(const SpectrogramSettings& settings, Fourier fourier)
    : settings_(settings),
      fourier_(std::move(fourier)),
      window_(HannWindow(settings.win_length, settings.n_fft)),
      filters_(WithBins(settings.mel, fourier_.bins())) {}

absl::StatusOr<int64_t> MelSpectrogram::Frames(int64_t samples) const {
  if (settings_.center && settings_.padding == EdgePadding::kReflect && samples <= edge()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "audio of ", samples, " frames is too short to be reflected by n_fft / 2 = ", edge(),
        "; make it longer with crop_audio, or choose pad_mode: constant"));
  }
  const int64_t padded = samples + 2 * edge();
  if (samples < 1 || padded < settings_.n_fft) {
    return absl::InvalidArgumentError(
        absl::StrCat("audio of ", samples, " frames is shorter than n_fft ", settings_.n_fft,
                     "; make it longer with crop_audio, or choose center: true"));
  }
  return 1 + (padded - settings_.n_fft) / settings_.hop_length;
}

int64_t MelSpectrogram::ScratchBytes(int64_t samples) const {
  const auto frames = static_cast<int64_t>(kernels::FrameScratch(fourier_));
  return (Aligned(samples + 2 * edge()) + frames) * static_cast<int64_t>(sizeof(float));
}

int64_t MelSpectrogram::TableBytes() const {
  const size_t floats =
      fourier_.roots.capacity() + fourier_.half_roots.capacity() + window_.capacity();
  return static_cast<int64_t>(floats * sizeof(float)) + filters_.TableBytes();
}

absl::Status MelSpectrogram::Run(const float* waveform, int64_t samples, std::byte* scratch,
                                 WorkClock& clock, float* out) const {
  FW_ASSIGN_OR_RETURN(const int64_t frames, Frames(samples));
  auto* const padded = reinterpret_cast<float*>(scratch);
  float* const rest = padded + Aligned(samples + 2 * edge());
  kernels::FrameJob job;
  job.samples = waveform;
  if (edge() > 0) {
    PadEdges(waveform, samples, edge(), settings_.padding, padded);
    job.samples = padded;
  }
  job.hop = settings_.hop_length;
  job.window = window_.data();
  job.fourier = &fourier_;
  job.squared = settings_.squared;
  job.filters = filters_.matrix();
  job.out = out;
  job.out_stride = frames;
  for (int64_t t = 0; t < frames; t += kFramesBetweenLooks) {
    FW_RETURN_IF_ERROR(clock.Check());
    kernels::Spectrums().frames(job, t, std::min(kFramesBetweenLooks, frames - t), rest);
  }
  // Finite samples can be too large for their squares and sums.
  if (!kernels::Waveforms().all_finite(out, static_cast<size_t>(n_mels() * frames))) {
    return absl::InvalidArgumentError(
        "the spectrogram is infinite or no number: the waveform holds such samples, or ones that "
        "are too large (sounds are between -1 and 1)");
  }
  return absl::OkStatus();
}

}  // namespace feedwater::server
