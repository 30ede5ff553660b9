// one_hot: a class number becomes a vector.
#include <gmock/gmock.h>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(OneHot, OneStandsAtTheClass) {
  TestRecord record;
  record.AddLabel(2);
  const auto result = RunGraph("- one_hot: {num_classes: 4}", record, "[label]");
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(As<float>((*result)[0]), ElementsAre(0, 0, 1, 0));
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
  for (int64_t label : {int64_t{-1}, int64_t{4}, std::numeric_limits<int64_t>::max()}) {
    TestRecord record;
    record.AddLabel(label);
    const auto result = RunGraph("- one_hot: {num_classes: 4}", record, "[label]");
    ASSERT_FALSE(result.ok());
    EXPECT_THAT(std::string(result.status().message()), HasSubstr("outside 0..3"));
  }
}

}  // namespace
}  // namespace feedwater::server
