// What a plan says that a sample takes, worked out by hand; and that what samples really allocate
// stays within it.
#include "server/graph/sample_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <utility>

#include "server/base/sanitized.h"
#include "server/codec/decode_need.h"
#include "server/codec/jpeg_artefacts.h"
#include "server/graph/workspace.h"
#include "tests/audio/audio_testing.h"
#include "tests/graph/graph_testing.h"
#include "tests/graph/sample_need.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int64_t kMegabyte = 1'000'000;

const std::vector<FieldSpec> kFields = {
    {"data", kEncodedSpec, ""}, {"label", kLabelSpec, ""}, {"rgb", PixelSpec(100, 200, 3), ""}};

std::shared_ptr<const Plan> PlanOf(const std::string& graph, const std::string& outputs,
                                   const std::string& more = "") {
  const auto plan = MakePlan(PipelineText(graph, outputs, more), kFields);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *plan : nullptr;
}

// --- three pipelines by hand

TEST(SampleMemory, PixelsOfAKnownSizeThatGoStraightToTheirPlaceTakeNothing) {
  const auto plan = PlanOf("- random_crop: {in: rgb, out: image, size: 32}\n- cast", "[image]");
  const SampleMemory& memory = plan->memory(SampleWay::kWhole);
  EXPECT_FALSE(memory.depends_on_record);
  EXPECT_LT(memory.fixed, 1 << 20);  // rows under way
  EXPECT_EQ(memory.fixed, memory.most);
}

TEST(SampleMemory, ATrainingPipelineKnowsNothingBeforeItsImagesButTheirBound) {
  const auto plan = PlanOf("- decode\n- random_resized_crop: {size: 224}\n- random_horizontal_flip",
                           "[image, label]", "limits: {max_pixels: 1000000}\n");
  const SampleMemory& memory = plan->memory(SampleWay::kWhole);
  EXPECT_TRUE(memory.depends_on_record);
  EXPECT_EQ(memory.fixed, 0);
  EXPECT_GE(memory.most, MostDecodeBytes(kMegabyte));
  EXPECT_LT(memory.most,
            MostDecodeBytes(kMegabyte) + RowBytes({kMegabyte, 1}, {224, 224}) + kMegabyte);
  EXPECT_THAT(memory.Sum(), StartsWith("rows of decode#1+random_resized_crop#2+"
                                       "random_horizontal_flip#3 at most "));
}

