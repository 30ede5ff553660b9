// Where the planner cuts a graph for the cache, and that both halves together give the bytes of the
// whole: in another epoch, in another workspace, for every graph.
#include "server/graph/prefix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_join.h"
#include "tests/graph/graph_testing.h"
#include "tests/testing/test_seed.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr const char* kNormalize =
    "- normalize: {mean: [123.675, 116.28, 103.53], std: [58.395, 57.12, 57.375]}";

const std::vector<FieldSpec>& Fields() {
  static const auto* fields = new std::vector<FieldSpec>{
      {"data", kEncodedSpec, ""}, {"label", kLabelSpec, ""}, {"grey", PixelSpec(28, 28, 1), ""}};
  return *fields;
}

PlanPrefix PrefixOf(const std::string& graph, const std::string& outputs = "[image, label]",
                    const std::string& more = "", int64_t classes = 10) {
  const auto plan = MakePlan(PipelineText(graph, outputs, more), Fields(), true, classes);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? (*plan)->prefix() : PlanPrefix();
}

std::vector<std::string> Kept(const PlanPrefix& prefix) {
  std::vector<std::string> kept;
  for (const FieldSpec& field : prefix.fields)
    kept.push_back(absl::StrCat(field.name, " ", field.spec.ToString()));
  return kept;
}

TEST(Prefix, EndsBeforeTheFirstRandomOp) {
  const PlanPrefix prefix =
      PrefixOf(absl::StrCat("- decode\n- resize: {size: 64}\n- random_crop: {size: 56}\n",
                            "- random_horizontal_flip\n", kNormalize));
  EXPECT_THAT(prefix.ops, ElementsAre("decode", "resize"));
  EXPECT_THAT(Kept(prefix), ElementsAre("label int64[]", "image uint8[?,?,3] HWC"));
}

TEST(Prefix, LeavesOutWhatOnlyStoresTheSameInMoreBytes) {
  const PlanPrefix prefix = PrefixOf(absl::StrCat(
      "- decode\n- resize: {size: 64}\n- center_crop: {size: 56}\n", kNormalize, "\n- one_hot"));
  EXPECT_THAT(prefix.ops, ElementsAre("decode", "resize", "center_crop"));
  EXPECT_THAT(Kept(prefix), ElementsAre("label int64[]", "image uint8[56,56,3] HWC"));
  // What makes less of it stays in, and so does what something in the prefix reads.
  EXPECT_THAT(PrefixOf("- cast: {in: label, dtype: uint8}", "[label]").ops, ElementsAre("cast"));
  EXPECT_THAT(
      PrefixOf("- cast: {in: grey, out: image, dtype: float32}\n- center_crop: {size: 20}").ops,
      ElementsAre("cast", "center_crop"));
}

// However large what it makes is.
TEST(Prefix, KeepsWhatIsWorkToMake) {
  EXPECT_THAT(PrefixOf("- center_crop: {in: grey, out: image, size: [1, 2]}\n"
                       "- linear_transformation: {transformation_matrix: [[1, 2], [3, 4]], "
                       "mean_vector: [0, 0]}\n- layout")
                  .ops,
              ElementsAre("center_crop", "linear_transformation"));
  EXPECT_THAT(
      PrefixOf("- decode_audio: {out: audio, sample_rate: 8000, max_seconds: 9}\n"
               "- crop_audio: {in: audio, frames: 8000}\n"
               "- resample: {in: audio, orig_freq: 8000, new_freq: 16000}\n"
               "- mel_spectrogram: {in: audio, out: mel, sample_rate: 16000, n_fft: 400, "
               "hop_length: 20, n_mels: 64}\n"
               "- amplitude_to_db: {in: mel}\n- cast: {in: mel, dtype: float64}",
               "[mel]")
          .ops,
      ElementsAre("decode_audio", "crop_audio", "resample", "mel_spectrogram", "amplitude_to_db"));
}

TEST(Prefix, OfAGraphThatBeginsWithARandomOpIsTheRecordsFields) {
  const PlanPrefix prefix = PrefixOf("- random_crop: {in: grey, out: image, size: 20}");
  EXPECT_THAT(prefix.ops, IsEmpty());
  EXPECT_THAT(Kept(prefix), ElementsAre("label int64[]", "grey uint8[28,28,1] HWC"));
}

TEST(Prefix, KeepsEveryFieldThatSomethingBehindItNeeds) {
  const PlanPrefix prefix = PrefixOf(
      "- decode\n- center_crop: {size: 20, out: small}\n- random_crop: {size: 8, out: a}\n"
      "- random_crop: {in: small, size: 8, out: b}\n- center_crop: {in: small, out: c, size: 4}",
      "[a, b, c, small, position]");
  EXPECT_THAT(Kept(prefix), ElementsAre("label int64[]", "image uint8[?,?,3] HWC",
                                        "small uint8[20,20,3] HWC", "c uint8[4,4,3] HWC"));
}

