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

TEST(AdviceOnNormalize, SaysThatAStdIsOfPixelsFrom0To1) {
  EXPECT_THAT(
      OnGraph("  - normalize: {mean: [123.675, 116.28, 103.53], std: [0.229, 0.224, 0.225]}\n"),
      ElementsAre(AllOf(HasSubstr("p.yaml:5:5"), HasSubstr("std looks like that"),
                        HasSubstr("`std: [58.395, 57.12, 57.375]`"))));
  EXPECT_THAT(OnGraph("  - normalize: {mean: [0], std: [1]}\n"), IsEmpty());
  EXPECT_THAT(OnGraph("  - normalize: {mean: [127.5], std: [255]}\n"), IsEmpty());
}

TEST(AdviceOn, SaysThatAResultIsReplacedUnread) {
  EXPECT_THAT(
      OnGraph("  - resize: {out: a, size: 8}\n  - resize: {out: a, size: 9}\n"),
      ElementsAre(AllOf(HasSubstr("p.yaml:6:5"), HasSubstr("'a'"), HasSubstr("p.yaml:5:5"))));
  EXPECT_THAT(OnGraph("  - resize: {size: 8}\n  - random_invert\n"), IsEmpty());
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

TEST(AdviceOnMoves, SaysThatAMaskStaysBehindItsImage) {
  const std::string decode = "  - decode: {in: data, out: mask, mode: index}\n";
  const std::string crop = "  - random_resized_crop: {in: image, size: [8, 8]}\n";
  const std::string sizes = "  - resize: {in: mask, size: [8, 8]}\n";
  EXPECT_THAT(OnMoves(decode + crop + sizes, "[image, mask]"),
              ElementsAre(AllOf(HasSubstr("p.yaml:6:5"), HasSubstr("`in: [image, mask]`"))));
  EXPECT_THAT(OnMoves(decode + crop, "[image]"), IsEmpty());
  // Both whole, or together.
  EXPECT_THAT(OnMoves(decode + sizes + "  - resize: {size: [8, 8]}\n", "[image, mask]"), IsEmpty());
  EXPECT_THAT(OnMoves(decode + "  - random_crop: {in: [image, mask], size: 8}\n", "[image, mask]"),
              IsEmpty());
  EXPECT_THAT(OnMoves(decode + "  - random_invert: {in: image}\n" + sizes, "[image, mask]"),
              IsEmpty());
}

TEST(AdviceOnMoves, SaysThatAnOpForgetsBoxesThatMoveAtAnother) {
  const std::string all = "[image, boxes, labels]";
  const std::string flip = "  - random_horizontal_flip: {p: 1}\n",
                    resize = "  - resize: {in: [image, boxes, labels], size: [8, 8]}\n",
                    invert = "  - random_invert\n";
  EXPECT_THAT(OnMoves(flip + resize, all),
              ElementsAre(AllOf(HasSubstr("p.yaml:5:5"), HasSubstr("at p.yaml:6:5"),
                                HasSubstr("`in: [image, boxes]`"))));
  EXPECT_THAT(OnMoves(resize + flip, all), ElementsAre(HasSubstr("p.yaml:6:5")));
  EXPECT_THAT(OnMoves(invert + resize + invert, all), IsEmpty());
  // Another picture, made of the same one.
  EXPECT_THAT(OnMoves(resize + "  - resize: {in: image, out: small, size: 4}\n",
                      "[image, small, boxes, labels]"),
              IsEmpty());
  // Under another name it is still the boxes' picture.
  EXPECT_THAT(OnMoves("  - random_horizontal_flip: {in: image, out: turned}\n"
                      "  - resize: {in: [turned, boxes, labels], size: 4}\n",
                      "[turned, boxes, labels]"),
              ElementsAre(HasSubstr("p.yaml:5:5")));
  // And labels, at a later op.
  EXPECT_THAT(
      OnMoves(resize + "  - random_iou_crop: {in: [image, boxes]}\n", all),
      ElementsAre(AllOf(HasSubstr("p.yaml:6:5"), HasSubstr("`in: [image, boxes, labels]`"))));
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

TEST(AdviceOn, SaysThatDecibelsAreThoseOfAMagnitude) {
  const std::string mel =
      "  - mel_spectrogram: {out: mel, sample_rate: 16000, n_mels: 20, power: 1}\n";
  EXPECT_THAT(OnAudio(mel + "  - amplitude_to_db: {in: mel}\n"),
              ElementsAre(AllOf(HasSubstr("p.yaml:5:5"), HasSubstr("`stype: magnitude`"))));
  EXPECT_THAT(OnAudio(mel + "  - amplitude_to_db: {in: mel, stype: magnitude}\n"), IsEmpty());
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
