// Goal: what is valid and probably not meant has a text with its place; what may well be meant has
// none.
#include "server/graph/advice.h"

#include "gmock/gmock.h"

namespace feedwater::server {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> OnMoves(const std::string& graph, const std::string& outputs) {
  const auto spec = ParsePipeline(
      "version: 1\ndataset: {format: coco, root: r, annotations: a}\ngraph:\n  - decode\n" + graph +
          "outputs: " + outputs + "\n",
      "p.yaml");
  EXPECT_TRUE(spec.ok()) << spec.status();
  const std::vector<FieldSpec> fields = {{"data", {DType::kUInt8, Layout::kPlain, {-1}}, ""},
                                         {"boxes", {DType::kFloat32, Layout::kPlain, {-1, 4}}, ""},
                                         {"labels", {DType::kInt64, Layout::kPlain, {-1}}, ""}};
  return spec.ok() ? AdviceOnMoves(*spec, fields) : std::vector<std::string>();
}

std::vector<std::string> OnGraph(const std::string& graph) {
  const auto spec = ParsePipeline(
      "version: 1\ndataset: {format: images, root: r}\ngraph:\n  - decode\n" + graph, "p.yaml");
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.ok() ? AdviceOn(*spec) : std::vector<std::string>();
}

TEST(AdviceOnSolarize, SaysThatAThresholdIsOfBytes) {
  EXPECT_THAT(OnGraph("  - random_solarize: {threshold: 0.5}\n"),
              ElementsAre(AllOf(HasSubstr("p.yaml:5:34"), HasSubstr("`threshold: 127.5`"))));
  // As 0.2 of 0..1 is 51 of 255, and 1 is 255: both are inverted themselves.
  EXPECT_THAT(OnGraph("  - random_solarize: {threshold: 0.2}\n"),
              ElementsAre(HasSubstr("`threshold: 51`")));
  EXPECT_THAT(OnGraph("  - random_solarize: {threshold: 1}\n"),
              ElementsAre(HasSubstr("`threshold: 255`")));
  EXPECT_THAT(OnGraph("  - random_solarize: {threshold: 0}\n"), IsEmpty());
  EXPECT_THAT(OnGraph("  - random_solarize: {threshold: 128}\n"), IsEmpty());
}

TEST(AdviceOnMoves, SaysThatBoxesStayBehindTheirImage) {
  EXPECT_THAT(OnMoves("  - resize: {size: [8, 8]}\n", "[image, boxes]"),
              ElementsAre(AllOf(HasSubstr("p.yaml:5:5"), HasSubstr("`in: [image, boxes]`"))));
  EXPECT_THAT(OnMoves("  - resize: {size: [8, 8]}\n", "[image]"), IsEmpty());
  EXPECT_THAT(OnMoves("  - random_invert\n", "[image, boxes]"), IsEmpty());
  // An op in a combinator, which has the boxes, but moves the image alone.
  const std::string apply = "  - apply: {in: [image, boxes], p: 0.5, ops: [random_horizontal_flip";
  EXPECT_THAT(OnMoves(apply + ": {in: image}]}\n", "[image, boxes]"),
              ElementsAre(HasSubstr("p.yaml:5:5")));
  EXPECT_THAT(OnMoves(apply + "]}\n", "[image, boxes]"), IsEmpty());
}

TEST(AdviceOnMoves, SaysThatLabelsKeepTheRowsOfBoxesThatAreDropped) {
  EXPECT_THAT(
      OnMoves("  - random_iou_crop: {in: [image, boxes]}\n", "[image, boxes, labels]"),
      ElementsAre(AllOf(HasSubstr("p.yaml:5:5"), HasSubstr("`in: [image, boxes, labels]`"))));
  EXPECT_THAT(
      OnMoves("  - random_iou_crop: {in: [image, boxes, labels]}\n", "[image, boxes, labels]"),
      IsEmpty());
  EXPECT_THAT(OnMoves("  - random_iou_crop: {in: [image, boxes]}\n", "[image, boxes]"), IsEmpty());
}

std::vector<std::string> OnAudio(const std::string& graph) {
  const auto spec = ParsePipeline(
      "version: 1\ndataset: {format: csv, root: r}\ngraph:\n" + graph + "outputs: [mel]\n",
      "p.yaml");
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.ok() ? AdviceOn(*spec) : std::vector<std::string>();
}

TEST(AdviceOn, SaysThatASpectrogramTakesTheAudioForOneOfAnotherRate) {
  const std::string decode = "  - decode_audio: {sample_rate: 8000}\n";
  EXPECT_THAT(OnAudio(decode + "  - mel_spectrogram: {sample_rate: 16000, n_mels: 20}\n"),
              ElementsAre(AllOf(HasSubstr("p.yaml:5:5"), HasSubstr("sample_rate is 16000"),
                                HasSubstr("has 8000 Hz"))));
  EXPECT_THAT(OnAudio(decode + "  - resample: {orig_freq: 8000, new_freq: 16000}\n" +
                      "  - mfcc: {sample_rate: 16000, n_mels: 20, n_mfcc: 9}\n"),
              IsEmpty());
  EXPECT_THAT(OnAudio("  - mel_spectrogram: {sample_rate: 16000, n_mels: 20}\n"), IsEmpty());
  // Each value has its own rate, and resample is told one, too.
  const std::string two = decode + "  - resample: {out: high, orig_freq: 8000, new_freq: 16000}\n";
  EXPECT_THAT(OnAudio(two + "  - mel_spectrogram: {in: high, sample_rate: 16000, n_mels: 20}\n"),
              IsEmpty());
  EXPECT_THAT(OnAudio(two + "  - mel_spectrogram: {sample_rate: 16000, n_mels: 20}\n"),
              ElementsAre(AllOf(HasSubstr("sample_rate is 16000"), HasSubstr("has 8000 Hz"))));
  EXPECT_THAT(
      OnAudio(decode + "  - resample: {orig_freq: 44100, new_freq: 16000}\n"),
      ElementsAre(AllOf(HasSubstr("resample: orig_freq is 44100"), HasSubstr("has 8000 Hz"))));
}

TEST(AdviceOn, SaysThatBandsOfASpectrogramAreEmpty) {
  EXPECT_THAT(OnAudio("  - mel_spectrogram: {sample_rate: 16000}\n"),
              ElementsAre(AllOf(HasSubstr("p.yaml:4:5"), HasSubstr("no frequency lies in band"),
                                HasSubstr("of 128"))));
  EXPECT_THAT(OnAudio("  - mel_spectrogram: {sample_rate: 16000, n_fft: 2048}\n"), IsEmpty());
}

TEST(AdviceOn, SaysThatAShorterLastWindowMayEndTheJob) {
  const auto on = [](const char* sampler, const char* overflow) {
    const auto spec = ParsePipeline(
        absl::StrCat("version: 1\ndataset: {format: csv, root: r}\nsampler: {", sampler,
                     "}\nbatch:\n  graph:\n    - pack: {length: 64, samples: 8", overflow,
                     ", out: [tokens, s, p, k]}\noutputs: [tokens, k]\n"),
        "p.yaml");
    EXPECT_TRUE(spec.ok()) << spec.status();
    return spec.ok() ? AdviceOn(*spec) : std::vector<std::string>();
  };
  EXPECT_THAT(on("last: partial", ""),
              ElementsAre(AllOf(HasSubstr("p.yaml:6:"), HasSubstr("`sampler: {last: pad}`"))));
  EXPECT_THAT(on("last: partial", ", overflow: leave_out"), IsEmpty());
  EXPECT_THAT(on("last: pad", ""), IsEmpty());
  EXPECT_THAT(on("shuffle: none", ""), IsEmpty());
}

}  // namespace
}  // namespace feedwater::server
