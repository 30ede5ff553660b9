// Resampling beside torchaudio's, rates that fit and rates that do not, equal bytes on every SIMD
// target.
#include "server/audio/resampler.h"

#include <gmock/gmock.h>

#include "tests/audio/audio_testing.h"
#include "tests/imaging/simd_targets.h"

namespace feedwater::server {
namespace {

using namespace audio_testing;  // NOLINT: the tests' own words
using ::testing::HasSubstr;

Floats Resampled(const Floats& waveform, int64_t from, int64_t to) {
  const auto ratio = ResampleRatio::Make(from, to);
  EXPECT_TRUE(ratio.ok()) << ratio.status();
  Floats weights(static_cast<size_t>(ratio->weights()));
  ratio->MakeWeights(weights.data());
  const auto before = static_cast<size_t>(-ratio->FirstInput(0));
  Floats padded(before + waveform.size() + static_cast<size_t>(ratio->taps()), 0.0f);
  std::copy(waveform.begin(), waveform.end(), padded.begin() + static_cast<long>(before));
  const int64_t frames = ratio->OutputFrames(static_cast<int64_t>(waveform.size()));
  return imaging_testing::SameOnEveryTarget([&] {
    Floats out(static_cast<size_t>(frames));
    ratio->Run(weights.data(), padded.data(), -static_cast<int64_t>(before), 0, frames, out.data());
    return out;
  });
}

TEST(Resampler, GivesTorchaudiosNumbers) {
  const auto golden = ReadGolden();
  for (const auto& [from, to] :
       {std::pair{44100, 16000}, {8000, 16000}, {16000, 11025}, {48000, 8000}}) {
    const std::string name = "resample_" + std::to_string(from) + "_" + std::to_string(to);
    ExpectGolden(golden.at(name), Resampled(TestWaveform(), from, to), name);
  }
}

TEST(Resampler, ASineStaysTheSameSineAndNothingIsHeardAboveTheHalf) {
  const Floats made = Resampled(Sine(1000, 48000, 48000), 48000, 16000);
  const Floats expected = Sine(1000, 16000, 16000);
  ASSERT_EQ(made.size(), expected.size());
  for (size_t i = 100; i < made.size() - 100; ++i) EXPECT_NEAR(made[i], expected[i], 2e-3) << i;
  const Floats above = Resampled(Sine(12000, 48000, 48000), 48000, 16000);
  for (size_t i = 100; i < above.size() - 100; ++i) EXPECT_NEAR(above[i], 0, 2e-3) << i;
}

TEST(Resampler, OutputsUntilIsWhereInputsEnd) {
  for (const auto& [from, to] : {std::pair{44100, 16000}, {8000, 48000}, {48000, 16000}}) {
    const auto ratio = ResampleRatio::Make(from, to);
    for (int64_t end = 0; end < 400; ++end) {
      const int64_t until = ratio->OutputsUntil(end);
      if (until > 0) {
        EXPECT_LE(ratio->FirstInput(until - 1) + ratio->taps(), end);
      }
      EXPECT_GT(ratio->FirstInput(until) + ratio->taps(), end);
    }
  }
}

TEST(Resampler, RatesWithoutACommonDivisorAreRefusedWhereTheTableWouldBeLarge) {
  EXPECT_TRUE(ResampleRatio::Make(44101, 16000).ok());
  EXPECT_THAT(std::string(ResampleRatio::Make(191999, 96000).status().message()),
              HasSubstr("no large common divisor"));
  EXPECT_FALSE(ResampleRatio::Make(0, 16000).ok());
  EXPECT_FALSE(ResampleRatio::Make(16000, 999).ok());
  EXPECT_FALSE(ResampleRatio::Make(16000, 384001).ok());
  EXPECT_LE(ResampleRatio::Make(384000, 1000)->taps(), ResampleRatio::kMostTaps);
}

}  // namespace
}  // namespace feedwater::server
