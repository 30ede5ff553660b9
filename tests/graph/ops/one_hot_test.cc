// one_hot: a class number becomes a vector.
#include <gmock/gmock.h>

#include "absl/strings/match.h"
#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(OneHot, OneStandsAtTheClass) {
  TestRecord record;
  record.AddLabel(2);
  const auto result = RunGraph("- one_hot: {num_classes: 12}", record, "[label]");
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(As<float>((*result)[0]), ElementsAre(0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0));
}

TEST(OneHot, TheDatasetsClassesAreTheDefault) {
  TestRecord record;
  record.AddLabel(9);
  const auto result =
      RunGraph("- one_hot: {dtype: int16}", record, "[label]");  // the tests' dataset has 10
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(As<int16_t>((*result)[0]), ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 0, 1));
}

TEST(OneHot, AClassOutOfRangeIsAnErrorOfTheSample) {
  for (int64_t label : {int64_t{-1}, int64_t{11}, std::numeric_limits<int64_t>::max()}) {
    TestRecord record;
    record.AddLabel(label);
    const auto result = RunGraph("- one_hot: {num_classes: 11}", record, "[label]");
    ASSERT_FALSE(result.ok());
    EXPECT_THAT(std::string(result.status().message()), HasSubstr("outside 0..10"));
  }
}

// With `substitute` every sample of the classes left out would be another one.
TEST(OneHot, FewerClassesThanTheLabelHasAreRefusedAndOtherFieldsMayHaveFewer) {
  TestRecord record;
  record.AddLabel(2);
  for (const char* graph :
       {"- one_hot: {num_classes: 9}", "- one_hot: {in: label, out: wide, num_classes: 9}"}) {
    const auto refused = RunGraph(graph, record, "[label]");
    EXPECT_TRUE(absl::IsInvalidArgument(refused.status()));
    EXPECT_THAT(std::string(refused.status().message()),
                HasSubstr("num_classes is 9, but the dataset has 10 classes"));
  }
  for (const char* graph : {"- cast: {in: label, out: coarse, dtype: int32}\n"
                            "- one_hot: {in: coarse, out: hot, num_classes: 3}",
                            "- one_hot: {in: sample_id, out: hot, num_classes: 3}"}) {
    const auto result = RunGraph(graph, record, "[hot]");
    EXPECT_FALSE(absl::IsInvalidArgument(result.status()) &&
                 absl::StrContains(result.status().message(), "num_classes"))
        << result.status();
  }
}

}  // namespace
}  // namespace feedwater::server