TEST(Prefix, TakesANumberForTheRecordsOwnOnlyWhereItIsThat) {
  const auto ops = [](const std::string& policy) {
    return PrefixOf("- cast: {in: sample_id, out: id, dtype: int32}\n", "[id]",
                    absl::StrCat("on_bad_sample: ", policy, "\n"))
        .ops;
  };
  EXPECT_THAT(ops("substitute"), ElementsAre("cast"));
  // There it is that of the bad record in whose place this one stands.
  EXPECT_THAT(ops("skip_with_count"), IsEmpty());
}

TEST(Prefix, DoesNotReachBehindAPlaceInTheEpoch) {
  EXPECT_THAT(PrefixOf("- one_hot: {in: position, out: x, num_classes: 4}\n- decode\n"
                       "- cast: {in: x, dtype: uint8}\n- center_crop: {size: 4}",
                       "[image, x]")
                  .ops,
              ElementsAre("decode", "center_crop"));
}

// What such a decode gives depends on the resize behind it.
TEST(Prefix, IsNotCutBetweenADecodeThatScalesAndItsResize) {
  const std::string decode = "- decode: {fast_scale: true}\n";
  for (const char* rest : {"- random_resized_crop: {size: 8}",
                           "- random_resized_crop: {size: 8}\n- random_horizontal_flip",
                           "- random_crop: {size: 60}\n- resize: {size: 20}"}) {
    const PlanPrefix prefix = PrefixOf(decode + rest);
    EXPECT_THAT(prefix.ops, IsEmpty()) << rest;
    EXPECT_THAT(Kept(prefix), ElementsAre("data uint8[?] encoded", "label int64[]")) << rest;
  }
  EXPECT_THAT(PrefixOf(decode + "- resize: {size: 64}\n- random_crop: {size: 8}").ops,
              ElementsAre("decode", "resize"));
  // Where no resize is fused with it, it is as any other.
  EXPECT_THAT(PrefixOf(decode + "- random_crop: {size: 8}").ops, ElementsAre("decode"));
  EXPECT_THAT(PrefixOf(decode + "- random_resized_crop: {size: 8, out: a}\n- random_resized_crop: "
                                "{size: 8, out: b}",
                       "[a, b]")
                  .ops,
              ElementsAre("decode"));
  EXPECT_THAT(PrefixOf(decode + "- random_vertical_flip\n- random_resized_crop: {size: 8}").ops,
              ElementsAre("decode"));
}

// Two pipelines may share what is kept exactly when it is the same: for every pair here it is not.
TEST(Prefix, HasAnotherDigestWhenSomethingElseWouldBeKept) {
  const std::vector<PlanPrefix> prefixes = {
      PrefixOf("- decode\n- random_resized_crop: {size: 8}"),
      PrefixOf("- decode: {orientation: exif}\n- random_resized_crop: {size: 8}"),
      PrefixOf("- decode: {fast_scale: true}\n- resize: {size: 64}\n- random_crop: {size: 8}"),
      PrefixOf("- decode\n- resize: {size: 64}\n- random_crop: {size: 8}"),
      PrefixOf("- decode\n- resize: {size: 65}\n- random_crop: {size: 8}"),
      PrefixOf("- decode\n- resize: {size: 64, interpolation: bicubic}\n- random_crop: {size: 8}"),
      PrefixOf("- decode\n- center_crop: {size: 8}"),
      PrefixOf("- decode\n- random_resized_crop: {size: 8}", "[image, grey]"),
      PrefixOf("- decode\n- random_resized_crop: {size: 8}", "[image]",
               "limits: {max_pixels: 10000}\n"),
      PrefixOf("- decode\n- random_resized_crop: {size: 8}", "[image]", "", 11),
      PrefixOf("- random_crop: {in: grey, out: image, size: 8}"),
  };
  std::set<std::string> digests;
  for (const PlanPrefix& prefix : prefixes) digests.insert(prefix.digest);
  EXPECT_EQ(digests.size(), prefixes.size());
}

TEST(Prefix, HasTheSameDigestWhateverStandsBehindItAndHoweverItIsWritten) {
  const std::string one = PrefixOf("- decode\n- random_resized_crop: {size: 8}").digest;
  EXPECT_EQ(one.size(), 32u);
  EXPECT_EQ(PrefixOf("- decode: {mode: RGB}\n- random_crop: {size: 9, pad_if_needed: true}").digest,
            one);
  EXPECT_EQ(PrefixOf("- decode: {out: x}\n- random_resized_crop: {in: x, out: y, size: 8}\n"
                     "- random_horizontal_flip: {in: y}",
                     "[y]")
                .digest,
            one);
  EXPECT_EQ(
      PrefixOf(absl::StrCat("- one_hot\n- decode\n- random_resized_crop: {size: 8}\n", kNormalize))
          .digest,
      one);
}

