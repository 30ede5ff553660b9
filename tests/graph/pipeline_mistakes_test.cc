// Pipeline files with mistakes: each is refused with file, line and column, the wrong name and the
// nearest right one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "absl/strings/match.h"
#include "server/graph/pipeline_spec.h"
#include "server/graph/unknown_field.h"
#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kDataset = "version: 1\ndataset: {format: image_folder, root: r}\n";

struct BadFile {
  const char* name;
  std::string text;
  const char* place;               // "line:column"
  std::vector<const char*> words;  // that the message must have
};

void PrintTo(const BadFile& file, std::ostream* out) { *out << file.name; }

class BadPipeline : public ::testing::TestWithParam<BadFile> {};

TEST_P(BadPipeline, IsRefusedWithThePlaceAndTheWords) {
  const BadFile& file = GetParam();
  const auto spec = ParsePipeline(file.text, "bad.yaml");
  ASSERT_FALSE(spec.ok()) << "was accepted:\n" << file.text;
  EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument) << spec.status();
  const std::string message(spec.status().message());
  EXPECT_THAT(message, StartsWith(absl::StrCat("bad.yaml:", file.place, ": "))) << file.text;
  for (const char* word : file.words) EXPECT_THAT(message, HasSubstr(word));
}

std::string Top(const std::string& more) {
  return absl::StrCat(kDataset, more);
}  // starts at line 3
std::string Graph(const std::string& ops) {
  return absl::StrCat(kDataset, "graph:\n", ops);
}  // starts at line 4

std::string ManyOps(int n) {
  std::string ops;
  for (int i = 0; i < n; ++i) ops += "  - random_horizontal_flip\n";
  return ops;
}

