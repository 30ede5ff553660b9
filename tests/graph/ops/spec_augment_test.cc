// spec_augment: so many masks over frames and over bands, of the mean or of zeros.
#include <gmock/gmock.h>

#include "tests/graph/ops/audio_op_testing.h"

namespace feedwater::server {
namespace {

using namespace audio_op_testing;  // NOLINT: the tests' own words
using ::testing::AllOf;

TEST(SpecAugment, MasksWholeFramesAndWholeBandsWithTheMean) {
  Floats numbers;
  for (int i = 0; i < 20 * 30; ++i) numbers.push_back(static_cast<float>(i + 1));
  const std::string masks =
      "n_time_masks: 2, time_mask_param: 5, n_freq_masks: 2, freq_mask_param: 5";
  int most_frames = 0, most_bands = 0;
  for (int64_t id = 0; id < 200; ++id) {
    const Floats made =
        RunOnNumbers("- spec_augment: {" + masks + "}", "mel", {20, 30}, numbers, id);
    const Floats zeros = RunOnNumbers("- spec_augment: {" + masks + ", zero_masking: true}", "mel",
                                      {20, 30}, numbers, id);
    std::vector<int> in_band(20), in_frame(30);
    for (size_t i = 0; i < numbers.size(); ++i) {
      const bool masked = zeros[i] == 0;
      EXPECT_EQ(made[i], masked ? 300.5f : numbers[i]) << "the mean, at the same places";
      in_band[i / 30] += masked;
      in_frame[i % 30] += masked;
    }
    const int bands = static_cast<int>(std::count(in_band.begin(), in_band.end(), 30)),
              frames = static_cast<int>(std::count(in_frame.begin(), in_frame.end(), 20));
    int all = 0;
    for (const int count : in_band) all += count;
    EXPECT_EQ(all, bands * 30 + frames * 20 - bands * frames);
    most_frames = std::max(most_frames, frames);
    most_bands = std::max(most_bands, bands);
  }
  EXPECT_THAT(most_frames, AllOf(::testing::Gt(4), ::testing::Le(8))) << "two of up to 4";
  EXPECT_THAT(most_bands, AllOf(::testing::Gt(4), ::testing::Le(8)));
}

TEST(SpecAugment, NoMasksChangeNothing) {
  EXPECT_EQ(RunOnNumbers("- spec_augment: {n_time_masks: 0, time_mask_param: 9, n_freq_masks: 0, "
                         "freq_mask_param: 9}",
                         "mel", {2, 3}, Floats(6, 1)),
            Floats(6, 1));
}

}  // namespace
}  // namespace feedwater::server