// --- bytes

// What RunPrefix leaves, copied as a cache would keep it.
struct KeptCopy {
  std::vector<Bytes> bytes;
  Record record;
};

absl::Status KeepPrefix(const Plan& plan, const Record* from, int64_t id, KeptCopy* kept,
                        int64_t max_field_bytes = 1 << 24) {
  SampleWorkspace workspace;
  SampleInput input;
  input.record = from;
  input.sample_id = id;
  Record made;
  FW_RETURN_IF_ERROR(plan.RunPrefix(input, max_field_bytes, workspace, &made));
  for (const Tensor& field : made.fields) {
    Bytes bytes(field.bytes() + kReadPadding);
    std::memcpy(bytes.data(), field.data, field.bytes());
    kept->bytes.push_back(std::move(bytes));
    kept->record.fields.push_back(
        {field.spec, reinterpret_cast<std::byte*>(kept->bytes.back().data())});
  }
  return absl::OkStatus();
}

SampleInput InputOf(const Record* record, int64_t id, uint64_t epoch) {
  SampleInput input;
  input.record = record;
  input.sample_id = id;
  input.position = id + 1000 * static_cast<int64_t>(epoch);
  input.key = EpochKey(1, epoch);
  return input;
}

// Runs the whole plan and both halves, kept and used at once, and compares.
void ExpectSameBytes(const Plan& plan, TestRecord& record, int64_t id, SampleWorkspace& workspace,
                     int* good) {
  KeptCopy kept;
  const absl::Status prefix = KeepPrefix(plan, record.record(), id, &kept);
  for (uint64_t epoch : {0, 1}) {
    TestBatch whole(plan, 1), halves(plan, 1), at_once(plan, 1);
    const absl::Status expected =
        plan.Run(InputOf(record.record(), id, epoch), 0, whole.memory, workspace);
    if (!prefix.ok()) {
      ASSERT_FALSE(expected.ok()) << prefix;
      continue;
    }
    const absl::Status got =
        plan.RunFromPrefix(InputOf(&kept.record, id, epoch), 0, halves.memory, workspace);
    ASSERT_EQ(got.ok(), expected.ok()) << got << "\n" << expected;
    Record made;
    ASSERT_TRUE(
        plan.RunPrefix(InputOf(record.record(), id, epoch), 1 << 24, workspace, &made).ok());
    const absl::Status again =
        plan.RunFromPrefix(InputOf(&made, id, epoch), 0, at_once.memory, workspace);
    ASSERT_EQ(again.ok(), expected.ok()) << again << "\n" << expected;
    if (!expected.ok()) continue;
    ++*good;
    ASSERT_EQ(halves.Sample(0), whole.Sample(0)) << "epoch " << epoch;
    ASSERT_EQ(at_once.Sample(0), whole.Sample(0)) << "epoch " << epoch;
    ASSERT_TRUE(halves.GuardsHold());
  }
}

// Graphs put together by chance out of every op that can stand in one, so that the cut falls before
// and behind each of them, and into the middle of what would be fused.
std::string DrawGraph(std::mt19937& random) {
  const std::vector<std::string> ops = {
      "- center_crop: {size: 24}",
      "- center_crop: {size: [31, 50], fill: [1, 2, 3]}",
      "- resize: {size: [20, 27]}",
      "- resize: {size: 33}",
      "- resize: {size: 30, max_size: 45, interpolation: bicubic}",
      "- resize: {size: [40, 22], interpolation: nearest}",
      "- resize: {size: [25, 25], interpolation: opencv_linear}",
      "- random_crop: {size: 18, padding: 3, fill: 9}",
      "- random_crop: {size: [20, 12], pad_if_needed: true}",
      "- random_resized_crop: {size: [16, 20]}",
      "- random_horizontal_flip",
      "- random_vertical_flip",
      "- random_horizontal_flip: {p: 1}",
      "- color_jitter: {brightness: 0.3, hue: 0.1}",
      kNormalize,
      "- normalize: {mean: [100], std: [3], dtype: uint8, layout: HWC}",
      "- normalize: {mean: [100], std: [50], dtype: float16, layout: HWC}",
      "- cast: {dtype: float32}",
      "- cast: {dtype: bfloat16}",
      "- layout",
  };
  const size_t count = random() % 6;
  constexpr const char* kDecodes[] = {"- decode", "- decode: {fast_scale: true}",
                                      "- decode: {orientation: exif}",
                                      "- decode: {fast_scale: true, orientation: exif}"};
  std::vector<std::string> graph = {kDecodes[random() % 4]};
  for (size_t i = 0; i < count; ++i) graph.push_back(ops[random() % ops.size()]);
  graph.push_back("- center_crop: {size: [11, 13]}");
  if (random() % 3 == 0) graph.push_back("- random_horizontal_flip: {out: other}\n- one_hot");
  if (random() % 2 == 0) graph.push_back(ops[14 + random() % 6]);
  return absl::StrJoin(graph, "\n");
}