const BadFile kBadFiles[] = {
    // The file as a whole.
    {"Empty", "", "1:1", {}},
    {"AList", "- a\n- b\n", "1:1", {"map", "a list"}},
    {"AWord", "hello\n", "1:1", {"map"}},
    {"OpenBracket", "version: 1\ngraph: [\n", "2:8", {"'['", "add its ']'"}},
    {"TabIndent", "version: 1\ndataset:\n\tformat: x\n", "3:1", {"tab", "use blanks"}},
    {"DuplicateKey", "version: 1\nversion: 1\n", "2:1", {"version"}},
    {"Anchor",
     "version: 1\ndataset: &a {format: image_folder}\n",
     "2:10",
     {"anchor", "write the value out"}},
    {"Alias", "version: 1\ndataset: *a\n", "2:10", {"alias", "write the value out"}},
    {"CacheIsAWord",
     Top("cache: decoded\n"),
     "3:8",
     {"'cache' takes a map such as {kind: decoded}"}},
    {"CacheIsASize", Top("cache: 8GiB\n"), "3:8", {"{ram: 8GiB}"}},
    {"SamplerIsAWord", Top("sampler: full\n"), "3:10", {"{shuffle: full}", "not 'full'"}},
    {"SamplerIsAnotherWord", Top("sampler: pad\n"), "3:10", {"{last: pad}"}},
    {"BatchIsANumber", Top("batch: 64\n"), "3:8", {"{size: 64}", "not '64'"}},
    {"LimitsIsANumber", Top("limits: 100\n"), "3:9", {"{max_pixels: 100}"}},
    {"AnOpIsANumber", Top("graph: [resize: 256]\n"), "3:17", {"op 'resize'", "{size: 256}"}},
    {"AnOpIsAList", Top("graph: [center_crop: [4, 4]]\n"), "3:22", {"{size: [4, 4]}"}},
    {"AnUnknownOpIsANumber", Top("graph: [resise: 256]\n"), "3:9", {"did you mean 'resize'"}},
    {"UnknownWord",
     Top("cache: {kind: byte}\n"),
     "3:15",
     {"'kind' must be auto, none, bytes, coefficients or decoded, not 'byte', did you mean "
      "'bytes'?"}},
    {"Tag", "version: 1\ndataset: !!map {format: image_folder}\n", "2:10", {"tag"}},
    {"TwoDocuments", "version: 1\n---\nversion: 1\n", "2:1", {}},
    // Top-level keys.
    {"NoVersion", "dataset: {format: image_folder}\n", "1:1", {"version"}},
    {"NoDataset", "version: 1\n", "1:1", {"dataset"}},
    {"Version2", "version: 2\ndataset: {format: image_folder}\n", "1:10", {"must be 1", "'2'"}},
    {"VersionList",
     "version: [1]\ndataset: {format: image_folder}\n",
     "1:10",
     {"version", "a list"}},
    {"VersionBeforeKeys", "new_key: 5\nversion: 3\n", "2:10", {"'3'"}},
    {"UnknownKey", Top("threads: {}\n"), "3:1", {"threads", "Known", "batch"}},
    {"MisspeltKey", Top("outptus: [image]\n"), "3:1", {"outptus", "did you mean 'outputs'"}},
    {"MisspeltSampler", Top("smapler: {}\n"), "3:1", {"did you mean 'sampler'"}},
    {"DatasetWord", "version: 1\ndataset: imagenet\n", "2:10", {"dataset", "map"}},
    {"MixWithFormat",
     "version: 1\ndataset: {format: a, mix: [{format: a}]}\n",
     "2:19",
     {"either 'format' or 'mix'"}},
    {"MixInAMix", "version: 1\ndataset: {mix: [{mix: []}]}\n", "2:23", {"a mix inside a mix"}},
    {"MixOfNothing", "version: 1\ndataset: {mix: []}\n", "2:16", {"1 to 64"}},
    {"MixWeight",
     "version: 1\ndataset: {mix: [{format: a, weight: 0}]}\n",
     "2:37",
     {"'weight'", "positive"}},
    {"MixStop", "version: 1\ndataset: {mix: [{format: a}], stop: x}\n", "2:37", {"'stop'", "all"}},
    {"DatasetNoFormat", "version: 1\ndataset: {root: r}\n", "2:10", {"format"}},
    {"DatasetFormatList", "version: 1\ndataset: {format: [a]}\n", "2:19", {"format", "word"}},
    // Sampler.
    {"SamplerKey", Top("sampler: {shufle: full}\n"), "3:11", {"shufle", "did you mean 'shuffle'"}},
    {"SamplerWord", Top("sampler: {shuffle: ful}\n"), "3:20", {"ful", "did you mean 'full'"}},
    {"SamplerSeed", Top("sampler: {seed: -1}\n"), "3:17", {"seed", "-1"}},
    {"SamplerList", Top("sampler: [full]\n"), "3:10", {"sampler", "map"}},
    {"SamplerLast", Top("sampler: {last: keep}\n"), "3:17", {"last", "keep", "drop"}},
    // Batch.
    {"BatchNumber", Top("batch: 256\n"), "3:8", {"batch", "size"}},
    {"BatchZero", Top("batch: {size: 0}\n"), "3:15", {"size", "between 1 and", "0"}},
    {"BatchNegative", Top("batch: {size: -4}\n"), "3:15", {"size", "-4"}},
    {"BatchHuge", Top("batch: {size: 99999999999}\n"), "3:15", {"size", "99999999999"}},
    {"BatchText", Top("batch: {size: many}\n"), "3:15", {"size", "integer", "many"}},
    {"BatchFraction", Top("batch: {size: 2.5}\n"), "3:15", {"integer", "2.5"}},
    {"BatchKey", Top("batch: {sizes: 4}\n"), "3:9", {"sizes", "did you mean 'size'"}},
    {"BatchGraphWord", Top("batch: {graph: mixup}\n"), "3:16", {"list"}},
    {"BatchGraphSampleOp",
     Top("batch: {graph: [{resize: {size: 4}}]}\n"),
     "3:18",
     {"resize", "single samples", "'graph'"}},
    {"BatchGraphUnknown",
     Top("batch: {graph: [{mixpu: {}}]}\n"),
     "3:18",
     {"mixpu", "did you mean 'mixup'"}},
    {"BatchGraphOneField",
     Top("batch: {graph: [{mixup: {in: image}}]}\n"),
     "3:30",
     {"mixup", "2 fields"}},
    {"MixupAlphaZero", Top("batch: {graph: [{mixup: {alpha: 0}}]}\n"), "3:33", {"alpha"}},
    // Outputs, policy, limits.
    {"OutputsWord", Top("outputs: image\n"), "3:10", {"outputs", "list"}},
    {"OutputsEmpty", Top("outputs: []\n"), "3:10", {"outputs", "empty"}},
    {"OutputsTwice", Top("outputs: [image, label, image]\n"), "3:25", {"image", "twice"}},
    {"OutputsMap", Top("outputs: [{a: b}]\n"), "3:15", {"output 'a'", "max_rows"}},
    {"OutputsTwoKeys", Top("outputs: [{a: {max_rows: 3}, b: }]\n"), "3:11", {"2 keys"}},
    {"OutputsBadKey", Top("outputs: [{im-age: {max_rows: 3}}]\n"), "3:12", {"im-age"}},
    {"OutputsUnknownKey", Top("outputs: [{a: {max_row: 3}}]\n"), "3:16", {"'max_rows'"}},
    {"OutputsNoRows", Top("outputs: [{a: {max_rows: 0}}]\n"), "3:26", {"max_rows", "0"}},
    {"OutputsTwiceAsMap", Top("outputs: [a, {a: {max_rows: 3}}]\n"), "3:14", {"twice"}},
    {"OutputsBothBounds",
     Top("outputs: [{a: {max_rows: 3, pad_to: 3}}]\n"),
     "3:15",
     {"max_rows and pad_to"}},
    {"OutputsPadValueTooLarge",
     Top("outputs: [{boxes: {pad_to: 3, pad_value: 1e300}}]\n"),
     "3:42",
     {"pad_value"}},
    {"OutputsPadValueAlone",
     Top("outputs: [{a: {pad_value: 3}}]\n"),
     "3:15",
     {"pad_value without pad_to"}},
    {"OutputsBadName", Top("outputs: [im-age]\n"), "3:11", {"im-age"}},
    {"PolicyWord", Top("on_bad_sample: skip\n"), "3:16", {"on_bad_sample", "skip", "substitute"}},
    {"PolicyNear", Top("on_bad_sample: substitue\n"), "3:16", {"did you mean 'substitute'"}},
    {"PolicyMap", Top("on_bad_sample: {}\n"), "3:16", {"on_bad_sample"}},
    {"FractionWord", Top("max_bad_fraction: few\n"), "3:19", {"max_bad_fraction", "number", "few"}},
    {"FractionPercent", Top("max_bad_fraction: 5\n"), "3:19", {"max_bad_fraction", "5", "1"}},
    {"FractionNegative", Top("max_bad_fraction: -0.1\n"), "3:19", {"max_bad_fraction"}},
    {"LimitsKey",
     Top("limits: {max_pixel: 5}\n"),
     "3:10",
     {"max_pixel", "did you mean 'max_pixels'"}},
    {"LimitsZero", Top("limits: {max_pixels: 0}\n"), "3:22", {"max_pixels", "0"}},
    {"LimitsText", Top("limits: {max_scans: lots}\n"), "3:21", {"max_scans", "lots"}},
    {"LimitsList", Top("limits: [1]\n"), "3:9", {"limits", "map"}},
    // Entries of the graph.
    {"GraphMap", Top("graph: {decode: {}}\n"), "3:8", {"graph", "list"}},
    {"GraphNumber", Top("graph: 5\n"), "3:8", {"graph", "list"}},
    {"EntryList", Graph("  - [decode]\n"), "4:5", {"an op such as"}},
    {"EntryEmpty", Graph("  - decode\n  - ~\n"), "5:5", {"an op such as"}},
    {"UnknownOp", Graph("  - resise: {size: 5}\n"), "4:5", {"resise", "did you mean 'resize'"}},
    {"NoColonBehindAnOp",
     Graph("  - decode {in: data}\n"),
     "4:5",
     {"':' is missing behind 'decode'"}},
    {"UnknownOpWord", Graph("  - decod\n"), "4:5", {"decod", "did you mean 'decode'"}},
    {"BesideInsteadOfBelow",
     Graph("  - resize:\n    size: 5\n"),
     "5:5",
     {"size", "beside 'resize'", "indent"}},
    {"TwoOpsInOneEntry",
     Graph("  - {decode: {}, resize: {size: 4}}\n"),
     "4:18",
     {"resize", "beside 'decode'"}},
    {"BatchOpInGraph", Graph("  - mixup: {}\n"), "4:5", {"mixup", "whole batches", "batch"}},
    {"OpTakesAMap", Graph("  - resize: 256\n"), "4:13", {"resize", "map"}},
    {"TooManyOps", Graph(ManyOps(257)), "4:3", {"257", "256"}},
    {"UnknownParam",
     Graph("  - resize: {size: 5, interpolate: nearest}\n"),
     "4:23",
     {"interpolate", "did you mean 'interpolation'"}},
    {"MissingParam", Graph("  - resize: {interpolation: nearest}\n"), "4:13", {"resize", "'size'"}},
    {"MissingParamNoMap", Graph("  - resize\n"), "4:5", {"resize", "'size'"}},
    {"InMap", Graph("  - decode: {in: {a: b}}\n"), "4:18", {"in"}},
    {"InEmpty", Graph("  - decode: {in: []}\n"), "4:18", {"in", "empty"}},
    {"InTwo", Graph("  - decode: {in: [data, other]}\n"), "4:18", {"decode", "1 field", "2"}},
    {"InTwice", Graph("  - resize: {in: [a, a], size: 5}\n"), "4:22", {"'a'", "twice"}},
    {"OutTooMany", Graph("  - decode: {out: [a, b]}\n"), "4:19", {"1 field", "2"}},
    {"OutBadName", Graph("  - decode: {out: 2image}\n"), "4:19", {"2image"}},
    {"OutOwnField", Graph("  - decode: {out: sample_id}\n"), "4:19", {"sample_id", "Feedwater"}},
    // Parameters of ops.
    {"SizeZero", Graph("  - resize: {size: 0}\n"), "4:20", {"size", "0"}},
    {"SizeHuge", Graph("  - resize: {size: [4, 99999]}\n"), "4:20", {"size", "99999"}},
    {"SizeThree",
     Graph("  - center_crop: {size: [1, 2, 3]}\n"),
     "4:25",
     {"size", "[height, width]", "3"}},
    {"SizeText", Graph("  - center_crop: {size: big}\n"), "4:25", {"size", "big"}},
    {"SizeSecondZero", Graph("  - resize: {size: [4, 0]}\n"), "4:20", {"size", "0"}},
    {"InterpolationWord",
     Graph("  - resize: {size: 5, interpolation: bilinaer}\n"),
     "4:38",
     {"interpolation", "did you mean 'bilinear'"}},
    {"MaxSizeSmall",
     Graph("  - resize: {size: 5, max_size: 5}\n"),
     "4:13",
     {"max_size", "greater", "5"}},
    {"MaxSizeWithPair",
     Graph("  - resize: {size: [5, 6], max_size: 7}\n"),
     "4:13",
     {"max_size", "one number"}},
    {"ScaleReversed",
     Graph("  - random_resized_crop: {size: 5, scale: [1.0, 0.1]}\n"),
     "4:43",
     {"scale", "low <= high"}},
    {"ScaleOver",
     Graph("  - random_resized_crop: {size: 5, scale: [0.1, 1.5]}\n"),
     "4:43",
     {"scale", "1.5"}},
    {"RatioZero",
     Graph("  - random_resized_crop: {size: 5, ratio: [0, 1]}\n"),
     "4:43",
     {"ratio", "0"}},
    {"ProbabilityOver",
     Graph("  - random_horizontal_flip: {p: 1.5}\n"),
     "4:33",
     {"'p'", "between 0 and 1", "1.5"}},
    {"ProbabilityNan", Graph("  - random_horizontal_flip: {p: nan}\n"), "4:33", {"'p'", "nan"}},
    {"MeanTwo",
     Graph("  - normalize: {mean: [1, 2], std: [1]}\n"),
     "4:16",
     {"mean", "1 or 3", "2"}},
    {"StdZero", Graph("  - normalize: {mean: [0], std: [0]}\n"), "4:33", {"std"}},
    {"DtypeWord",
     Graph("  - normalize: {mean: [0], std: [1], dtype: float23}\n"),
     "4:45",
     {"dtype", "did you mean 'float32'"}},
    {"LayoutWord", Graph("  - layout: {layout: CWH}\n"), "4:22", {"layout", "CWH", "CHW"}},
    {"PaddingThree",
     Graph("  - random_crop: {size: 5, padding: [1, 2, 3]}\n"),
     "4:37",
     {"padding", "3"}},
    {"PaddingNegative",
     Graph("  - random_crop: {size: 5, padding: -1}\n"),
     "4:37",
     {"padding", "-1"}},
    {"JitterNegative",
     Graph("  - color_jitter: {brightness: -0.5}\n"),
     "4:32",
     {"brightness", "-0.5"}},
    {"HueOver", Graph("  - color_jitter: {hue: 0.7}\n"), "4:25", {"hue", "0.5", "not 0.7"}},
    {"ClassesZero", Graph("  - one_hot: {num_classes: 0}\n"), "4:28", {"num_classes", "0"}},
    {"OrientationWord", Graph("  - decode: {orientation: yes}\n"), "4:27", {"orientation", "exif"}},
};

