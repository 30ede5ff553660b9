// random_crop_audio: every place alike likely, for what is cut and for what is padded.
#include <gmock/gmock.h>

#include <map>

#include "tests/graph/ops/audio_op_testing.h"

namespace feedwater::server {
namespace {

using namespace audio_op_testing;  // NOLINT: the tests' own words
using ::testing::HasSubstr;

TEST(RandomCropAudio, EveryPlaceComesUpAboutAsOften) {
  for (const bool is_longer : {true, false}) {
    const Floats numbers = is_longer ? Floats{1, 2, 3, 4, 5, 6} : Floats{7};
    std::map<int, int> seen;
    constexpr int kSamples = 4000;
    for (int64_t id = 0; id < kSamples; ++id) {
      const Floats made = RunOnNumbers("- random_crop_audio: {frames: 4}", "audio",
                                       {static_cast<int64_t>(numbers.size())}, numbers, id);
      ASSERT_EQ(made.size(), 4u);
      if (is_longer) {
        for (size_t i = 1; i < 4; ++i) EXPECT_EQ(made[i], made[0] + static_cast<float>(i));
        ++seen[static_cast<int>(made[0])];
      } else {
        EXPECT_EQ(std::count(made.begin(), made.end(), 0), 3);
        ++seen[static_cast<int>(std::find(made.begin(), made.end(), 7) - made.begin())];
      }
    }
    const int places = is_longer ? 3 : 4;
    EXPECT_EQ(seen.size(), static_cast<size_t>(places));
    // Five standard deviations of a binomial draw.
    for (const auto& [place, count] : seen) EXPECT_NEAR(count, kSamples / places, 150) << place;
  }
}

TEST(RandomCropAudio, ChannelsAreCutAtTheSamePlace) {
  Floats two(200);
  for (size_t i = 0; i < 200; ++i) two[i] = static_cast<float>(i);
  for (int64_t id = 0; id < 20; ++id) {
    const Floats made =
        RunOnNumbers("- random_crop_audio: {frames: 10}", "audio", {2, 100}, two, id);
    for (size_t i = 0; i < 10; ++i) EXPECT_EQ(made[10 + i], made[i] + 100);
  }
}

TEST(RandomCropAudio, ShorterAudioIsRefusedWhereNothingMayBeAdded) {
  EXPECT_THAT(Refusal("- random_crop_audio: {frames: 5, pad: false}", "audio", {2}, {1, 2}),
              HasSubstr("pad: true"));
}

}  // namespace
}  // namespace feedwater::server