TEST(Prefix, AndTheRestOfAnyGraphGiveTheBytesOfTheWhole) {
  const uint64_t seed = ::feedwater::testing::TestSeed();
  std::mt19937 random(static_cast<uint32_t>(seed));
  const std::vector<Bytes> files = {EncodedImage(97, 131, ".jpg"), EncodedImage(64, 64, ".jpg"),
                                    EncodedImage(31, 45, ".png"),  EncodedImage(120, 33, ".bmp"),
                                    EncodedImage(1, 1, ".png"),    EncodedImage(17, 1, ".jpg")};
  SampleWorkspace workspace;
  int good = 0;
  for (int i = 0; i < 400; ++i) {
    const std::string graph = DrawGraph(random);
    const bool has_other = graph.find("other") != std::string::npos;
    const std::string outputs =
        has_other ? "[image, other, label, position]" : "[image, label, sample_id]";
    for (bool fuse : {true, false}) {
      TestRecord record;
      record.AddEncoded(files[random() % files.size()]).AddLabel(3);
      const auto plan = MakePlan(PipelineText(graph, outputs), record.fields(), fuse);
      if (!plan.ok()) continue;  // some ops do not fit behind others
      SCOPED_TRACE(absl::StrCat("seed ", seed, "\n", graph));
      ExpectSameBytes(**plan, record, static_cast<int64_t>(random() % 1000), workspace, &good);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(good, 300) << "seed " << seed;
}

TEST(Prefix, AndTheRestGiveTheBytesOfTheWholeForStoredPixels) {
  SampleWorkspace workspace;
  int good = 0;
  for (const char* graph :
       {"- random_crop: {size: 32, padding: 4}\n- random_horizontal_flip\n- normalize: {mean: "
        "[125], std: [60]}",
        "- resize: {size: [20, 20]}\n- random_horizontal_flip\n- cast\n- layout",
        "- layout\n- random_horizontal_flip\n- random_crop: {size: 7}\n- cast",
        "- normalize: {mean: [125], std: [60]}", "- cast: {dtype: bool}"}) {
    for (int64_t channels : {1, 3}) {
      TestRecord record;
      record.AddPixels(32, 32, channels, PatternPixels(32, 32, channels)).AddLabel(5);
      const auto plan = MakePlan(PipelineText(graph, "[image, label]"), record.fields());
      ASSERT_TRUE(plan.ok()) << plan.status();
      SCOPED_TRACE(graph);
      for (int64_t id = 0; id < 5; ++id) ExpectSameBytes(**plan, record, id, workspace, &good);
    }
  }
  EXPECT_EQ(good, 5 * 2 * 5 * 2);
}

TEST(Prefix, RefusesWhatIsLargerThanTheCallerKeeps) {
  TestRecord record;
  record.AddEncoded(EncodedImage(40, 50, ".png")).AddLabel(1);
  const auto plan =
      MakePlan(PipelineText("- decode\n- random_resized_crop: {size: 8}", "[image, label]"),
               record.fields());
  ASSERT_TRUE(plan.ok());
  KeptCopy kept;
  EXPECT_TRUE(
      absl::IsResourceExhausted(KeepPrefix(**plan, record.record(), 0, &kept, 40 * 50 * 3 - 1)));
  EXPECT_TRUE(KeepPrefix(**plan, record.record(), 0, &kept, 40 * 50 * 3).ok());
}

TEST(Prefix, DoesNotTakeFieldsThatAreNotItsOwn) {
  TestRecord record;
  record.AddEncoded(EncodedImage(40, 50, ".png")).AddLabel(1);
  const auto plan = MakePlan(
      PipelineText("- decode\n- resize: {size: [9, 9]}\n- random_crop: {size: 8}", "[image]"),
      record.fields());
  ASSERT_TRUE(plan.ok());
  KeptCopy kept;
  ASSERT_TRUE(KeepPrefix(**plan, record.record(), 0, &kept).ok());
  ASSERT_EQ(kept.record.fields.size(), 2u);
  kept.record.fields[1].spec.shape[0] = 8;
  SampleWorkspace workspace;
  TestBatch batch(**plan, 1);
  EXPECT_TRUE(absl::IsDataLoss(
      (*plan)->RunFromPrefix(InputOf(&kept.record, 0, 0), 0, batch.memory, workspace)));
  EXPECT_TRUE(absl::IsDataLoss(
      (*plan)->RunFromPrefix(InputOf(record.record(), 0, 0), 0, batch.memory, workspace)));
}

}  // namespace
}  // namespace feedwater::server