INSTANTIATE_TEST_SUITE_P(Files, BadPipeline, ::testing::ValuesIn(kBadFiles),
                         [](const auto& info) { return std::string(info.param.name); });

// Mistakes that show only when the names are resolved.
class BadGraph : public ::testing::TestWithParam<BadFile> {};

TEST_P(BadGraph, IsRefusedByThePlanWithThePlaceAndTheWords) {
  const BadFile& file = GetParam();
  const auto spec = ParsePipeline(file.text, "bad.yaml");
  ASSERT_TRUE(spec.ok()) << spec.status();
  const std::vector<FieldSpec> fields = {{"data", graph_testing::kEncodedSpec, ""},
                                         {"label", graph_testing::kLabelSpec, ""},
                                         {"wide", graph_testing::PixelSpec(8, 8, 4), ""},
                                         {"small", graph_testing::PixelSpec(8, 8, 1), ""},
                                         {"boxes", {DType::kFloat32, Layout::kPlain, {-1, 4}}, ""},
                                         {"tokens", {DType::kUInt16, Layout::kPlain, {-1}}, ""},
                                         {"grid", {DType::kUInt16, Layout::kPlain, {-1, -1}}, ""}};
  const auto plan = Plan::Create(*spec, fields, /*classes=*/0);
  ASSERT_FALSE(plan.ok()) << "was accepted:\n" << file.text;
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument) << plan.status();
  const std::string message(plan.status().message());
  EXPECT_THAT(message, StartsWith(absl::StrCat("bad.yaml:", file.place, ": "))) << file.text;
  for (const char* word : file.words) EXPECT_THAT(message, HasSubstr(word));
  // By which the catalogue, which may know a cure, recognises it.
  EXPECT_EQ(IsUnknownField(plan.status()), absl::StrContains(message, " unknown field '"));
}

