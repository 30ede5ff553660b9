// layout: axes change places, values do not.
#include <gmock/gmock.h>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::ElementsAre;

TEST(ChangeLayout, PixelsBecomePlanes) {
  EXPECT_THAT(RunOnPixels("- layout: {layout: CHW}", 1, 2, 3, {1, 2, 3, 4, 5, 6}),
              ElementsAre(1, 4, 2, 5, 3, 6));
  EXPECT_THAT(RunOnPixels("- layout: {layout: HWC}", 1, 2, 3, {1, 2, 3, 4, 5, 6}),
              ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(ChangeLayout, ThereAndBackIsTheSameForEverySizeOfElement) {
  const Bytes pixels = PatternPixels(3, 4, 3);
  for (const char* dtype : {"uint8", "int16", "float32", "float64"}) {
    TestRecord record;
    record.AddPixels(3, 4, 3, pixels);
    for (bool fuse : {true, false}) {
      const auto result = RunGraph(
          absl::StrCat(
              "- cast: {dtype: ", dtype,
              "}\n- layout: {layout: CHW}\n- layout: {layout: HWC}\n- cast: {dtype: uint8}"),
          record, "[image]", 7, fuse);
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ((*result)[0], pixels) << dtype;
    }
  }
}

TEST(ChangeLayout, TheSpecSaysSo) {
  TestRecord record;
  record.AddPixels(3, 4, 1, PatternPixels(3, 4, 1));
  const auto plan = MakePlan(PipelineText("- layout", "[image]"), record.fields());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ((*plan)->outputs()[0].spec.ToString(), "uint8[1,3,4] CHW");
}

}  // namespace
}  // namespace feedwater::server
