// amplitude_to_db: torchaudio's numbers, and the limit below the largest.
#include <gmock/gmock.h>

#include "tests/graph/ops/audio_op_testing.h"

namespace feedwater::server {
namespace {

using namespace audio_op_testing;  // NOLINT: the tests' own words
using ::testing::HasSubstr;

TEST(AmplitudeToDb, GivesTorchaudiosNumbers) {
  const auto golden = audio_testing::ReadGolden();
  const auto run = [&](const std::string& params, const std::string& from) {
    const audio_testing::Golden& input = golden.at(from);
    return RunOnNumbers("- amplitude_to_db: {" + params + "}", "mel", {input.rows, input.columns},
                        input.numbers);
  };
  audio_testing::ExpectGolden(golden.at("db"), run("top_db: 80", "mel_default"), "db");
  audio_testing::ExpectGolden(golden.at("db_magnitude"), run("stype: magnitude", "mel_slaney"),
                              "db_magnitude");
}

TEST(AmplitudeToDb, PowersOfTenAreTensAndNothingIsBelowTheLimit) {
  const Floats powers = {1, 10, 0.001f, 0, 1e-20f, 100};
  const Floats all = RunOnNumbers("- amplitude_to_db", "mel", {2, 3}, powers);
  const Floats some = RunOnNumbers("- amplitude_to_db: {top_db: 30}", "mel", {2, 3}, powers);
  const Floats expected = {0, 10, -30, -100, -100, 20}, cut = {0, 10, -10, -10, -10, 20};
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_NEAR(all[i], expected[i], 2e-5);
    EXPECT_NEAR(some[i], cut[i], 2e-5);
  }
}

TEST(AmplitudeToDb, AWaveformIsRefused) {
  EXPECT_THAT(Refusal("- amplitude_to_db", "mel", {5}, Floats(5)),
              HasSubstr("takes a spectrogram of [channels, bands, frames]"));
}

}  // namespace
}  // namespace feedwater::server
