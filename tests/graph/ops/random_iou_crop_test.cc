// random_iou_crop: torchvision's part, and which boxes are kept.
#include <gmock/gmock.h>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Cropped {
  Bytes image;
  std::vector<float> boxes;
  std::vector<int64_t> labels;
};

// Of an image that is 200 where the first box is, cropped and put on a canvas of 9.
Cropped Crop(const std::string& params, const std::vector<float>& boxes, int64_t id) {
  constexpr int kHeight = 40, kWidth = 60;
  Bytes pixels(kHeight * kWidth, 50);
  for (int y = static_cast<int>(boxes.empty() ? 0 : boxes[1]);
       !boxes.empty() && y < static_cast<int>(boxes[3]); ++y)
    std::fill(pixels.begin() + y * kWidth + static_cast<int>(boxes[0]),
              pixels.begin() + y * kWidth + static_cast<int>(boxes[2]), 200);
  TestRecord record;
  record.AddPixels(kHeight, kWidth, 1, pixels);
  Bytes corners(boxes.size() * sizeof(float)), numbers(boxes.size() / 4 * sizeof(int64_t));
  if (!boxes.empty()) std::memcpy(corners.data(), boxes.data(), corners.size());
  for (size_t i = 0; i < boxes.size() / 4; ++i)
    numbers[i * sizeof(int64_t)] = static_cast<uint8_t>(i + 1);
  const TensorSpec box{DType::kFloat32, Layout::kPlain, {-1, 4}},
      label{DType::kInt64, Layout::kPlain, {-1}};
  const auto rows = static_cast<int64_t>(boxes.size() / 4);
  record.Add("boxes", box, box.WithRows(rows), corners);
  record.Add("labels", label, label.WithRows(rows), numbers);
  const auto outs =
      RunGraph(absl::StrCat("- random_iou_crop: {in: [image, boxes, labels], ", params,
                            "}\n- center_crop: {in: image, size: [80, 120]}"),
               record, "[image, {boxes: {pad_to: 4}}, {labels: {pad_to: 4}}, boxes_length]", id);
  EXPECT_TRUE(outs.ok()) << outs.status();
  Cropped made{(*outs)[0], As<float>((*outs)[1]), As<int64_t>((*outs)[2])};
  const auto kept = static_cast<size_t>(As<int64_t>((*outs)[3])[0]);
  made.boxes.resize(kept * 4);
  made.labels.resize(kept);
  return made;
}

TEST(RandomIouCrop, ThePartOverlapsABoxAndHasTheShapeThatIsAskedFor) {
  int cropped = 0;
  for (int64_t id = 0; id < 100; ++id) {
    const Cropped made = Crop("sampler_options: [0.3]", {20, 10, 44, 34}, id);
    const auto area =
        static_cast<int>(120 * 80 - std::count(made.image.begin(), made.image.end(), 0));
    if (area == 2400) continue;
    ++cropped;
    // What is seen of the box, by what is seen of the image: intersection over union.
    const auto seen = static_cast<double>(std::count(made.image.begin(), made.image.end(), 200));
    EXPECT_GE(seen / (24 * 24 + area - seen), 0.3) << "sample " << id;
    ASSERT_EQ(made.boxes.size(), 4u);
    EXPECT_NEAR((made.boxes[2] - made.boxes[0]) * (made.boxes[3] - made.boxes[1]), seen, 1e-3);
  }
  EXPECT_GT(cropped, 80);
}

TEST(RandomIouCrop, BoxesWhoseMiddleIsOutsideAreDroppedWithTheirLabels) {
  int dropped = 0;
  for (int64_t id = 0; id < 100; ++id) {
    const Cropped made =
        Crop("sampler_options: [0.0], max_scale: 0.6", {0, 0, 12, 12, 48, 28, 60, 40}, id);
    ASSERT_FALSE(made.labels.empty());
    ASSERT_EQ(made.boxes.size(), made.labels.size() * 4);
    dropped += made.labels.size() == 1;
  }
  EXPECT_GT(dropped, 90);  // the two stand in opposite corners
}

TEST(RandomIouCrop, NoBoxesAndAnOverlapOfOneLeaveTheImage) {
  for (int64_t id = 0; id < 10; ++id) {
    const Cropped none = Crop("trials: 5", {}, id);
    EXPECT_EQ(std::count(none.image.begin(), none.image.end(), 50), 2400);
    const Cropped whole = Crop("sampler_options: [1.0]", {1, 2, 3, 4}, id);
    EXPECT_THAT(whole.boxes, ElementsAre(1, 2, 3, 4));
    // No part can overlap so small a box so much.
    const Cropped never = Crop("sampler_options: [0.9], trials: 3", {1, 2, 3, 4}, id);
    EXPECT_THAT(never.boxes, ElementsAre(1, 2, 3, 4));
  }
}

TEST(RandomIouCrop, WhatMakesNoSenseIsRefusedWithItsPlace) {
  TestRecord record;
  record.AddPixels(2, 2, 1, {1, 2, 3, 4});
  for (const char* params :
       {"min_scale: 0.8, max_scale: 0.5", "min_aspect_ratio: 3", "sampler_options: []"}) {
    const auto refused = RunGraph(
        absl::StrCat("- random_iou_crop: {", params, "}\n- center_crop: {size: 1}"), record);
    ASSERT_FALSE(refused.ok()) << params;
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("op 'random_iou_crop'"));
  }
}

}  // namespace
}  // namespace feedwater::server