// A text's size is known with its record, and the plan says the most; so in a combinator.
TEST(SampleMemory, TextsOfAnySizeAreCountedWithTheirOwn) {
  const std::string op =
      "tokenize: {tokenizer: gpt2.json, max_length: 64, truncation: right, dtype: int32, "
      "pad_token: \"<|endoftext|>\", max_bytes: 2000000}";
  const TensorSpec text{DType::kUInt8, Layout::kPlain, {-1}};
  const auto plan =
      MakePlan(PipelineText(absl::StrCat("- ", op), "[tokens]"), {{"text", text, ""}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto need = [&](int64_t bytes) {
    TestRecord record;
    record.Add("text", text, text.WithRows(bytes), Bytes(static_cast<size_t>(bytes), 'a'));
    SampleInput input;
    input.record = record.record();
    SampleWorkspace workspace;
    return (*plan)->NeedOf(input, SampleWay::kWhole, workspace).bytes;
  };
  const SampleMemory& memory = (*plan)->memory(SampleWay::kWhole);
  EXPECT_TRUE(memory.depends_on_record);
  EXPECT_GE(memory.most, need(2 * kMegabyte));
  EXPECT_GE(need(2 * kMegabyte), 8 * kMegabyte);
  EXPECT_LT(memory.fixed, kMegabyte);
  EXPECT_GE(memory.Claim(), need(100'000)) << "ordinary texts are within what is set aside";
}

TEST(SampleMemory, FieldsThatAreAliveTogetherAddUpAndOthersShare) {
  // Forty images of 108 MB, all read by what comes last; the chain before them takes turns.
  std::string graph = "- decode\n";
  for (int i = 0; i < 40; ++i)
    absl::StrAppend(&graph, "- resize: {in: image, out: a", i, ", size: [6000, 6000]}\n");
  std::string outputs = "[b0";
  for (int i = 0; i < 40; ++i) {
    absl::StrAppend(&graph, "- center_crop: {in: a", i, ", out: b", i, ", size: 8}\n");
    if (i > 0) absl::StrAppend(&outputs, ", b", i);
  }
  // center_crop fuses with the resize that only it reads, but not behind an op that looks at the
  // whole image.
  std::string jittered = graph;
  for (size_t at = 0; (at = jittered.find("- center_crop: {in: a", at)) != std::string::npos;) {
    const size_t number = at + 21, end = jittered.find(',', number);
    const std::string name = absl::StrCat("a", jittered.substr(number, end - number));
    jittered.insert(at, absl::StrCat("- random_equalize: {in: ", name, ", out: ", name, "}\n"));
    at = jittered.find("- center_crop", at) + 1;
  }
  const auto plan = PlanOf(jittered, absl::StrCat(outputs, "]"));
  const SampleMemory& memory = plan->memory(SampleWay::kWhole);
  // The forty.
  const int64_t one = 6000LL * 6000 * 3;
  EXPECT_GE(memory.fixed, 40 * one);
  EXPECT_LT(memory.fixed, 41 * one);
  EXPECT_THAT(memory.Sum(), HasSubstr("resize#2+random_equalize#42 103.0 MiB"));
  EXPECT_THAT(memory.Sum(), HasSubstr(" more "));
  EXPECT_THAT(memory.Sum(), HasSubstr(" at most "));

  // One after the other they need two.
  std::string chain = "- resize: {in: rgb, out: image, size: [6000, 6000]}\n";
  for (int i = 0; i < 40; ++i) absl::StrAppend(&chain, "- resize: {size: [6000, 6000]}\n");
  const auto turns = PlanOf(absl::StrCat(chain, "- center_crop: {size: 8}"), "[image]");
  EXPECT_GE(turns->memory(SampleWay::kWhole).fixed, 2 * one);
  EXPECT_LT(turns->memory(SampleWay::kWhole).fixed, 3 * one);
}

TEST(SampleMemory, BatchOpsCountOneSampleOfTheirLargestField) {
  const std::string crop = "- resize: {in: rgb, out: image, size: [1000, 1000]}\n- cast";
  const auto without = PlanOf(crop, "[image, label]");
  const auto with =
      PlanOf(absl::StrCat(crop, "\n- one_hot"), "[image, label]", "batch: {graph: [mixup]}\n");
  const int64_t more =
      with->memory(SampleWay::kWhole).fixed - without->memory(SampleWay::kWhole).fixed;
  EXPECT_EQ(more, GrowingBuffer::Capacity(4 * 3 * kMegabyte));
}

TEST(SampleMemory, WhatACacheKeepsIsThereTwice) {
  const auto plan = PlanOf(
      "- resize: {in: rgb, out: image, size: [1000, 1000]}\n- random_crop: {size: 8}", "[image]");
  EXPECT_LT(plan->memory(SampleWay::kWhole).fixed, 2 * kMegabyte);
  EXPECT_GE(plan->memory(SampleWay::kKeeping).fixed, 6 * kMegabyte);
  EXPECT_LT(plan->memory(SampleWay::kFromPrefix).fixed, 2 * kMegabyte);
}

TEST(SampleMemory, WarpsCountTheirDisplacements) {
  // Two planes of floats, and some rows of them.
  const auto plan =
      PlanOf("- resize: {in: rgb, out: image, size: [1000, 1000]}\n- elastic_transform: {alpha: 9}",
             "[image]");
  const int64_t planes = 2 * 4 * kMegabyte, images = 3 * kMegabyte;
  EXPECT_GE(plan->memory(SampleWay::kWhole).fixed, planes + images);
  EXPECT_LT(plan->memory(SampleWay::kWhole).fixed, planes + images + 2 * kMegabyte);
}

TEST(SampleMemory, WhatJpegLeavesInTheCodecCountsBesideTheScratchOfOthers) {
  const auto fixed = [](const std::string& op) {
    return PlanOf(absl::StrCat("- ", op, "\n- gaussian_blur: {kernel_size: 255}"), "[image]")
        ->memory(SampleWay::kWhole)
        .fixed;
  };
  EXPECT_EQ(fixed("jpeg: {in: rgb, out: image, quality: 50}"),
            fixed("median_blur: {in: rgb, out: image}") + NeedOfJpegArtefacts({200, 100}, 3));
}

// The decoder keeps its own for the next image.
TEST(SampleMemory, WhatJpegLeavesInTheCodecCountsBesideTheDecoder) {
  const auto need = [](const std::string& op) {
    TestRecord record;
    record.AddEncoded(EncodedImage(100, 200, ".jpg"));
    const auto plan = MakePlan(
        PipelineText(absl::StrCat("- decode\n- ", op, "\n- center_crop: {size: 8}"), "[image]"),
        record.fields());
    return plan.ok() ? NeedOf(**plan, record) : 0;
  };
  EXPECT_EQ(need("jpeg: {quality: 50}"),
            need("gaussian_noise") + NeedOfJpegArtefacts({200, 100}, 3));
}

// Where the op leaves the result's size open.
TEST(SampleMemory, RowsThatAreResampledCountWithTheLongestResult) {
  TestRecord record;
  record.AddPixels(1, 100'000, 3, Bytes(300'000));
  const auto rows = [&](const std::string& ops) {
    const auto plan = MakePlan(PipelineText(absl::StrCat("- ", ops, "\n- center_crop: {size: 1}"),
                                            "[image]", "limits: {max_pixels: 200000}\n"),
                               record.fields());
    EXPECT_TRUE(plan.ok()) << plan.status();
    const int64_t need = NeedOf(**plan, record);
    EXPECT_LE((*plan)->memory(SampleWay::kWhole).fixed, need);
    return need;
  };
  const int64_t twice = RowBytes({100'000, 1}, {200'000, 2}),
                bound = RowBytes({100'000, 1}, {200'000, 1});
  EXPECT_NEAR(rows("scale_jitter: {target_size: [2, 20000], scale_range: [1, 10]}"), twice,
              1 << 21);
  const int64_t short_side = rows("random_short_side: {min_size: [2, 1]}");
  EXPECT_GE(short_side, twice);
  EXPECT_LT(short_side, twice + twice / 4);
  EXPECT_NEAR(rows("random_short_side: {min_size: [2, 1], max_size: 4000}"),
              RowBytes({100'000, 1}, {4000, 2}), 1 << 21);
  // Behind an image of open size.
  const std::string jitter = "scale_jitter: {target_size: [1, 32768], scale_range: [0.1, 4]}\n";
  EXPECT_GE(rows(jitter + "- random_equalize\n- resize: {size: 1}"), bound);
  EXPECT_GE(rows(jitter + "- random_equalize\n- random_short_side: {min_size: [1]}"), bound);
  EXPECT_GE(rows(jitter + "- random_equalize\n- random_horizontal_flip\n- random_equalize"),
            CopiedRowBytes({200'000, 1}));
}

TEST(SampleMemory, AMaskOfOpenSizeHasItsBoundToo) {
  TestRecord record;
  record.Add("image", PixelSpec(-1, -1, 3), PixelSpec(10, 10, 3), PatternPixels(10, 10, 3));
  const TensorSpec mask{DType::kInt32, Layout::kPlain, {10, 10}};
  record.Add("mask", OpenSpec(DType::kInt32, {-1, -1}), mask, Bytes(400));
  const auto plan =
      MakePlan(PipelineText("- random_resize: {in: [image, mask], min_size: 9, max_size: 12}\n"
                            "- center_crop: {in: [image, mask], size: 8}",
                            "[image, mask]", "limits: {max_pixels: 1000000}\n"),
               record.fields());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_GE((*plan)->memory(SampleWay::kWhole).most, (3 + 4) * kMegabyte);
}

TEST(SampleMemory, BoxesCountAsManyRowsAsTheRecordHas) {
  // Through two ops, each of which may drop some.
  const TensorSpec spec{DType::kFloat32, Layout::kPlain, {-1, 4}};
  const auto need = [&](int64_t rows) {
    TestRecord record;
    record.AddPixels(10, 10, 3, PatternPixels(10, 10, 3));
    record.Add("boxes", spec, spec.WithRows(rows), Bytes(static_cast<size_t>(rows) * 16));
    const auto plan = MakePlan(PipelineText("- random_horizontal_flip: {in: [image, boxes]}\n"
                                            "- random_rotation: {in: [image, boxes], degrees: 9}\n"
                                            "- center_crop: {in: [image, boxes], size: 8}",
                                            "[image, boxes_length]"),
                               record.fields());
    EXPECT_TRUE(plan.ok()) << plan.status();
    SampleInput input;
    input.record = record.record();
    SampleWorkspace workspace;
    return (*plan)->NeedOf(input, SampleWay::kWhole, workspace).bytes;
  };
  // 16 bytes a row in two buffers at least, and 20 in scratch. Buffers grow in whole blocks, which
  // these numbers of rows fill.
  constexpr int64_t kRows = 1 << 20;
  const int64_t more = need(2 * kRows) - need(kRows);
  EXPECT_GE(more, (2 * 16 + 20) * kRows);
  EXPECT_LT(more, (3 * 16 + 20) * kRows * 2);
}

// Of texts, boxes and audio of open size.

TEST(SampleMemory, WhatIsMadeOfATextIsAskedForWithEachRecord) {
  const TensorSpec text = OpenSpec(DType::kUInt8, {-1});
  const auto plan =
      MakePlan(PipelineText("- cast: {in: text, out: numbers, dtype: float64}", "[numbers_length]"),
               {{"text", text, ""}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE((*plan)->memory(SampleWay::kWhole).depends_on_record);
  EXPECT_LT((*plan)->memory(SampleWay::kWhole).fixed, kMegabyte);
  TestRecord record;
  record.Add("text", text, text.WithRows(kMegabyte), Bytes(kMegabyte));
  EXPECT_GE(NeedOf(**plan, record), 8 * kMegabyte);
}

// Where the image is of a known size, and the flipped boxes go straight to the batch.
TEST(SampleMemory, ScratchForBoxesIsAskedForWithEachRecord) {
  const TensorSpec boxes = OpenSpec(DType::kFloat32, {-1, 4});
  for (const char* op : {"random_horizontal_flip: {in: [image, boxes]}",
                         "random_rotation: {in: [image, boxes], degrees: 9}",
                         "apply: {in: [image, boxes], p: 1, ops: [random_vertical_flip]}",
                         "random_iou_crop: {in: [image, boxes]}\n- center_crop: {size: 8}"}) {
    TestRecord record;
    record.AddPixels(10, 10, 3, PatternPixels(10, 10, 3));
    record.Add("boxes", boxes, boxes.WithRows(100'000), Bytes(1'600'000));
    const auto plan =
        MakePlan(PipelineText(absl::StrCat("- ", op), "[image, boxes: {max_rows: 200000}]"),
                 record.fields());
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_TRUE((*plan)->memory(SampleWay::kWhole).depends_on_record) << op;
    EXPECT_GE(NeedOf(**plan, record), 2'000'000) << op;
  }
}

TEST(SampleMemory, CopiesOfOpenFieldsAreAsLargeAsTheirMost) {
  // Both crops are alive with what is made of them.
  const auto crops = PlanOf(
      "- resize: {in: rgb, out: crops, size: [1000, 1000]}\n"
      "- one_of: {in: crops, ops: [five_crop: {size: 1000}, five_crop: {size: 999}]}\n"
      "- cast: {in: crops, out: wide, dtype: float64}\n"
      "- python: {name: f, in: [wide, crops], shape: [1], dtype: float64}",
      "[wide]");
  EXPECT_FALSE(crops->memory(SampleWay::kWhole).depends_on_record);
  EXPECT_GE(crops->memory(SampleWay::kWhole).fixed, 15 * kMegabyte * (1 + 8));
  EXPECT_LT(crops->memory(SampleWay::kWhole).fixed, 15 * kMegabyte * (3 + 8));

  // Audio is no mask of max_pixels.
  const std::string decode = "- decode_audio: {out: audio, sample_rate: 16000, max_seconds: 100, ";
  for (const std::string& graph :
       {absl::StrCat(decode, "channels: 2}\n- cast: {in: audio, dtype: float64}\n"),
        absl::StrCat(decode,
                     "channels: 2}\n- apply: {in: audio, p: 1, ops: [cast: {dtype: "
                     "float64}, cast: {dtype: int32}]}\n")}) {
    const auto audio =
        PlanOf(absl::StrCat(graph,
                            "- cast: {in: audio, dtype: float32}\n- crop_audio: {in: audio, "
                            "frames: 16000}"),
               "[audio]", "limits: {max_pixels: 1000}\n");
    constexpr int64_t kNumbers = 2 * 16000 * 100, kScratch = 32 << 20;
    const SampleMemory& memory = audio->memory(SampleWay::kWhole);
    EXPECT_FALSE(memory.depends_on_record) << graph;
    EXPECT_GE(memory.fixed, (4 + 8) * kNumbers) << graph;
    EXPECT_LT(memory.fixed, 4 * 8 * kNumbers + kScratch) << graph;
  }
}

// --- what is really taken

int64_t ResidentBytes(const std::string& key) {  // VmRSS, VmHWM
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(key + ":", 0) == 0) return 1024 * std::stoll(line.substr(key.size() + 1));
  }
  return -1;
}

struct Measured {
  int64_t need = 0, taken = 0, left = 0;
};

// `small`: so that the libraries are there already.
Measured Measure(const std::string& text, TestRecord record, TestRecord small) {
  mallopt(M_MMAP_THRESHOLD, 1 << 20);  // what is freed is gone
  const auto plan = MakePlan(text, record.fields());
  EXPECT_TRUE(plan.ok()) << plan.status();
  if (!plan.ok()) return {};
  SampleInput input;
  input.record = record.record();
  TestBatch batch(**plan, 1);
  SampleInput first;
  first.record = small.record();
  SampleWorkspace warm, workspace;
  EXPECT_TRUE((*plan)->Run(first, 0, batch.memory, warm).ok());
  Measured measured;
  measured.need = (*plan)->NeedOf(input, SampleWay::kWhole, workspace).bytes;
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << "5";  // the peak begins anew
  const int64_t before = ResidentBytes("VmRSS");
  const absl::Status run = (*plan)->Run(input, 0, batch.memory, workspace);
  EXPECT_TRUE(run.ok()) << run;
  measured.taken = ResidentBytes("VmHWM") - before;
  measured.left = ResidentBytes("VmRSS") - before;
  return measured;
}

Measured Measure(const std::string& graph, Bytes file, const Bytes& warm_up) {
  TestRecord record, small;
  record.AddEncoded(std::move(file));
  small.AddEncoded(Bytes(warm_up));
  return Measure(PipelineText(graph, "[image]"), std::move(record), std::move(small));
}

TEST(SampleMemory, NoSampleTakesMoreThanItsNeed) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's own memory counts, too";
  constexpr int64_t kCode = 2 << 20;  // pages of libraries that are touched for the first time
  const std::string crop = "- center_crop: {size: 8}";
  for (const char* extension : {".jpg", ".png", ".bmp", ".webp", ".tiff", ".ppm"}) {
    for (const std::string& graph :
         {absl::StrCat("- decode\n", crop), absl::StrCat("- decode: {orientation: exif}\n", crop),
          absl::StrCat("- decode\n- color_jitter: {brightness: 0.5}\n", crop),
          absl::StrCat("- decode\n- resize: {size: [900, 700], interpolation: opencv_linear}\n",
                       crop),
          absl::StrCat(
              "- decode\n- resize: {size: 1200}\n- random_horizontal_flip\n- color_jitter\n",
              crop)}) {
      const Measured measured =
          Measure(graph, EncodedImage(1100, 1500, extension), EncodedImage(64, 64, extension));
      EXPECT_LE(measured.taken, measured.need + kCode) << extension << "\n" << graph;
      EXPECT_LT(measured.need, 70 * kMegabyte) << extension << "\n" << graph;
    }
  }
}

TEST(SampleMemory, NoMaskOfIndicesTakesMoreThanItsNeed) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's own memory counts, too";
  const Bytes labels(2000 * 3000, 3);
  const Bytes file = EncodedPixels({labels.data(), {3000, 2000}, 1}, ".png");
  const Bytes small = EncodedPixels({labels.data(), {30, 20}, 1}, ".png");
  for (const std::string rest : {"", "- resize: {size: 1200}\n", "- random_invert\n"}) {
    const Measured measured =
        Measure("- decode: {mode: index}\n" + rest + "- center_crop: {size: 8}", file, small);
    EXPECT_LE(measured.taken, measured.need + (2 << 20)) << rest;
    EXPECT_LT(measured.need, 40 * kMegabyte) << rest;
  }
}

TEST(SampleMemory, NoLongRowTakesMoreThanItsNeed) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's own memory counts, too";
  constexpr int64_t kCode = 2 << 20, kKept = 4 << 20;
  const auto measure = [&](const std::string& ops) {
    const auto image = [](int64_t width) {
      TestRecord record;
      const TensorSpec open = PixelSpec(-1, -1, 3), spec = PixelSpec(1, width, 3);
      record.Add("image", open, spec, PatternPixels(1, width, 3));
      return record;
    };
    return Measure(PipelineText(absl::StrCat("- ", ops, "\n- center_crop: {size: 1}"), "[image]",
                                "limits: {max_pixels: 1048576}\n"),
                   image(1'000'000), image(1000));
  };
  const Measured resized =
      measure("scale_jitter: {target_size: [1, 32768], scale_range: [31, 32]}\n- random_equalize");
  EXPECT_LE(resized.taken, resized.need + kCode);
  EXPECT_GE(resized.taken, 100 * kMegabyte);
  EXPECT_LE(resized.left, 4 * kMegabyte + kKept + kCode) << "the image, and little of its rows";
  const Measured flipped =
      measure("random_horizontal_flip: {p: 1}\n- random_equalize\n- random_iou_crop");
  EXPECT_LE(flipped.taken, flipped.need + kCode);
  for (const char* before : {"", "random_grayscale: {p: 1}\n- "}) {
    const std::string ops =
        absl::StrCat(before, "normalize: {mean: [0], std: [1]}\n- random_erasing");
    const Measured converted = measure(ops);
    EXPECT_GE(converted.need, 12 * kMegabyte + CopiedRowBytes({1'000'000, 1})) << ops;
    EXPECT_LE(converted.taken, converted.need + kCode) << ops;
  }
}

TEST(SampleMemory, NoAudioTakesMoreThanItsNeed) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's own memory counts, too";
  constexpr int64_t kCode = 2 << 20;
  const auto wave = [](int frames) { return audio_testing::TestWaveform(frames); };
  for (const audio_testing::Kind& kind : audio_testing::kKinds) {
    const bool is_flac = (kind.format & SF_FORMAT_TYPEMASK) == SF_FORMAT_FLAC;
    const int channels = is_flac ? 8 : 2, rate = 48000;
    const Measured measured = Measure(
        absl::StrCat("- decode_audio: {out: image, sample_rate: 16000, max_seconds: 10, channels: ",
                     channels, "}\n- crop_audio: {in: image, frames: 8}"),
        audio_testing::EncodedAudio(kind.format, rate, wave(10 * rate), channels),
        audio_testing::EncodedAudio(kind.format, rate, wave(rate / 10), channels));
    EXPECT_LE(measured.taken, measured.need + kCode) << kind.name;
    EXPECT_LT(measured.need, 64 * kMegabyte) << kind.name;
  }
}

TEST(SampleMemory, AudioIsCountedWithItsLongestFileAndWithWhatACacheKeeps) {
  const auto plan = PlanOf(
      "- decode_audio: {out: audio, sample_rate: 16000, max_seconds: 100}\n"
      "- random_crop_audio: {in: audio, frames: 16000}",
      "[audio]");
  constexpr int64_t kAudio = 4 * 16000 * 100, kScratch = 32 << 20;
  const SampleMemory& whole = plan->memory(SampleWay::kWhole);
  EXPECT_EQ(whole.fixed, whole.most) << "no image's header is waited for";
  EXPECT_GE(whole.most, kAudio);
  EXPECT_LT(whole.most, kAudio + kScratch);
  const SampleMemory& keeping = plan->memory(SampleWay::kKeeping);
  EXPECT_GE(keeping.most, 2 * kAudio);
  EXPECT_LT(keeping.most, 2 * kAudio + kScratch);
}

TEST(SampleMemory, AFieldOfUnknownSizeIsCountedFromTheHeader) {
  const std::string graph = "- decode\n- random_equalize\n- layout\n- center_crop: {size: 8}";
  const Bytes tiny = EncodedImage(64, 64, ".jpg");
  const int64_t small = Measure(graph, EncodedImage(100, 100, ".jpg"), tiny).need,
                large = Measure(graph, EncodedImage(1000, 3000, ".jpg"), tiny).need;
  EXPECT_GE(large - small, 2 * 9 * kMegabyte);  // the image that is looked at, and the planes
  EXPECT_LT(large - small, 2 * 9 * kMegabyte + 8 * kMegabyte);
}

TEST(SampleMemory, BuffersOfAnotherPlanGoWhereBothWouldBeTooMuch) {
  const auto plan_of = [](int first, int second) {
    return PlanOf(absl::StrCat("- resize: {in: rgb, out: image, size: [", first, ", 1000]}\n",
                               "- random_equalize\n- resize: {size: [", second,
                               ", 1000]}\n- random_equalize\n", "- center_crop: {size: 8}"),
                  "[image]");
  };
  TestRecord record;
  record.Add("data", kEncodedSpec, {DType::kUInt8, Layout::kEncoded, {4}}, Bytes(4))
      .AddLabel(1)
      .Add("rgb", PixelSpec(100, 200, 3), PixelSpec(100, 200, 3), Bytes(100 * 200 * 3));
  SampleInput input;
  input.record = record.record();
  SampleWorkspace workspace;
  const auto capacity = [&] {
    int64_t sum = 0;
    for (const GrowingBuffer& buffer : workspace.impl()->buffers) sum += buffer.capacity();
    return sum;
  };
  int64_t room = 0;
  for (const auto& plan : {plan_of(4000, 100), plan_of(100, 4000), plan_of(4000, 100)}) {
    const int64_t need = plan->NeedOf(input, SampleWay::kWhole, workspace).bytes;
    room = std::max(room, need);
    workspace.Fit(room);
    TestBatch batch(*plan, 1);
    ASSERT_TRUE(plan->Run(input, 0, batch.memory, workspace).ok());
    EXPECT_LE(capacity(), room);
  }
  workspace.GiveBack();
  EXPECT_EQ(capacity(), 0);
}

}  // namespace
}  // namespace feedwater::server
