// ten_crop: five_crop of the image, and of the mirrored image.
#include <gmock/gmock.h>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words

TEST(TenCrop, IsFiveCropOfTheImageAndOfItsMirrorImage) {
  for (const int64_t channels : {1, 3}) {
    const Bytes pixels = PatternPixels(9, 12, channels);
    for (const bool vertical : {false, true}) {
      const std::string flip =
          vertical ? "- random_vertical_flip: {p: 1}\n" : "- random_horizontal_flip: {p: 1}\n";
      for (const char* before : {"", "- layout\n"}) {
        Bytes expected = RunOnPixels(absl::StrCat(before, "- five_crop: {size: [4, 7]}"), 9, 12,
                                     channels, pixels);
        const Bytes mirrored = RunOnPixels(
            absl::StrCat(flip, before, "- five_crop: {size: [4, 7]}"), 9, 12, channels, pixels);
        expected.insert(expected.end(), mirrored.begin(), mirrored.end());
        EXPECT_EQ(RunOnPixels(absl::StrCat(before, "- ten_crop: {size: [4, 7], vertical_flip: ",
                                           vertical ? "true" : "false", "}"),
                              9, 12, channels, pixels),
                  expected);
      }
    }
  }
}

TEST(TenCrop, ALargerCropThanTheImageIsRefused) {
  TestRecord record;
  record.AddPixels(4, 9, 1, PatternPixels(4, 9, 1));
  EXPECT_FALSE(RunGraph("- ten_crop: {size: 5}", record).ok());
  EXPECT_FALSE(RunGraph("- ten_crop: {size: 0}", record).ok());
}

}  // namespace
}  // namespace feedwater::server
