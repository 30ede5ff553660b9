// Mel spectrograms of waveforms, as torchaudio.transforms.MelSpectrogram makes them: frames that
// overlap, a window, a Fourier transform, magnitudes or powers, and a bank of triangular filters.
// Made once for an op, used by many threads; memory comes from the caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/audio/fourier.h"
#include "server/audio/mel_filters.h"
#include "server/base/work_clock.h"

namespace feedwater::server {

enum class EdgePadding { kReflect, kZeros, kReplicate };

struct SpectrogramSettings {
  int n_fft = 400, win_length = 400, hop_length = 200;
  bool center = true;  // frame t has sample t * hop_length in its middle
  EdgePadding padding = EdgePadding::kReflect;
  bool squared = true;
  MelSettings mel;
};

class MelSpectrogram {
 public:
  // InvalidArgument: an n_fft that Fourier::Make refuses.
  static absl::StatusOr<MelSpectrogram> Make(const SpectrogramSettings& settings);

  int n_mels() const { return settings_.mel.n_mels; }
  const MelFilters& filters() const { return filters_; }
  // InvalidArgument: too few samples for one frame or for their reflection.
  absl::StatusOr<int64_t> Frames(int64_t samples) const;
  int64_t ScratchBytes(int64_t samples) const;
  int64_t TableBytes() const;  // that it keeps
  // REQUIRES: Frames(samples) is good. `scratch` is aligned to 64 bytes. Of mel band m and frame t:
  // out[m * frames + t].
  absl::Status Run(const float* waveform, int64_t samples, std::byte* scratch, WorkClock& clock,
                   float* out) const;

 private:
  MelSpectrogram(const SpectrogramSettings& settings, Fourier fourier);
  int64_t edge() const { return settings_.center ? settings_.n_fft / 2 : 0; }

  SpectrogramSettings settings_;
  Fourier fourier_;
  std::vector<float> window_;
  MelFilters filters_;
};

// The waveform with `edge` samples more on either side. REQUIRES: reflected, samples > edge.
void PadEdges(const float* waveform, int64_t samples, int64_t edge, EdgePadding padding,
              float* out);

}  // namespace feedwater::server
