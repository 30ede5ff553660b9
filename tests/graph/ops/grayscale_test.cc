// grayscale: Pillow's "L".
#include <gmock/gmock.h>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::ElementsAre;
using ::testing::HasSubstr;
const Bytes kPixels = {0,  0,   0,  255, 255, 255, 200, 100, 50,
                       10, 240, 30, 17,  34,  201, 128, 128, 127};

TEST(Grayscale, HasOneChannel) {
  EXPECT_THAT(RunOnPixels("- grayscale", 2, 3, 3, kPixels), ElementsAre(0, 255, 124, 147, 48, 128));
}

TEST(Grayscale, OrThreeEqualOnes) {
  EXPECT_THAT(
      RunOnPixels("- grayscale: {num_output_channels: 3}", 2, 3, 3, kPixels),
      ElementsAre(0, 0, 0, 255, 255, 255, 124, 124, 124, 147, 147, 147, 48, 48, 48, 128, 128, 128));
}

TEST(Grayscale, AGreyImageIsGiven) {
  EXPECT_THAT(RunOnPixels("- grayscale: {num_output_channels: 3}", 1, 2, 1, {9, 200}),
              ElementsAre(9, 9, 9, 200, 200, 200));
}

TEST(Grayscale, OrStaysAsItIs) {
  EXPECT_THAT(RunOnPixels("- grayscale", 1, 2, 1, {9, 200}), ElementsAre(9, 200));
}

TEST(Grayscale, TwoChannelsAreRefused) {
  TestRecord record;
  record.AddPixels(1, 2, 1, {9, 200});
  const auto result = RunGraph("- grayscale: {num_output_channels: 2}", record);
  EXPECT_THAT(
      std::string(result.status().message()),
      HasSubstr("test.yaml:4:14: op 'grayscale': 'num_output_channels' must be 1 or 3, not 2"));
}

}  // namespace
}  // namespace feedwater::server
