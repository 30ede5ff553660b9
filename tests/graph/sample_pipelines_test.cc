// The pipelines that come with the product are valid, are planned into few steps, and run on data
// of their kind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::ElementsAre;

std::filesystem::path Folder() {
  return std::filesystem::path(FEEDWATER_SOURCE_DIR) / "config/pipelines";
}

PipelineSpec Read(const std::string& name) {
  auto spec = ReadPipelineFile((Folder() / (name + ".yaml")).string());
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.ok() ? *std::move(spec) : PipelineSpec{};
}

std::vector<std::string> Described(const std::string& name, TestRecord record) {
  const auto plan = Plan::Create(Read(name), record.fields(), 10);
  EXPECT_TRUE(plan.ok()) << plan.status();
  if (!plan.ok()) return {};
  const auto result = RunPlan(**plan, record);
  EXPECT_TRUE(result.ok()) << result.status();
  return (*plan)->Describe();
}

TestRecord Photo() { return TestRecord().AddEncoded(EncodedImage(300, 400, ".jpg")).AddLabel(3); }
TestRecord Stored(int64_t side, int64_t channels) {
  return TestRecord()
      .AddPixels(side, side, channels, PatternPixels(side, side, channels))
      .AddLabel(3);
}

TEST(SamplePipelines, EachIsValid) {
  int files = 0;
  for (const auto& file : std::filesystem::directory_iterator(Folder())) {
    if (file.path().extension() != ".yaml") continue;
    ++files;
    const absl::Status valid = Plan::Validate(Read(file.path().stem().string()));
    EXPECT_TRUE(valid.ok()) << valid;
  }
  EXPECT_GE(files, 5);
}

TEST(SamplePipelines, TheOnesForImageNetAreOneStepAndTheLabel) {
  EXPECT_THAT(Described("imagenet-train", Photo()),
              ElementsAre("decode+random_resized_crop+random_horizontal_flip+normalize -> image "
                          "float32[3,224,224] CHW",
                          "copy -> label int64[]"));
  EXPECT_THAT(Described("imagenet-val", Photo()),
              ElementsAre("decode+resize+center_crop+normalize -> image float32[3,224,224] CHW",
                          "copy -> label int64[]", "copy -> is_real bool[]"));
}

TEST(SamplePipelines, TheOnesForStoredPixelsAreOneStepAndTheLabel) {
  EXPECT_THAT(
      Described("cifar10", Stored(32, 3)),
      ElementsAre("random_crop+random_horizontal_flip+normalize -> image float32[3,32,32] CHW",
                  "copy -> label int64[]"));
  EXPECT_THAT(Described("mnist", Stored(28, 1)),
              ElementsAre("normalize -> image float32[1,28,28] CHW", "copy -> label int64[]"));
}

TEST(SamplePipelines, TenViewsDecodeOnce) {
  TestRecord record = Photo();
  const auto plan = Plan::Create(Read("dino"), record.fields(), 10);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const std::vector<std::string> steps = (*plan)->Describe();
  EXPECT_EQ(steps[0], "decode(once, what 10 steps take of it) -> image uint8[?,?,3] HWC");
  EXPECT_EQ(std::count_if(steps.begin(), steps.end(),
                          [](const std::string& step) { return step.starts_with("decode"); }),
            1);
  EXPECT_EQ((*plan)->outputs().size(), 11u);
}

TEST(SamplePipelines, TwoViewsDecodeOnceAndDiffer) {
  TestRecord record = Photo();
  const auto plan = Plan::Create(Read("simclr"), record.fields(), 10);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto result = RunPlan(**plan, record);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_NE((*result)[0], (*result)[1]);
  EXPECT_EQ((*plan)->Describe()[0],
            "decode(once, what 2 steps take of it) -> image uint8[?,?,3] HWC");
}

}  // namespace
}  // namespace feedwater::server
