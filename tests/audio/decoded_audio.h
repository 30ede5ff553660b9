// Audio files decoded as the op does it, for tests of what is refused.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "server/audio/audio_stream.h"
#include "tests/audio/audio_testing.h"

namespace feedwater::server::audio_testing {

inline WorkClock never;  // says that it is enough

inline absl::Span<const std::byte> Span(const Bytes& bytes) {
  return {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()};
}

// What the op does: `channels` planes, one behind the other.
inline absl::StatusOr<Floats> Decode(const Bytes& bytes, int64_t rate = 0, bool mono = true) {
  const auto file = ReadAudioFile(Span(bytes));
  if (!file.ok()) return file.status();
  const auto ratio = ResampleRatio::Make(file->rate, rate > 0 ? rate : file->rate);
  if (!ratio.ok()) return ratio.status();
  AudioDecoder decoder;
  if (const absl::Status opened = decoder.Open(*file); !opened.ok()) return opened;
  Floats weights(static_cast<size_t>(ratio->weights()));
  if (!ratio->is_same()) ratio->MakeWeights(weights.data());
  const int channels = mono ? 1 : file->channels;
  Floats out(static_cast<size_t>(ratio->OutputFrames(decoder.frames()) * channels), 99);
  Floats scratch(static_cast<size_t>(StreamScratchFloats(channels)));
  const AudioStream stream{&*file, &decoder, &*ratio, weights.data(), channels};
  const absl::Status run = RunStream(stream, scratch.data(), never, out.data());
  if (!run.ok()) return run;
  return out;
}

inline std::string Refusal(const Bytes& bytes) {
  const auto decoded = Decode(bytes);
  EXPECT_FALSE(decoded.ok());
  if (decoded.ok()) return "";
  EXPECT_TRUE(absl::IsInvalidArgument(decoded.status())) << decoded.status();
  return std::string(decoded.status().message());
}

inline void PutLittle(uint32_t value, size_t bytes, size_t at, Bytes* file) {
  for (size_t i = 0; i < bytes; ++i) (*file)[at + i] = static_cast<uint8_t>(value >> (8 * i));
}

}  // namespace feedwater::server::audio_testing