const BadFile kBadGraphs[] = {
    {"UnknownInput", Graph("  - decode: {in: dat}\n"), "4:18", {"dat", "did you mean 'data'"}},
    {"NotYetWritten", Graph("  - resize: {size: 5}\n  - decode\n"), "4:5", {"resize", "'image'"}},
    {"EncodedIntoResize", Graph("  - resize: {in: data, size: 5}\n"), "4:18", {"decode", "data"}},
    {"LabelIntoDecode", Graph("  - decode: {in: label}\n"), "4:18", {"encoded file", "int64"}},
    {"ResizeAfterNormalize",
     Graph("  - decode\n  - normalize: {mean: [0], std: [1]}\n  - resize: {size: [4, 4]}\n"),
     "6:5",
     {"before", "normalize"}},
    {"FourChannels", Graph("  - center_crop: {in: wide, size: 4}\n"), "4:23", {"channels", "wide"}},
    {"MeanOfThreeOnGrey",
     Graph("  - normalize: {in: small, mean: [1, 2, 3], std: [1]}\n"),
     "4:5",
     {"normalize", "3", "1 channel"}},
    {"NoClasses", Graph("  - one_hot\n"), "4:5", {"one_hot", "num_classes"}},
    {"CropLargerThanKnownImage",
     Graph("  - random_crop: {in: small, size: 9}\n"),
     "4:5",
     {"random_crop", "smaller", "pad_if_needed"}},
    {"TwoInterpolationsOneField",
     Graph("  - resize: {in: small, size: 4, interpolation: [nearest, nearest]}\n"),
     "4:5",
     {"interpolation", "2"}},
    {"ResultOverMaxPixels",
     Top("limits: {max_pixels: 99}\noutputs: [x]\ngraph: [center_crop: {in: small, out: x, size: "
         "10}]\n"),
     "5:9",
     {"center_crop", "10x10", "max_pixels (99)"}},
    {"UnknownOutput",
     Top("outputs: [imge]\ngraph: [decode]\n"),
     "3:11",
     {"imge", "did you mean 'image'"}},
    {"NoImageByDefault", Top("graph: []\n"), "1:1", {"outputs", "'image'"}},
    {"NoFixedSize",
     Top("outputs: [label, image]\ngraph: [decode]\n"),
     "3:18",
     {"'image' has no fixed size", "resize with size [h, w]", "center_crop",
      "random_resized_crop"}},
    {"NoFixedSizeBehindAResizeOfOneNumber",
     Top("graph: [decode, resize: {size: 256}, random_horizontal_flip]\n"),
     "3:32",
     {"'image' has no fixed size", "size: 256 keeps the aspect ratio", "size: [256, 256]",
      "center_crop"}},
    {"EncodedOutput", Top("outputs: [data]\n"), "3:11", {"'data'", "decode", "max_rows"}},
    {"BoundOfFixedRows",
     Top("outputs: [{label: {max_rows: 3}}]\n"),
     "3:11",
     {"'label' is int64[]", "max_rows"}},
    {"PaddingOfFixedRows",
     Top("outputs: [{small: {pad_to: 3}}]\n"),
     "3:11",
     {"'small'", "pad_to", "differs"}},
    {"PaddingThatDoesNotFit",
     Top("outputs: [{tokens: {pad_to: 3, pad_value: -1}}]\n"),
     "3:11",
     {"'tokens'", "pad_value -1 is no uint16"}},
    {"LengthOfFixedRows", Top("outputs: [label_length]\n"), "3:11", {"label_length"}},
    {"LengthWithABound", Top("outputs: [{boxes_length: {max_rows: 3}}]\n"), "3:11", {"one number"}},
    {"RaggedIntoABatchOp",
     Top("outputs: [label]\nbatch: {graph: [{mixup: {in: [boxes, label], num_classes: 4}}]}\n"),
     "4:31",
     {"'boxes' has no fixed shape"}},
    {"TwoVaryingAxes", Top("outputs: [grid]\n"), "3:11", {"'grid' has no fixed shape"}},
    {"DeadOpsAreCheckedToo",
     Top("outputs: [label]\ngraph: [resize: {in: nothing, size: 4}]\n"),
     "4:22",
     {"nothing"}},
    {"BatchOpUnknownField",
     Top("outputs: [label]\nbatch: {graph: [{mixup: {in: [small, lable], num_classes: 4}}]}\n"),
     "4:38",
     {"lable", "did you mean 'label'"}},
    {"BatchOpNoFixedSize",
     Top("outputs: [label]\ngraph: [decode]\nbatch: {graph: [{mixup: {num_classes: 4}}]}\n"),
     "5:18",
     {"'image' has no fixed size"}},
    {"BatchOpNoClasses",
     Top("outputs: [label]\nbatch: {graph: [{mixup: {in: [small, label]}}]}\n"),
     "4:18",
     {"num_classes"}},
};

