// WAV: numbers one behind the other.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "server/audio/codec_reader.h"

namespace feedwater::server {
namespace {

// G.711, as numbers of 16 bits.
constexpr float ALaw(uint32_t code) {
  code ^= 0x55;
  const uint32_t exponent = code >> 4 & 7;
  int32_t value = static_cast<int32_t>((code & 15) << 4 | 8);
  if (exponent > 0) value = (value + 0x100) << (exponent - 1);
  return static_cast<float>((code & 0x80) != 0 ? value : -value) * 0x1p-15f;
}
constexpr float MuLaw(uint32_t code) {
  code = ~code;
  constexpr int32_t kBias = 0x84;
  const int32_t value =
      ((static_cast<int32_t>(code & 15) << 3) + kBias) * (1 << (code >> 4 & 7)) - kBias;
  return static_cast<float>((code & 0x80) != 0 ? -value : value) * 0x1p-15f;
}
constexpr std::array<float, 256> TableOf(float (*law)(uint32_t)) {
  std::array<float, 256> table = {};
  for (uint32_t code = 0; code < 256; ++code) table[code] = law(code);
  return table;
}
constexpr std::array<float, 256> kALaw = TableOf(ALaw), kMuLaw = TableOf(MuLaw);

uint64_t Little64(const uint8_t* at) { return Little32(at) | uint64_t{Little32(at + 4)} << 32; }

template <size_t kBytes, class Sample>
void Convert(const uint8_t* from, int64_t samples, float* to, const Sample& sample) {
  for (int64_t i = 0; i < samples; ++i) to[i] = sample(from + static_cast<size_t>(i) * kBytes);
}

// The largest whole number becomes 1 less one step, the smallest -1.
void ToFloats(WavSample kind, const uint8_t* from, int64_t n, float* to) {
  switch (kind) {
    case WavSample::kWhole8:
      return Convert<1>(from, n, to, [](auto* at) { return (*at - 128) * 0x1p-7f; });
    case WavSample::kWhole16:
      return Convert<2>(from, n, to,
                        [](auto* at) { return static_cast<int16_t>(Little16(at)) * 0x1p-15f; });
    case WavSample::kWhole24:
      return Convert<3>(from, n, to, [](auto* at) {
        return static_cast<float>(static_cast<int32_t>(Little16(at) << 8 | uint32_t{at[2]} << 24)) *
               0x1p-31f;
      });
    case WavSample::kWhole32:
      return Convert<4>(from, n, to, [](auto* at) {
        return static_cast<float>(static_cast<int32_t>(Little32(at))) * 0x1p-31f;
      });
    case WavSample::kFloat32:
      static_assert(std::endian::native == std::endian::little);
      std::memcpy(to, from, static_cast<size_t>(n) * sizeof(float));
      return;
    case WavSample::kFloat64:
      return Convert<8>(from, n, to, [](auto* at) {
        return static_cast<float>(std::bit_cast<double>(Little64(at)));
      });
    case WavSample::kALaw:
      return Convert<1>(from, n, to, [](auto* at) { return kALaw[*at]; });
    case WavSample::kMuLaw:
      return Convert<1>(from, n, to, [](auto* at) { return kMuLaw[*at]; });
  }
}

class WavReader final : public CodecReader {
 public:
  using CodecReader::CodecReader;

  absl::StatusOr<CodecSound> Open() override {
    return CodecSound{file_.most_frames, file_.channels, file_.rate};
  }

  absl::StatusOr<int64_t> Give(int64_t count, float* frames) override {
    count = std::min(count, file_.most_frames - given_);
    const size_t frame_bytes = file_.body.size() / static_cast<size_t>(file_.most_frames);
    ToFloats(file_.wav_sample, file_.body.data() + static_cast<size_t>(given_) * frame_bytes,
             count * file_.channels, frames);
    given_ += count;
    return count;
  }

 private:
  int64_t given_ = 0;
};

}  // namespace

std::unique_ptr<CodecReader> NewWavReader(const AudioFile& file) {
  return std::make_unique<WavReader>(file);
}

}  // namespace feedwater::server
