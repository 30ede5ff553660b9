// resample: torchaudio's numbers, for every channel.
#include <gmock/gmock.h>

#include "tests/graph/ops/audio_op_testing.h"

namespace feedwater::server {
namespace {

using namespace audio_op_testing;  // NOLINT: the tests' own words
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Resample, GivesTorchaudiosNumbersForEveryChannel) {
  const auto golden = audio_testing::ReadGolden();
  Floats two = TestWaveform();
  for (const float x : TestWaveform()) two.push_back(-x);
  const Floats made =
      RunOnNumbers("- resample: {orig_freq: 44100, new_freq: 16000}", "audio", {2, 900}, two);
  const Floats first(made.begin(), made.begin() + 327);
  audio_testing::ExpectGolden(golden.at("resample_44100_16000"), first, "resample");
  for (size_t i = 0; i < 327; ++i) EXPECT_EQ(made[327 + i], -made[i]);
}

TEST(Resample, TheSameRateIsTheSameAudio) {
  EXPECT_EQ(
      RunOnNumbers("- resample: {orig_freq: 8000, new_freq: 8000}", "audio", {900}, TestWaveform()),
      TestWaveform());
}

TEST(Resample, RatesThatDoNotFitAreRefusedWithTheirPlace) {
  EXPECT_THAT(Refusal("- resample: {orig_freq: 191999, new_freq: 96000}", "audio", {4}, Floats(4)),
              AllOf(HasSubstr("test.yaml:4:"), HasSubstr("op 'resample'"),
                    HasSubstr("no large common divisor")));
}

// 4 MiB each: memory that no sample is charged for.
TEST(Resample, TablesOfAllOpsOfAPipelineAreBounded) {
  const std::string op = "resample: {orig_freq: 1000, new_freq: 65521}";
  std::string graph, list;
  for (int i = 0; i < 16; ++i) {
    absl::StrAppend(&graph, "- ", op, "\n- resample: {orig_freq: 64000, new_freq: 1000}\n");
    absl::StrAppend(&list, i == 0 ? "" : ", ", "{", op, "}");
  }
  const auto too_many =
      AllOf(HasSubstr("test.yaml:"), HasSubstr("op '"), HasSubstr("over 64.0 MiB"));
  EXPECT_THAT(Refusal(graph + "- " + op, "audio", {4}, Floats(4)), too_many);
  EXPECT_THAT(Refusal(absl::StrCat("- one_of: {in: audio, ops: [", list, "]}\n- ", op), "audio",
                      {4}, Floats(4)),
              too_many);
  EXPECT_THAT(Refusal(absl::StrCat("- one_of: {in: audio, ops: [", list, ", {", op, "}]}"), "audio",
                      {4}, Floats(4)),
              too_many);
}

}  // namespace
}  // namespace feedwater::server
