// What tests of audio share: a waveform, files of every kind made of one, torchaudio's numbers.
#pragma once

#include <gtest/gtest.h>
#include <sndfile.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace feedwater::server::audio_testing {

using Bytes = std::vector<uint8_t>;
using Floats = std::vector<float>;

// As `waveform` in make_golden.py.
inline Floats TestWaveform(int frames = 900) {
  Floats numbers;
  uint32_t state = 1;
  for (int i = 0; i < frames; ++i) {
    state = state * 1664525 + 1013904223;
    const double noise = (state >> 16) / 65536.0 - 0.5;
    numbers.push_back(
        static_cast<float>(noise * 0.25 + (i % 50) / 50.0 * 0.5 - 0.25 + (i % 7) / 7.0 * 0.25));
  }
  return numbers;
}

inline Floats Sine(double hz, int rate, int frames, double amplitude = 0.5) {
  Floats numbers;
  for (int i = 0; i < frames; ++i)
    numbers.push_back(
        static_cast<float>(amplitude * std::sin(2 * std::acos(-1.0) * hz * i / rate)));
  return numbers;
}

// A file in memory, for libsndfile.
struct MemoryFile {
  Bytes bytes;
  int64_t at = 0;
};
inline SF_VIRTUAL_IO kMemoryIo = {
    [](void* data) {
      return static_cast<sf_count_t>(static_cast<MemoryFile*>(data)->bytes.size());
    },
    [](sf_count_t offset, int whence, void* data) {
      auto& f = *static_cast<MemoryFile*>(data);
      const auto size = static_cast<int64_t>(f.bytes.size());
      return f.at = offset + (whence == SEEK_SET ? 0 : whence == SEEK_CUR ? f.at : size);
    },
    [](void* to, sf_count_t count, void* data) {
      auto& f = *static_cast<MemoryFile*>(data);
      count = std::min<sf_count_t>(count, static_cast<int64_t>(f.bytes.size()) - f.at);
      std::memcpy(to, f.bytes.data() + f.at, static_cast<size_t>(count));
      f.at += count;
      return count;
    },
    [](const void* from, sf_count_t count, void* data) {
      auto& f = *static_cast<MemoryFile*>(data);
      if (f.at + count > static_cast<int64_t>(f.bytes.size()))
        f.bytes.resize(static_cast<size_t>(f.at + count));
      std::memcpy(f.bytes.data() + f.at, from, static_cast<size_t>(count));
      f.at += count;
      return count;
    },
    [](void* data) { return static_cast<sf_count_t>(static_cast<MemoryFile*>(data)->at); }};

// The waveform in every one of `channels`, channel c times 1 / (c + 1). `format` is libsndfile's.
inline Bytes EncodedAudio(int format, int rate, const Floats& waveform, int channels = 1) {
  MemoryFile file;
  SF_INFO info = {};
  info.samplerate = rate;
  info.channels = channels;
  info.format = format;
  SNDFILE* const sound = sf_open_virtual(&kMemoryIo, SFM_WRITE, &info, &file);
  EXPECT_NE(sound, nullptr) << sf_strerror(nullptr);
  if (sound == nullptr) return {};
  Floats frames;
  for (const float x : waveform) {
    for (int c = 0; c < channels; ++c) frames.push_back(x / static_cast<float>(c + 1));
  }
  EXPECT_EQ(sf_writef_float(sound, frames.data(), static_cast<sf_count_t>(waveform.size())),
            static_cast<sf_count_t>(waveform.size()));
  sf_close(sound);
  return file.bytes;
}

// What libsndfile reads: all channels of a frame side by side.
inline Floats DecodedByLibsndfile(const Bytes& bytes) {
  MemoryFile file{bytes};
  SF_INFO info = {};
  SNDFILE* const sound = sf_open_virtual(&kMemoryIo, SFM_READ, &info, &file);
  EXPECT_NE(sound, nullptr) << sf_strerror(nullptr);
  if (sound == nullptr) return {};
  Floats samples(static_cast<size_t>(info.frames * info.channels));
  EXPECT_EQ(sf_readf_float(sound, samples.data(), info.frames), info.frames);
  sf_close(sound);
  return samples;
}

struct Kind {
  const char* name;
  int format;
  double tolerance;  // of a sine behind it; the lossless ones are exact to their bits
};
inline const Kind kKinds[] = {
    {"wav_8", SF_FORMAT_WAV | SF_FORMAT_PCM_U8, 0.008},
    {"wav_16", SF_FORMAT_WAV | SF_FORMAT_PCM_16, 4e-5},
    {"wav_24", SF_FORMAT_WAV | SF_FORMAT_PCM_24, 2e-7},
    {"wav_32", SF_FORMAT_WAV | SF_FORMAT_PCM_32, 2e-7},
    {"wav_float", SF_FORMAT_WAV | SF_FORMAT_FLOAT, 0},
    {"wav_double", SF_FORMAT_WAV | SF_FORMAT_DOUBLE, 0},
    {"wav_ulaw", SF_FORMAT_WAV | SF_FORMAT_ULAW, 0.02},
    {"wav_alaw", SF_FORMAT_WAV | SF_FORMAT_ALAW, 0.02},
    {"wav_extensible", SF_FORMAT_WAVEX | SF_FORMAT_PCM_16, 4e-5},
    {"flac_8", SF_FORMAT_FLAC | SF_FORMAT_PCM_S8, 0.008},
    {"flac_16", SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 4e-5},
    {"flac_24", SF_FORMAT_FLAC | SF_FORMAT_PCM_24, 2e-7},
    {"ogg_vorbis", SF_FORMAT_OGG | SF_FORMAT_VORBIS, 0.05},
    {"ogg_opus", SF_FORMAT_OGG | SF_FORMAT_OPUS, 0.08},
    {"mp3", SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III, 0.05},
};

// What torchaudio made: rows of golden/torchaudio.txt by name.
struct Golden {
  int rows = 0, columns = 0;
  Floats numbers;
};
inline std::map<std::string, Golden> ReadGolden() {
  std::ifstream file(FEEDWATER_SOURCE_DIR "/tests/audio/golden/torchaudio.txt");
  std::map<std::string, Golden> all;
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::istringstream head(line);
    std::string name;
    Golden golden;
    head >> name >> golden.rows >> golden.columns;
    for (int row = 0; row < golden.rows && std::getline(file, line); ++row) {
      std::istringstream numbers(line);
      for (float x = 0; numbers >> x;) golden.numbers.push_back(x);
    }
    EXPECT_EQ(golden.numbers.size(), static_cast<size_t>(golden.rows) * golden.columns) << name;
    all[name] = golden;
  }
  EXPECT_GE(all.size(), 10u);
  return all;
}

// Within 1e-4 of the largest number.
inline void ExpectGolden(const Golden& golden, const Floats& made, const std::string& name) {
  ASSERT_EQ(made.size(), golden.numbers.size()) << name;
  float largest = 0;
  for (const float x : golden.numbers) largest = std::max(largest, std::abs(x));
  float worst = 0;
  for (size_t i = 0; i < made.size(); ++i) {
    ASSERT_TRUE(std::isfinite(made[i])) << name << " " << i;
    worst = std::max(worst, std::abs(made[i] - golden.numbers[i]));
  }
  EXPECT_LE(worst, 1e-4f * std::max(largest, 1.0f)) << name << ", largest " << largest;
}

}  // namespace feedwater::server::audio_testing
