// crop_audio: the begin, middle or end; shorter audio made longer, or refused.
#include <gmock/gmock.h>

#include "tests/graph/ops/audio_op_testing.h"

namespace feedwater::server {
namespace {

using namespace audio_op_testing;  // NOLINT: the tests' own words
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Floats Crop(const std::string& params, const Floats& numbers) {
  return RunOnNumbers("- crop_audio: {" + params + "}", "audio",
                      {static_cast<int64_t>(numbers.size())}, numbers);
}

TEST(CropAudio, KeepsTheBeginTheMiddleOrTheEnd) {
  const Floats numbers = {1, 2, 3, 4, 5};
  EXPECT_THAT(Crop("frames: 2", numbers), ElementsAre(1, 2));
  EXPECT_THAT(Crop("frames: 2, align: center", numbers), ElementsAre(2, 3));
  EXPECT_THAT(Crop("frames: 2, align: end", numbers), ElementsAre(4, 5));
  EXPECT_EQ(Crop("frames: 5", numbers), numbers);
}

TEST(CropAudio, MakesShorterAudioLonger) {
  EXPECT_THAT(Crop("frames: 5", {1, 2}), ElementsAre(1, 2, 0, 0, 0));
  EXPECT_THAT(Crop("frames: 5, align: center, fill: 9", {1, 2}), ElementsAre(9, 1, 2, 9, 9));
  EXPECT_THAT(Crop("frames: 5, align: end", {1, 2}), ElementsAre(0, 0, 0, 1, 2));
}

TEST(CropAudio, EveryChannelIsCutAlike) {
  EXPECT_THAT(
      RunOnNumbers("- crop_audio: {frames: 2, align: end}", "audio", {2, 3}, {1, 2, 3, 4, 5, 6}),
      ElementsAre(2, 3, 5, 6));
  EXPECT_THAT(RunOnNumbers("- crop_audio: {frames: 4}", "audio", {2, 3}, {1, 2, 3, 4, 5, 6}),
              ElementsAre(1, 2, 3, 0, 4, 5, 6, 0));
}

TEST(CropAudio, ShorterAudioIsRefusedWhereNothingMayBeAdded) {
  EXPECT_THAT(Refusal("- crop_audio: {frames: 5, pad: false}", "audio", {2}, {1, 2}),
              AllOf(HasSubstr("test.yaml:4"), HasSubstr("audio of 2 frames is shorter than 5"),
                    HasSubstr("pad: true")));
}

}  // namespace
}  // namespace feedwater::server
