// mel_spectrogram: torchaudio's numbers for every channel; parameters that cannot be are said.
#include <gmock/gmock.h>

#include "tests/graph/ops/audio_op_testing.h"

namespace feedwater::server {
namespace {

using namespace audio_op_testing;  // NOLINT: the tests' own words
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(MelSpectrogramOp, GivesTorchaudiosNumbersForEveryChannel) {
  const auto golden = audio_testing::ReadGolden();
  Floats two = TestWaveform();
  for (const float x : TestWaveform()) two.push_back(x);
  const Floats made = RunOnNumbers(
      "- mel_spectrogram: {out: audio, sample_rate: 16000, n_mels: 20}", "audio", {2, 900}, two);
  ASSERT_EQ(made.size(), 200u);
  for (const size_t begin : {0, 100}) {
    audio_testing::ExpectGolden(golden.at("mel_default"),
                                Floats(made.begin() + static_cast<long>(begin),
                                       made.begin() + static_cast<long>(begin) + 100),
                                "mel_default");
  }
  audio_testing::ExpectGolden(
      golden.at("mel_slaney"),
      RunOnNumbers("- mel_spectrogram: {out: audio, sample_rate: 16000, n_mels: 20, n_fft: 128, "
                   "hop_length: 100, f_min: 50, f_max: 7000, norm: slaney, mel_scale: slaney, "
                   "power: 1}",
                   "audio", {900}, TestWaveform()),
      "mel_slaney");
}

TEST(MelSpectrogramOp, ParametersThatDoNotFitAreRefusedWithTheirPlace) {
  const auto refusal = [](const std::string& params) {
    return Refusal("- mel_spectrogram: {out: audio, sample_rate: 16000, " + params + "}", "audio",
                   {900}, TestWaveform());
  };
  EXPECT_THAT(refusal("n_fft: 67, n_mels: 4"),
              AllOf(HasSubstr("test.yaml:4:"), HasSubstr("op 'mel_spectrogram'"),
                    HasSubstr("n_fft: 67 has the prime factor")));
  EXPECT_THAT(refusal("win_length: 500"), HasSubstr("win_length 500 is over n_fft 400"));
  EXPECT_THAT(refusal("f_max: 9000"), HasSubstr("f_max 9000 is over half of sample_rate, 8000"));
  EXPECT_THAT(refusal("f_min: 8000"), HasSubstr("is not below f_max"));
  EXPECT_THAT(refusal("power: 1.5, n_mels: 20"), HasSubstr("power is 1 or 2, not 1.5"));
  EXPECT_THAT(refusal("n_fft: 2048, n_mels: 20"), HasSubstr("too short to be reflected"));
}

}  // namespace
}  // namespace feedwater::server
