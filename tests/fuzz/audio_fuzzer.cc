// Any bytes as an audio file of any kind: our own look at it, then the codecs. Pages of Ogg get
// their checksums made good too, so that what is wrong in them reaches the codecs.
// LIBS: feedwater_audio_testing GTest::gtest
#include <algorithm>
#include <cmath>
#include <limits>

#include "server/audio/audio_stream.h"
#include "tests/audio/audio_testing.h"
#include "tests/fuzz/fuzzer.h"

namespace feedwater::fuzz {
namespace {

using namespace server;                 // NOLINT: audio_stream.h
using namespace server::audio_testing;  // NOLINT: the files of audio's tests

constexpr int64_t kMostFrames = 1 << 18, kRate = 16000;

// The samples, or nothing; `planes` channels, or 1 for the mean.
std::vector<float> Decode(const AudioFile& file, int planes) {
  static auto* const clock = new WorkClock;
  AudioDecoder decoder;
  const auto ratio = ResampleRatio::Make(file.rate, kRate);
  if (!ratio.ok() || !decoder.Open(file).ok() || decoder.frames() > kMostFrames) return {};
  Require(decoder.frames() > 0 && decoder.frames() <= file.most_frames, "as many as promised");
  std::vector<float> weights(static_cast<size_t>(ratio->weights())),
      scratch(static_cast<size_t>(StreamScratchFloats(planes))),
      out(static_cast<size_t>(ratio->OutputFrames(decoder.frames()) * planes) + 1, 77.0f);
  if (!ratio->is_same()) ratio->MakeWeights(weights.data());
  const AudioStream stream{&file, &decoder, &*ratio, weights.data(), planes};
  const bool is_good = RunStream(stream, scratch.data(), *clock, out.data()).ok();
  Require(out.back() == 77, "nothing is written behind the end");
  out.pop_back();
  return is_good ? out : std::vector<float>();
}

void RunOne(absl::Span<const std::byte> bytes) {
  const auto file = ReadAudioFile(bytes);
  if (!file.ok()) return;
  Require(file->channels > 0 && file->channels <= kMostAudioChannels && file->rate > 0 &&
              file->rate <= kMostSampleRate && file->most_frames > 0,
          "within the limits");
  const std::vector<float> planes = Decode(*file, file->channels),
                           again = Decode(*file, file->channels), mean = Decode(*file, 1);
  Require(planes == again, "the same samples again");
  // Numbers near float32's bound may pass it as a sum of channels, or resampled, and not otherwise.
  const auto is_large = [&](float sample) {
    return std::abs(sample) > std::numeric_limits<float>::max() / (4.0f * file->channels);
  };
  Require(planes.empty() || !mean.empty() || std::any_of(planes.begin(), planes.end(), is_large),
          "one verdict, but for numbers near the bound");
  Require(planes.empty() || mean.empty() ||
              planes.size() == mean.size() * static_cast<size_t>(file->channels),
          "as many frames");
  for (const float sample : mean) Require(!std::isnan(sample), "numbers");
}

void MakeChecksumsGood(std::vector<uint8_t>* file) {
  for (size_t at = 0; at + 27 <= file->size();) {
    uint8_t* const page = file->data() + at;
    size_t bytes = 27u + page[26];
    if (std::memcmp(page, "OggS", 4) != 0 || at + bytes > file->size()) return;
    for (size_t i = 0; i < page[26]; ++i) bytes += page[27 + i];
    if (at + bytes > file->size()) return;
    std::memset(page + 22, 0, 4);
    uint32_t sum = 0;
    for (size_t i = 0; i < bytes; ++i) {
      sum ^= uint32_t{page[i]} << 24;
      for (int bit = 0; bit < 8; ++bit) sum = sum << 1 ^ ((sum >> 31) != 0 ? 0x04c11db7u : 0);
    }
    for (int i = 0; i < 4; ++i) page[22 + i] = static_cast<uint8_t>(sum >> (8 * i));
    at += bytes;
  }
}

void Run(Input input) {
  std::vector<uint8_t> file(input.begin(), input.end());
  RunOne({reinterpret_cast<const std::byte*>(file.data()), file.size()});
  MakeChecksumsGood(&file);
  if (file != std::vector<uint8_t>(input.begin(), input.end()))
    RunOne({reinterpret_cast<const std::byte*>(file.data()), file.size()});
}

// A file as programs leave it: tags and zeros at both ends, and a length that is not filled in.
std::string Dressed(std::string file) {
  if (file.compare(0, 4, "RIFF") == 0) {
    file.replace(4, 4, 4, '\0');
    const size_t length = file.find("data") + 4;
    if (length + 4 <= file.size()) file.replace(length, 4, 4, '\0');
  } else if (file.compare(0, 4, "fLaC") == 0) {
    file[21] = static_cast<char>(file[21] & 0xf0);
    file.replace(22, 4, 4, '\0');
  }
  const std::string id3("ID3\3\0\0\0\0\0\4abcd", 14), zeros(9, '\0'),
      ape("item"
          "APETAGEX\xe8\3\0\0\x24\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
          36);
  std::string last = "TAG";
  last.resize(128, ' ');
  return id3 + zeros + file + zeros + "LYRICSBEGINlaLYRICSEND" + ape + last + zeros;
}

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  for (const Kind& kind : kKinds) {
    for (const int channels : {1, 2}) {
      const Bytes file = EncodedAudio(kind.format, 16000, TestWaveform(1200), channels);
      seeds.emplace_back(file.begin(), file.end());
      seeds.push_back(Dressed(seeds.back()));
    }
  }
  return seeds;
}

}  // namespace

const FuzzTarget& Target() {
  static const FuzzTarget target = {Run, Seeds, {}, nullptr, 1 << 14};
  return target;
}

}  // namespace feedwater::fuzz
