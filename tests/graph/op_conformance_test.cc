// What every registered op must do, whoever wrote it: documentation on everything, an example that
// runs, errors that name the parameter and its place, a plan that its Run keeps, the same bytes
// from every thread, and no harm from the smallest inputs. A new op is found through the registry;
// nothing is to be added here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/graph/op_schema.h"
#include "server/graph/op_spec.h"
#include "tests/audio/audio_testing.h"
#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::HasSubstr;

class OpConformance : public ::testing::TestWithParam<std::string> {
 protected:
  const OpEntry& entry() const { return *Registry<OpEntry>::Get().Find(GetParam()); }

  // A pipeline around the op's example, with every kind of field that an op may ask for.
  std::string ExamplePipeline() const {
    const std::string outputs = absl::StrCat("[", Outputs(), "]");
    if (!entry().is_batch_op) return PipelineText(entry().example, outputs);
    return PipelineText("", outputs, absl::StrCat("batch:\n  graph:\n  ", entry().example, "\n"));
  }
  // What the example writes, cut to a fixed size where the op leaves it open.
  std::string Outputs() const {
    const auto list = ParseYaml(entry().example, "example");
    const auto ops = ReadOps(*list, entry().is_batch_op);
    EXPECT_TRUE(ops.ok()) << ops.status();
    std::string names;
    for (const std::string& name : ops->at(0).out)
      absl::StrAppend(&names, names.empty() ? "" : ", ", name);
    return names;
  }
  bool NeedsDecode() const {
    return entry().inputs[0].layouts == std::vector<Layout>{Layout::kEncoded};
  }

  bool DecodesAudio() const { return NeedsDecode() && entry().outputs[0].field == "audio"; }
  // What settles a size that the op leaves open.
  std::string Crop() const {
    return DecodesAudio() ? "\n- crop_audio: {frames: 8}" : "\n- center_crop: {size: 8}";
  }
  std::string CroppedPipeline() const {
    return PipelineText(absl::StrCat(entry().example, Crop()),
                        DecodesAudio() ? "[audio]" : "[image]");
  }
  void AddNumbers(const std::string& name, const Shape& shape, TestRecord* record) const {
    const TensorSpec spec{DType::kFloat32, Layout::kPlain, shape};
    Bytes bytes(static_cast<size_t>(*spec.ByteSize()));
    const auto numbers = audio_testing::TestWaveform(static_cast<int>(bytes.size() / 4));
    std::memcpy(bytes.data(), numbers.data(), bytes.size());
    record->Add(name, spec, spec, std::move(bytes));
  }

