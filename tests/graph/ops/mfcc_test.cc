// mfcc: torchaudio's numbers, in decibels and in logarithms.
#include <gmock/gmock.h>

#include "tests/graph/ops/audio_op_testing.h"

namespace feedwater::server {
namespace {

using namespace audio_op_testing;  // NOLINT: the tests' own words
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Mfcc, GivesTorchaudiosNumbers) {
  const auto golden = audio_testing::ReadGolden();
  const std::string common =
      "out: audio, sample_rate: 16000, n_mels: 20, hop_length: 160, n_mfcc: 13";
  audio_testing::ExpectGolden(
      golden.at("mfcc"), RunOnNumbers("- mfcc: {" + common + "}", "audio", {900}, TestWaveform()),
      "mfcc");
  audio_testing::ExpectGolden(
      golden.at("mfcc_log"),
      RunOnNumbers("- mfcc: {" + common + ", dct_norm: none, log_mels: true}", "audio", {1, 900},
                   TestWaveform()),
      "mfcc_log");
}

TEST(Mfcc, TablesOfManyMegabytesAreRefused) {
  const auto refusal = [](const std::string& params) {
    return Refusal("- mfcc: {out: audio, sample_rate: 16000, " + params + "}", "audio", {900},
                   TestWaveform());
  };
  EXPECT_THAT(refusal("n_fft: 65536, n_mels: 4096, n_mfcc: 4096"), HasSubstr("512"));
  EXPECT_THAT(refusal("n_fft: 400, n_mels: 202"),
              HasSubstr("n_mels 202 is over the 201 frequencies that n_fft 400 gives"));
}

TEST(Mfcc, MoreCoefficientsThanBandsAreRefused) {
  EXPECT_THAT(Refusal("- mfcc: {out: audio, sample_rate: 16000, n_mels: 20, n_mfcc: 21}", "audio",
                      {900}, TestWaveform()),
              AllOf(HasSubstr("test.yaml:4:"), HasSubstr("n_mfcc 21 is over n_mels 20")));
}

}  // namespace
}  // namespace feedwater::server
