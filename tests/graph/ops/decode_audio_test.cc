// decode_audio: files of every kind at one rate, in planes or as their mean; what cannot be is
// said.
#include <gmock/gmock.h>

#include "tests/graph/ops/audio_op_testing.h"

namespace feedwater::server {
namespace {

using namespace audio_op_testing;  // NOLINT: the tests' own words
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using audio_testing::EncodedAudio;
using audio_testing::Sine;

constexpr int kWav = SF_FORMAT_WAV | SF_FORMAT_FLOAT;

absl::StatusOr<Floats> RunOnFile(const std::string& graph, const Bytes& file) {
  TestRecord record;
  record.AddEncoded(file);
  const auto result = RunGraph(graph, record, "[audio]");
  if (!result.ok()) return result.status();
  return As<float>((*result)[0]);
}

std::string FileRefusal(const std::string& graph, const Bytes& file) {
  const auto result = RunOnFile(graph, file);
  EXPECT_TRUE(absl::IsInvalidArgument(result.status())) << result.status();
  return std::string(result.status().message());
}

TEST(DecodeAudio, GivesTheSamplesOfEveryKindOfFile) {
  for (const audio_testing::Kind& kind : audio_testing::kKinds) {
    const Floats sine = Sine(440, 16000, 6000);
    const auto made =
        RunOnFile("- decode_audio: {sample_rate: 16000}\n- crop_audio: {frames: 6000}",
                  EncodedAudio(kind.format, 16000, sine));
    ASSERT_TRUE(made.ok()) << kind.name << made.status();
    for (size_t i = 2000; i < 4000; ++i)
      ASSERT_NEAR((*made)[i], sine[i], std::max(kind.tolerance, 1e-7)) << kind.name << " " << i;
  }
}

TEST(DecodeAudio, AFileOfAnotherRateIsResampledToTheOneThatIsAskedFor) {
  // 44,100 has a table that is made once, 37,111 one of the sample's own.
  for (const int rate : {8000, 44100, 48000, 192000, 37111}) {
    const auto made =
        RunOnFile("- decode_audio: {sample_rate: 16000}\n- crop_audio: {frames: 16000}",
                  EncodedAudio(kWav, rate, Sine(440, rate, rate)));
    ASSERT_TRUE(made.ok()) << rate << made.status();
    const Floats expected = Sine(440, 16000, 16000);
    for (size_t i = 100; i < 15900; ++i) ASSERT_NEAR((*made)[i], expected[i], 2e-3) << rate;
  }
}

TEST(DecodeAudio, ChannelsAreKeptAveragedOrRefused) {
  const Floats wave = {0.5f, -0.25f, 0.125f};
  const Bytes stereo = EncodedAudio(kWav, 8000, wave, 2);
  const std::string crop = "\n- crop_audio: {frames: 3}";
  EXPECT_THAT(*RunOnFile("- decode_audio: {sample_rate: 8000, channels: 2}" + crop, stereo),
              ElementsAre(0.5f, -0.25f, 0.125f, 0.25f, -0.125f, 0.0625f));
  EXPECT_THAT(*RunOnFile("- decode_audio: {sample_rate: 8000, mono: true}" + crop, stereo),
              ElementsAre(0.375f, -0.1875f, 0.09375f));
  EXPECT_THAT(FileRefusal("- decode_audio: {sample_rate: 8000}" + crop, stereo),
              AllOf(HasSubstr("decode_audio"), HasSubstr("WAV of 2 channels, not 1"),
                    HasSubstr("channels: 2, or mono: true")));
}

TEST(DecodeAudio, ALongFileIsRefusedByItsHeader) {
  const std::string graph =
      "- decode_audio: {sample_rate: 8000, max_seconds: 0.5}\n- crop_audio: {frames: 8}";
  EXPECT_TRUE(RunOnFile(graph, EncodedAudio(kWav, 8000, Floats(4000, 0.1f))).ok());
  EXPECT_THAT(FileRefusal(graph, EncodedAudio(kWav, 8000, Floats(4001, 0.1f))),
              HasSubstr("is over max_seconds 0.5"));
  // 2^36 - 1 frames: no memory is asked for.
  Bytes flac = EncodedAudio(SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 16000, TestWaveform());
  flac[21] |= 0x0f;
  for (size_t i = 22; i < 26; ++i) flac[i] = 0xff;
  EXPECT_THAT(FileRefusal(graph, flac), HasSubstr("FLAC of 4.29497e+06 s is over max_seconds 0.5"));
}

TEST(DecodeAudio, AnOpenLengthIsNamedWithItsCureBeforeTheFirstSample) {
  TestRecord record;
  record.AddEncoded({1});
  const auto whole = RunGraph("- decode_audio: {sample_rate: 8000}", record, "[audio]");
  EXPECT_THAT(std::string(whole.status().message()),
              AllOf(HasSubstr("test.yaml:"), HasSubstr("no fixed length (float32[1,?])"),
                    HasSubstr("crop_audio")));
  const auto mel =
      RunGraph("- decode_audio: {sample_rate: 8000}\n- mel_spectrogram: {sample_rate: 8000}",
               record, "[mel]");
  EXPECT_THAT(std::string(mel.status().message()),
              AllOf(HasSubstr("test.yaml:5"), HasSubstr("put crop_audio or random_crop_audio")));
  const auto encoded =
      RunGraph("- crop_audio: {in: data, out: audio, frames: 8}", record, "[audio]");
  EXPECT_THAT(std::string(encoded.status().message()),
              HasSubstr("'- decode_audio: {in: data, out: audio, sample_rate: 16000}'"));
  EXPECT_THAT(std::string(MakePlan(PipelineText("- decode_audio: {sample_rate: 8000, mono: true, "
                                                "channels: 2}",
                                                "[audio]"),
                                   record.fields())
                              .status()
                              .message()),
              HasSubstr("leave out 'channels'"));
}

TEST(DecodeAudio, AudioOfVaryingLengthCanBeAnOutput) {
  TestRecord record;
  record.AddEncoded(EncodedAudio(kWav, 8000, {0.5f, 0.25f}));
  const auto padded = RunGraph("- decode_audio: {sample_rate: 8000, mono: true}", record,
                               "[audio: {pad_to: 4, pad_value: 9}, audio_length]");
  ASSERT_TRUE(padded.ok()) << padded.status();
  EXPECT_THAT(As<float>((*padded)[0]), ElementsAre(0.5f, 0.25f, 9, 9));
  EXPECT_THAT(As<int64_t>((*padded)[1]), ElementsAre(2));
}

TEST(DecodeAudio, ACacheKeepsTheSamples) {
  TestRecord record;
  record.AddEncoded(EncodedAudio(SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 44100, TestWaveform(4000)));
  for (const char* graph :
       {"- decode_audio: {sample_rate: 16000}\n- random_crop_audio: {frames: 500}",
        "- decode_audio: {sample_rate: 16000, mono: true}\n- random_crop_audio: "
        "{frames: 500}"}) {
    const auto plan = MakePlan(PipelineText(graph, "[audio]"), record.fields());
    ASSERT_TRUE(plan.ok()) << plan.status();
    for (int64_t id = 0; id < 3; ++id) {
      const auto whole = RunPlan(**plan, record, id), halves = RunPlanInHalves(**plan, record, id);
      ASSERT_TRUE(whole.ok() && halves.ok()) << whole.status() << halves.status();
      EXPECT_EQ(*whole, *halves);
    }
  }
}

TEST(DecodeAudio, AFileIsDecodedInADecoderProcessWhereImagesAre) {
  TestRecord record;
  record.AddEncoded({1});
  const auto plan = MakePlan(PipelineText("- decode_audio: {sample_rate: 8000}\n- crop_audio: "
                                          "{frames: 8}",
                                          "[audio]"),
                             record.fields());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE((*plan)->decodes());
}

}  // namespace
}  // namespace feedwater::server
