#include "server/audio/audio_stream.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "server/audio/waveform_kernels.h"
#include "server/base/status.h"

namespace feedwater::server {
namespace {

constexpr int64_t kOutputsBetweenLooks = 1 << 14;
constexpr int64_t kBlockSamples = 1 << 14;  // decoded at once, of all channels
// Of one channel: what outputs still look at, a block, and the zeros behind the end.
constexpr int64_t kWindowFloats = kBlockSamples + 2 * ResampleRatio::kMostTaps;

// One channel's samples as far as they are still needed: a window that moves along the waveform.
struct Window {
  float* samples = nullptr;
  int64_t begin = 0, end = 0;

  float* next() { return samples + (end - begin); }
  void MoveTo(int64_t first) {
    const int64_t kept = std::clamp<int64_t>(end - first, 0, end - begin);
    std::memmove(samples, next() - kept, static_cast<size_t>(kept) * sizeof(float));
    begin = end - kept;
  }
};

}  // namespace

int64_t StreamScratchFloats(int channels) { return kBlockSamples + channels * kWindowFloats; }

absl::Status RunStream(const AudioStream& stream, float* scratch, WorkClock& clock, float* out) {
  const kernels::WaveformTable& table = kernels::Waveforms();
  const AudioFile& file = *stream.file;
  const ResampleRatio& ratio = *stream.ratio;
  const int64_t total = stream.decoder->frames(), frames = ratio.OutputFrames(total),
                before = -ratio.FirstInput(0);
  float* const block = scratch;
  Window windows[kMostAudioChannels];
  for (int c = 0; c < stream.channels; ++c) {
    windows[c] = {scratch + kBlockSamples + c * kWindowFloats, -before, 0};
    std::fill_n(windows[c].samples, before, 0.0f);  // before the first sample
  }
  for (int64_t read = 0, made = 0; made < frames;) {
    FW_RETURN_IF_ERROR(clock.Check());
    const int64_t count = std::min(kBlockSamples / file.channels, total - read);
    FW_RETURN_IF_ERROR(stream.decoder->Read(count, block));
    if (!table.all_finite(block, static_cast<size_t>(count * file.channels))) {
      return absl::InvalidArgumentError(
          absl::StrCat(file.format, " holds a sample that is infinite or no number, in frames ",
                       read, " to ", read + count - 1));
    }
    read += count;
    const int64_t zeros = read == total ? ratio.taps() : 0;  // behind the last sample
    const int64_t until = read == total ? frames : ratio.OutputsUntil(read);
    for (int c = 0; c < stream.channels; ++c) {
      Window& window = windows[c];
      if (stream.channels == 1) {
        table.mean_of_channels(block, file.channels, static_cast<size_t>(count), window.next());
      } else {
        table.one_channel(block + c, file.channels, static_cast<size_t>(count), window.next());
      }
      std::fill_n(window.next() + count, zeros, 0.0f);
      window.end += count + zeros;
      for (int64_t first = made; first < until; first += kOutputsBetweenLooks) {
        FW_RETURN_IF_ERROR(clock.Check());
        const int64_t some = std::min(kOutputsBetweenLooks, until - first);
        float* const to = out + c * frames + first;
        ratio.Run(stream.weights, window.samples, window.begin, first, some, to);
        // Finite numbers can be too large for their sum.
        if (!table.all_finite(to, static_cast<size_t>(some))) {
          return absl::InvalidArgumentError(
              absl::StrCat(file.format,
                           " holds samples so large that their sum is infinite, before "
                           "frame ",
                           read));
        }
      }
      window.MoveTo(ratio.FirstInput(until));
    }
    made = until;
  }
  return stream.decoder->Finish();
}

}  // namespace feedwater::server