INSTANTIATE_TEST_SUITE_P(Graphs, BadGraph, ::testing::ValuesIn(kBadGraphs),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(PipelineMistakes, AMutatedFileIsReadOrRefusedWithAPlace) {
  // 20,000 files, each a few edits away from a good one: bytes changed, dropped, doubled, words of
  // the file put elsewhere. Whatever is accepted must also survive planning.
  const std::string good = graph_testing::PipelineText(
      "- decode\n- random_resized_crop: {size: [24, 20], scale: [0.1, 1.0]}\n- random_crop: {size: "
      "12, padding: 4}\n"
      "- color_jitter: {hue: 0.1}\n- normalize: {mean: [1, 2, 3], std: [4.5]}\n- one_hot: {out: y, "
      "num_classes: 4}",
      "[image, label, y]",
      "batch: {size: 8, graph: [{mixup: {alpha: 0.2}}]}\nlimits: {max_scans: 5}\n");
  const std::vector<FieldSpec> fields = {{"data", graph_testing::kEncodedSpec, ""},
                                         {"label", graph_testing::kLabelSpec, ""}};
  ASSERT_TRUE(ParsePipeline(good, "m.yaml").ok());
  std::mt19937 random(7);
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text = good;
    for (int edit = 1 + static_cast<int>(random() % 3); edit > 0; --edit) {
      const size_t at = random() % text.size(), length = 1 + random() % 9,
                   from = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = static_cast<char>(random() & 0xff);
          break;
        case 1:
          text.erase(at, length);
          break;
        case 2:
          text.insert(at, text.substr(from, length));
          break;
        case 3:
          text.insert(at, 1, "[]{}:,-0 \n#&*!'\""[random() % 16]);
          break;
      }
      if (text.empty()) text = " ";
    }
    const auto spec = ParsePipeline(text, "m.yaml");
    const absl::Status status = spec.ok() ? Plan::Create(*spec, fields, 4).status() : spec.status();
    accepted += status.ok();
    if (status.ok()) continue;
    ASSERT_EQ(status.code(), absl::StatusCode::kInvalidArgument)
        << "round " << round << ": " << status << "\n"
        << text;
    ASSERT_THAT(std::string(status.message()), StartsWith("m.yaml:")) << "round " << round << "\n"
                                                                      << text;
  }
  EXPECT_GT(accepted, 100) << "the edits are too coarse to test what follows reading";
}

}  // namespace
}  // namespace feedwater::server