  // Fields for the op's inputs: images of `height` x `width` pixels, a label of 1, a box around it
  // all, a waveform of two channels, a spectrogram, a text, and one as ids.
  TestRecord MakeRecord(int64_t height, int64_t width, int64_t channels) const {
    TestRecord record;
    if (DecodesAudio()) {
      record.AddEncoded(audio_testing::EncodedAudio(
          SF_FORMAT_WAV | SF_FORMAT_PCM_16, 22050,
          audio_testing::TestWaveform(static_cast<int>(height * width))));
    } else if (NeedsDecode()) {
      record.AddEncoded(EncodedImage(static_cast<int>(height), static_cast<int>(width), ".png"));
    } else {
      Bytes pixels = PatternPixels(height, width, channels);
      for (uint8_t& v : pixels) v = static_cast<uint8_t>(v / 2 + 60);  // with room to be stretched
      record.AddPixels(height, width, channels, std::move(pixels));
    }
    record.AddLabel(1);
    AddNumbers("audio", {2, height * width}, &record);
    AddNumbers("mel", {2, height, width}, &record);
    const float box[4] = {0, 0, static_cast<float>(width), static_cast<float>(height)};
    Bytes corners(sizeof(box));
    std::memcpy(corners.data(), box, sizeof(box));
    const TensorSpec boxes{DType::kFloat32, Layout::kPlain, {-1, 4}},
        labels{DType::kInt64, Layout::kPlain, {-1}};
    record.Add("boxes", boxes, boxes.WithRows(1), corners);
    record.Add("labels", labels, labels.WithRows(1), Bytes(sizeof(int64_t)));
    const TensorSpec text{DType::kUInt8, Layout::kPlain, {-1}};
    record.Add("text", text, text.WithRows(5), {'a', ' ', 't', 'e', 'x'});
    constexpr int64_t kTokens = 16;
    const TensorSpec tokens{DType::kInt64, Layout::kPlain, {kTokens}},
        mask{DType::kBool, Layout::kPlain, {kTokens}};
    record.Add("tokens", tokens, tokens, Bytes(kTokens * sizeof(int64_t), 1));
    record.Add("mask", mask, mask, {1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
    return record;
  }

  // decode and the like leave the size open; a crop behind them settles it.
  std::shared_ptr<const Plan> PlanFor(const TestRecord& record) const {
    auto plan = MakePlan(ExamplePipeline(), record.fields());
    if (!plan.ok() && absl::StrContains(plan.status().message(), "no fixed "))
      plan = MakePlan(CroppedPipeline(), record.fields(), false);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan.ok() ? *plan : nullptr;
  }

  // A batch of `size` samples with ids 0, 1, ...; batch ops run at the end.
  absl::StatusOr<std::vector<std::vector<Bytes>>> RunBatch(const Plan& plan, TestRecord& record,
                                                           int64_t size) const {
    SampleWorkspace workspace;
    TestCaller caller;
    workspace.UseCaller(&caller, nullptr);
    TestBatch batch(plan, size);
    const Record* const fields = record.record();
    for (int64_t k = 0; k < size; ++k) {
      SampleInput input;
      input.record = fields;
      input.sample_id = k;
      input.key = EpochKey(9, 0);
      FW_RETURN_IF_ERROR(plan.Run(input, k, batch.memory, workspace));
    }
    FW_RETURN_IF_ERROR(plan.FinishBatch(size, 4, EpochKey(9, 0), batch.memory, workspace));
    EXPECT_TRUE(batch.GuardsHold()) << "written behind an output";
    std::vector<std::vector<Bytes>> samples;
    for (int64_t k = 0; k < size; ++k) samples.push_back(batch.Sample(k));
    return samples;
  }
};

TEST_P(OpConformance, EverythingIsDocumented) {
  const OpEntry& op = entry();
  EXPECT_FALSE(op.summary.empty());
  EXPECT_EQ(op.summary.back(), '.') << op.summary;
  EXPECT_FALSE(op.cost.empty());
  EXPECT_EQ(op.cost.back(), '.') << op.cost;
  EXPECT_FALSE(op.example.empty());
  EXPECT_FALSE(op.inputs.empty());
  EXPECT_FALSE(op.outputs.empty());
  for (const Port& port : op.inputs) {
    EXPECT_FALSE(port.doc.empty());
    EXPECT_FALSE(port.field.empty()) << "an input needs the name of a field to take by default";
  }
  for (const Port& port : op.outputs) EXPECT_FALSE(port.doc.empty());
  for (const ParamInfo& param : op.params) {
    EXPECT_FALSE(param.doc.empty()) << param.name;
    EXPECT_EQ(param.doc.back(), '.') << param.name << ": " << param.doc;
    EXPECT_FALSE(param.type.empty()) << param.name;
    EXPECT_FALSE(param.json_type.empty()) << param.name;
  }
  EXPECT_NE(op.is_batch_op, op.create != nullptr);
  EXPECT_EQ(op.is_batch_op || (op.is_free && !op.is_combinator()), op.create_batch != nullptr);
  EXPECT_NE(op.randomness, op.is_batch_op ? Randomness::kPerSample : Randomness::kPerBatch)
      << "an op draws for what it works on: a sample or a batch";
}

// The image's colour in a mask would be a class.
TEST_P(OpConformance, AColourForImagesIsNotThatOfTheirMasks) {
  const auto has = [&](absl::string_view name) {
    return std::any_of(entry().params.begin(), entry().params.end(),
                       [&](const ParamInfo& param) { return param.name == name; });
  };
  if (entry().is_joint) {
    EXPECT_EQ(has("fill"), has("mask_fill"));
  }
}

// Which jobs are isolated is decided by the ops of `graph` (Plan::decodes), so that none may hide
// in another one.
TEST_P(OpConformance, FilesAreDecodedByOpsOfTheGraphAlone) {
  if (entry().is_batch_op) return;
  const std::vector<Layout>& layouts = entry().inputs[0].layouts;
  const bool takes_files =
      std::find(layouts.begin(), layouts.end(), Layout::kEncoded) != layouts.end();
  // tokenize reads text by code of its own.
  EXPECT_EQ(entry().DecodesFiles(), takes_files && entry().name != "tokenize");
  const auto plan = PlanFor(MakeRecord(40, 44, 3));
  ASSERT_NE(plan, nullptr);
  EXPECT_EQ(plan->decodes(), entry().DecodesFiles());
  if (!entry().DecodesFiles()) return;
  const auto ops = ReadOps(*ParseYaml(entry().example, "example"), /*is_batch=*/false);
  ASSERT_TRUE(ops.ok()) << ops.status();
  std::string params;
  for (const auto& [name, value] : ops->at(0).params.entries)
    absl::StrAppend(&params, name.scalar, ": ", value.scalar, ", ");
  const std::string inner = absl::StrCat("{", entry().name, ": {", params, "}}");
  for (const std::string& graph :
       {absl::StrCat("- apply: {in: data, p: 1, ops: [", inner, "]}"),
        absl::StrCat("- one_of: {in: data, ops: [", inner, "]}"),
        absl::StrCat("- some_of: {in: data, n: 1, ops: [", inner, "]}"),
        absl::StrCat("- repeat: {in: data, times: 1, ops: [", inner, "]}")}) {
    const auto refused = ParsePipeline(PipelineText(graph, "[data]"), "test.yaml");
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("'graph' before this")) << graph;
  }
}

TEST_P(OpConformance, ItHasATestOfItsOwn) {
  const std::string test = "tests/graph/ops/" + GetParam() + "_test.cc";
  EXPECT_TRUE(std::filesystem::exists(std::filesystem::path(FEEDWATER_SOURCE_DIR) / test))
      << "write " << test;
}

TEST_P(OpConformance, TheExampleRuns) {
  TestRecord record = MakeRecord(40, 44, 3);
  const auto plan = PlanFor(record);
  ASSERT_NE(plan, nullptr);
  const auto samples = RunBatch(*plan, record, 3);
  EXPECT_TRUE(samples.ok()) << samples.status();
}

TEST_P(OpConformance, AnUnknownParameterIsNamedWithItsPlace) {
  const auto node = ParseYaml("{no_such_parameter: 1}", "file.yaml");
  const absl::Status status = entry().is_batch_op ? entry().create_batch(*node, {}).status()
                                                  : entry().create(*node, {}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("file.yaml:1:2: op '" + GetParam() +
                                                       "' has no parameter 'no_such_parameter'"));
}

TEST_P(OpConformance, AParameterOutOfRangeIsNamedWithItsPlace) {
  const auto list = ParseYaml(entry().example, "example");
  const auto ops = ReadOps(*list, entry().is_batch_op);
  ASSERT_TRUE(ops.ok()) << ops.status();
  for (const ParamInfo& param : entry().params) {
    std::vector<std::string> bad = {"[[]]", "{a: b}"};
    if (param.low) bad.push_back(absl::StrFormat("%.12g", *param.low - 1));
    if (param.high) bad.push_back(absl::StrFormat("%.12g", *param.high + 1));
    if (!param.choices.empty()) bad.push_back("no_such_word");
    for (const std::string& value : bad) {
      YamlNode params = ops->at(0).params;
      if (!params.is_map()) params = *ParseYaml("{}", "example");
      const auto wrong = ParseYaml(absl::StrCat("x: ", value), "file.yaml");
      ASSERT_TRUE(wrong.ok());
      bool replaced = false;
      for (auto& [key, item] : params.entries) {
        if (key.scalar != param.name) continue;
        item = *wrong->Find("x");
        replaced = true;
      }
      if (!replaced) {
        YamlNode key = wrong->entries[0].first;
        key.scalar = param.name;
        params.entries.emplace_back(key, *wrong->Find("x"));
      }
      const absl::Status status = entry().is_batch_op ? entry().create_batch(params, {}).status()
                                                      : entry().create(params, {}).status();
      EXPECT_TRUE(absl::IsInvalidArgument(status))
          << param.name << ": " << value << " gave " << status;
      EXPECT_THAT(std::string(status.message()), ::testing::StartsWith("file.yaml:1:"))
          << param.name << ": " << value;
      EXPECT_THAT(std::string(status.message()), HasSubstr("'" + param.name + "'")) << value;
    }
  }
}

TEST_P(OpConformance, PlanSaysWhatRunWrites) {
  // The planner gives an op exactly the memory that Plan asked for and refuses any other use
  // (step.cc), and the guards behind the outputs must hold; here for pixels of both numbers of
  // channels, and known and unknown sizes.
  for (int64_t channels : {1, 3}) {
    TestRecord record = MakeRecord(40, 40, channels);
    const auto tried = MakePlan(ExamplePipeline(), record.fields());
    if (!tried.ok() && absl::StrContains(tried.status().message(), "channel"))
      continue;  // the example is for colours
    const auto plan = PlanFor(record);
    ASSERT_NE(plan, nullptr);
    for (const FieldSpec& field : plan->outputs())
      EXPECT_TRUE(field.spec.IsStatic()) << field.spec.ToString();
    const auto samples = RunBatch(*plan, record, 5);
    ASSERT_TRUE(samples.ok()) << samples.status();
  }
}

TEST_P(OpConformance, OneAndEightThreadsGiveTheSameBytes) {
  TestRecord record = MakeRecord(40, 44, 3);
  const auto plan = PlanFor(record);
  ASSERT_NE(plan, nullptr);
  const auto expected = RunBatch(*plan, record, 16);
  ASSERT_TRUE(expected.ok()) << expected.status();
  constexpr int kThreads = 8;
  std::vector<absl::StatusOr<std::vector<std::vector<Bytes>>>> results(
      kThreads, absl::UnknownError("not run"));
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back(
        [&, t, mine = record]() mutable { results[t] = RunBatch(*plan, mine, 16); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) {
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(*result, *expected);
  }
}

TEST_P(OpConformance, RandomnessIsAsDeclared) {
  TestRecord record = MakeRecord(40, 44, 3);
  const auto plan = PlanFor(record);
  ASSERT_NE(plan, nullptr);
  const auto samples = RunBatch(*plan, record, 40);
  ASSERT_TRUE(samples.ok()) << samples.status();
  if (entry().is_batch_op) return;  // what it writes to a place may depend on the place
  bool differ = false;
  for (const auto& sample : *samples) differ |= sample != samples->at(0);
  EXPECT_EQ(differ, entry().randomness == Randomness::kPerSample);
}

TEST_P(OpConformance, AnImageOfOnePixelDoesNoHarm) {
  for (int64_t channels : {1, 3}) {
    TestRecord record = MakeRecord(1, 1, channels);
    auto plan = MakePlan(ExamplePipeline(), record.fields());
    if (!plan.ok() && absl::StrContains(plan.status().message(), "no fixed "))
      plan = MakePlan(CroppedPipeline(), record.fields());
    // To refuse what cannot be is right too, as long as it is said.
    if (!plan.ok()) {
      EXPECT_TRUE(absl::IsInvalidArgument(plan.status())) << plan.status();
      continue;
    }
    const auto samples = RunBatch(**plan, record, 3);
    if (!samples.ok()) {
      EXPECT_TRUE(absl::IsInvalidArgument(samples.status())) << samples.status();
    }
  }
}

TEST_P(OpConformance, EmptyDataDoesNoHarm) {
  TestRecord record;
  if (NeedsDecode()) {
    record.AddEncoded({});
  } else {
    record.AddPixels(0, 0, 3, {});
  }
  record.AddLabel(1);
  auto plan = MakePlan(ExamplePipeline(), record.fields());
  if (!plan.ok() && NeedsDecode()) plan = MakePlan(CroppedPipeline(), record.fields());
  if (!plan.ok()) {
    EXPECT_TRUE(absl::IsInvalidArgument(plan.status())) << plan.status();
    return;
  }
  const auto samples = RunBatch(**plan, record, 2);
  if (NeedsDecode()) {
    EXPECT_TRUE(absl::IsInvalidArgument(samples.status()) || absl::IsDataLoss(samples.status()))
        << samples.status();
  } else {
    EXPECT_TRUE(samples.ok() || absl::IsInvalidArgument(samples.status())) << samples.status();
  }
}

// Where images have sizes of their own a record may say that its image has none.
TEST_P(OpConformance, AnImageWithoutPixelsIsABadSample) {
  const TensorSpec open = ImageSpec(DType::kUInt8, Layout::kHWC, -1, -1, 3);
  for (const auto& [height, width] : {std::pair(0, 65535), {65535, 0}, {0, 64}, {0, 0}}) {
    TestRecord record;
    record.Add("image", open, ImageSpec(DType::kUInt8, Layout::kHWC, height, width, 3), {});
    record.AddLabel(1);
    auto plan = MakePlan(ExamplePipeline(), record.fields());
    if (!plan.ok() && absl::StrContains(plan.status().message(), "no fixed "))
      plan = MakePlan(CroppedPipeline(), record.fields());
    if (!plan.ok()) {
      EXPECT_TRUE(absl::IsInvalidArgument(plan.status())) << plan.status();
      continue;
    }
    const absl::Status status = RunBatch(**plan, record, 2).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr("without pixels"));
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, OpConformance,
                         ::testing::ValuesIn(Registry<OpEntry>::Get().Names()),
                         [](const auto& info) { return info.param; });

TEST(OpRegistry, TheNamesThatUsersKnowAreThere) {
  EXPECT_THAT(Registry<OpEntry>::Get().Names(),
              ::testing::IsSupersetOf({"decode", "resize", "center_crop", "random_crop",
                                       "random_resized_crop", "random_horizontal_flip",
                                       "random_vertical_flip", "color_jitter", "normalize", "cast",
                                       "layout", "one_hot", "mixup", "cutmix"}));
}

TEST(OpRegistry, ANameOfAnotherLibraryBelongsToOneOp) {
  std::map<std::pair<std::string, std::string>, std::string> owners;
  for (const std::string& name : Registry<OpEntry>::Get().Names()) {
    for (const OtherName& other : Registry<OpEntry>::Get().Find(name)->other_names) {
      const auto [owner, is_new] = owners.emplace(std::pair(other.library, other.name), name);
      EXPECT_TRUE(is_new) << other.library << "'s " << other.name << " is of " << name << " and "
                          << owner->second;
      EXPECT_THAT(other.library,
                  ::testing::AnyOf("torchvision", "Albumentations", "MindSpore", "DALI"));
    }
  }
  EXPECT_GT(owners.size(), 150u);
}

TEST(OpRegistry, AnUnknownOpIsToldByTheNameOfAnotherLibrary) {
  EXPECT_EQ(UnknownOp("RandomColorAdjust"),
            "unknown op 'RandomColorAdjust': 'RandomColorAdjust' is MindSpore's name of "
            "'color_jitter'; `feedwater describe op color_jitter` explains it");
  EXPECT_THAT(UnknownOp("random_color_adjust"), HasSubstr("MindSpore's name of 'color_jitter'"));
  EXPECT_THAT(UnknownOp("noise.gaussian"), HasSubstr("DALI's name of 'gaussian_noise'"));
  EXPECT_THAT(UnknownOp("ShiftScaleRotate"),
              HasSubstr("Albumentations' 'ShiftScaleRotate' has no counterpart; 'random_affine' "
                        "is nearest"));
  EXPECT_EQ(UnknownOp("hflip"),
            "unknown op 'hflip': 'hflip' is torchvision's name of 'random_horizontal_flip' (with "
            "`p: 1` it is done to every sample); `feedwater describe op random_horizontal_flip` "
            "explains it");
  const std::pair<const char*, const char*> everyday[] = {
      {"vflip", "random_vertical_flip"},
      {"flip", "random_horizontal_flip"},
      {"rotate", "random_rotation"},
      {"crop", "center_crop"},
      {"blur", "gaussian_blur"},
      {"noise", "gaussian_noise"},
      {"jitter", "color_jitter"},
      {"gamma", "adjust_gamma"},
      {"cutout", "coarse_dropout"},
      {"erase", "coarse_dropout"},
      {"invert", "random_invert"},
      {"to_grayscale", "grayscale"},
      {"decode_jpeg", "decode"},
      {"to_tensor", "normalize"},
      {"resized_crop", "random_resized_crop"},
      {"permute_channels", "random_channel_permutation"}};
  for (const auto& [name, op] : everyday)
    EXPECT_THAT(UnknownOp(name), HasSubstr(absl::StrCat("'", op, "'"))) << name;
  EXPECT_EQ(UnknownOp("shuffle"), "'shuffle' is no op: it is `sampler: {shuffle: full}`");
  for (const char* word : {"batch", "collate", "pad_to", "prefetch", "cache"}) {
    EXPECT_THAT(UnknownOp(word), HasSubstr("is no op: ")) << word;
    EXPECT_THAT(UnknownOp(word), ::testing::Not(HasSubstr("Known"))) << word;
  }
  EXPECT_THAT(UnknownOp("random"), HasSubstr(". Known: "));
  EXPECT_THAT(UnknownOp("resise"), HasSubstr("did you mean 'resize'? Known: "));
  EXPECT_THAT(UnknownOp("RandomColorAdjus"),
              HasSubstr("did you mean 'RandomColorAdjust'? 'RandomColorAdjust' is MindSpore's"));
  EXPECT_THAT(UnknownOp("no such thing at all"), HasSubstr(". Known: "));
  TestRecord record;
  record.AddPixels(1, 1, 1, {1});
  const auto refused = RunGraph("- RandomColorAdjust: {brightness: 0.4}", record);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("test.yaml:4:3: unknown op 'RandomColorAdjust': "));
}

}  // namespace
}  // namespace feedwater::server
