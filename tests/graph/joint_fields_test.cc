// Fields that move together. The property: to draw a box and move the picture is to move the box
// and draw it, whatever moves them.
#include "server/graph/joint_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <typename T>
Bytes BytesOf(const std::vector<T>& numbers) {
  Bytes bytes(numbers.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

template <typename T>
constexpr DType kTypeOf = std::is_same_v<T, float>     ? DType::kFloat32
                          : std::is_same_v<T, int64_t> ? DType::kInt64
                                                       : DType::kInt32;

// A field of rows of `columns` numbers; 0: of one number each.
template <typename T>
void AddRows(TestRecord& record, const std::string& name, int64_t columns,
             const std::vector<T>& numbers) {
  TensorSpec spec{kTypeOf<T>, Layout::kPlain, {-1}};
  if (columns > 0) spec.shape.push_back(columns);
  const auto rows = static_cast<int64_t>(numbers.size()) / std::max<int64_t>(columns, 1);
  record.Add(name, spec, spec.WithRows(rows), BytesOf(numbers));
}

TestRecord ImageAndBoxes(int64_t height, int64_t width, const std::vector<float>& boxes) {
  TestRecord record;
  record.AddPixels(height, width, 3, PatternPixels(height, width, 3));
  AddRows<float>(record, "boxes", 4, boxes);
  return record;
}

// What is left of the boxes, and the numbers of another field of rows.
struct Moved {
  std::vector<float> boxes;
  std::vector<int64_t> labels;
};

absl::StatusOr<Moved> Move(const std::string& op, TestRecord record, bool has_labels = false,
                           int64_t sample_id = 7, int64_t room = 64) {
  const std::string outputs =
      absl::StrCat("[{boxes: {pad_to: ", room, "}}, boxes_length",
                   has_labels ? absl::StrCat(", {labels: {pad_to: ", room, "}}") : "", "]");
  FW_ASSIGN_OR_RETURN(const auto outs, RunGraph(op, record, outputs, sample_id));
  Moved moved;
  const auto rows = static_cast<size_t>(As<int64_t>(outs[1])[0]);
  moved.boxes = As<float>(outs[0]);
  moved.boxes.resize(rows * 4);
  if (has_labels) {
    moved.labels = As<int64_t>(outs[2]);
    moved.labels.resize(rows);
  }
  return moved;
}

std::string Refusal(const std::string& op, TestRecord record) {
  const auto moved = Move(op, std::move(record));
  EXPECT_FALSE(moved.ok());
  return std::string(moved.status().message());
}

TEST(JointFields, GeometryMovesBoxesByItsOwnRule) {
  const std::vector<float> box = {10, 20, 30, 60};
  EXPECT_THAT(
      Move("- random_horizontal_flip: {in: [image, boxes], p: 1}", ImageAndBoxes(80, 100, box))
          ->boxes,
      ElementsAre(70, 20, 90, 60));
  EXPECT_THAT(
      Move("- random_vertical_flip: {in: [image, boxes], p: 1}", ImageAndBoxes(80, 100, box))
          ->boxes,
      ElementsAre(10, 20, 30, 60));
  EXPECT_THAT(
      Move("- resize: {in: [image, boxes], size: [40, 200]}", ImageAndBoxes(80, 100, box))->boxes,
      ElementsAre(20, 10, 60, 30));
  EXPECT_THAT(
      Move("- center_crop: {in: [image, boxes], size: [40, 60]}", ImageAndBoxes(80, 100, box))
          ->boxes,
      ElementsAre(0, 0, 10, 40));
  EXPECT_THAT(
      Move("- pad: {in: [image, boxes], padding: [1, 2, 3, 4]}", ImageAndBoxes(80, 100, box))
          ->boxes,
      ElementsAre(11, 22, 31, 62));
}

TEST(JointFields, ABoxBesideTheCanvasIsDroppedWithItsLabels) {
  TestRecord record = ImageAndBoxes(100, 100, {0, 0, 5, 5, 40, 40, 60, 60, 0, 45, 35, 55});
  AddRows<int64_t>(record, "labels", 0, {11, 12, 13});
  const auto crop = [&](const std::string& more) {
    return *Move(absl::StrCat("- center_crop: {in: [image, boxes, labels], size: 40", more, "}"),
                 record, true);
  };
  EXPECT_THAT(crop("").labels, ElementsAre(12, 13));
  EXPECT_THAT(crop("").boxes, ElementsAre(10, 10, 30, 30, 0, 15, 5, 25));
  // The third one shows 5 of its 35 columns.
  EXPECT_THAT(crop(", min_visibility: 0.1").labels, ElementsAre(12, 13));
  EXPECT_THAT(crop(", min_visibility: 0.2").labels, ElementsAre(12));
  EXPECT_THAT(crop(", min_area: 50").labels, ElementsAre(12, 13));
  EXPECT_THAT(crop(", min_area: 51").labels, ElementsAre(12));
}

TEST(JointFields, LabelsOfEveryKindFollowTheirBoxes) {
  TestRecord record = ImageAndBoxes(10, 10, {0, 0, 1, 1, 4, 4, 6, 6});
  AddRows<int64_t>(record, "labels", 0, {1, 2});
  AddRows<float>(record, "area", 0, {0.5f, 1.5f});
  const auto outs = RunGraph("- center_crop: {in: [image, boxes, labels, area], size: 4}", record,
                             "[{labels: {pad_to: 1}}, {area: {pad_to: 1}}, area_length]");
  ASSERT_TRUE(outs.ok()) << outs.status();
  EXPECT_THAT(As<int64_t>((*outs)[0]), ElementsAre(2));
  EXPECT_THAT(As<float>((*outs)[1]), ElementsAre(1.5f));
  EXPECT_THAT(As<int64_t>((*outs)[2]), ElementsAre(1));
}

TEST(JointFields, KeypointsStayInTheirRowsAndLoseVisibilityOutside) {
  TestRecord record = ImageAndBoxes(10, 10, {});
  AddRows<float>(record, "points", 3, {5, 5, 2, 0, 0, 1});
  const auto outs =
      RunGraph("- center_crop: {in: [image, points], size: 4}", record, "[{points: {pad_to: 2}}]");
  ASSERT_TRUE(outs.ok()) << outs.status();
  EXPECT_THAT(As<float>((*outs)[0]), ElementsAre(2, 2, 2, -3, -3, 0));
}

TEST(JointFields, KeypointsOnTheBorderStayVisibleOnTheOtherSide) {
  TestRecord record = ImageAndBoxes(10, 12, {});
  AddRows<float>(record, "points", 3, {0, 0, 2, 12, 10, 2, 0, 5, 2, 6, 10, 2});
  const auto moved = [&](const std::string& op) {
    const auto outs = RunGraph(absl::StrCat("- ", op), record, "[{points: {pad_to: 4}}]");
    EXPECT_TRUE(outs.ok()) << outs.status();
    return outs.ok() ? As<float>((*outs)[0]) : std::vector<float>();
  };
  EXPECT_THAT(moved("random_horizontal_flip: {in: [image, points], p: 1}"),
              ElementsAre(12, 0, 2, 0, 10, 2, 12, 5, 2, 6, 10, 2));
  EXPECT_THAT(moved("random_vertical_flip: {in: [image, points], p: 1}"),
              ElementsAre(0, 10, 2, 12, 0, 2, 0, 5, 2, 6, 0, 2));
  for (const char* op : {"resize: {in: [image, points], size: [7, 11]}",
                         "random_rotation: {in: [image, points], degrees: [180, 180]}"}) {
    const std::vector<float> points = moved(op);
    for (size_t i = 2; i < points.size(); i += 3) EXPECT_EQ(points[i], 2) << op;
  }
  // Out of the picture by a pixel.
  EXPECT_THAT(moved("center_crop: {in: [image, points], size: [8, 10]}"),
              ElementsAre(-1, -1, 0, 11, 9, 0, -1, 4, 0, 5, 9, 0));
}

TEST(JointFields, AMaskIsNearestWhateverTheImageIs) {
  TestRecord record;
  record.AddPixels(4, 4, 3, Bytes(48, 9));
  const TensorSpec mask{DType::kInt32, Layout::kPlain, {4, 4}};
  std::vector<int32_t> numbers;
  for (int32_t i = 0; i < 16; ++i) numbers.push_back(i < 8 ? 70000 : -5);
  record.Add("mask", mask, mask, BytesOf(numbers));
  for (const char* op : {"- resize: {in: [image, mask], size: [3, 5]}",
                         "- random_resized_crop: {in: [image, mask], size: [3, 5]}",
                         "- random_rotation: {in: [image, mask], degrees: 40, interpolation: "
                         "bilinear, mask_fill: -5}"}) {
    const auto outs = RunGraph(op, record, "[mask]");
    ASSERT_TRUE(outs.ok()) << outs.status();
    for (int32_t value : As<int32_t>((*outs)[0])) EXPECT_TRUE(value == 70000 || value == -5) << op;
  }
}

TEST(JointFields, AMaskCanHoldWhatItIsFilledWith) {
  TestRecord record;
  record.AddPixels(4, 4, 3, Bytes(48, 9));
  const TensorSpec mask{DType::kUInt8, Layout::kPlain, {4, 4}};
  record.Add("mask", mask, mask, Bytes(16, 1));
  for (const char* fill : {"-1", "300", "1.5"}) {
    for (const char* op : {"random_rotation: {in: [image, mask], degrees: 40, mask_fill: ",
                           "pad: {in: [image, mask], padding: 1, mask_fill: ",
                           "random_crop: {in: [image, mask], size: 4, padding: 1, mask_fill: "}) {
      EXPECT_THAT(Refusal(absl::StrCat("- ", op, fill, "}"), record),
                  AllOf(HasSubstr(absl::StrCat("'mask_fill' is ", fill)), HasSubstr("'mask'"),
                        HasSubstr("give a whole number from 0 to 255")));
    }
  }
}

TEST(JointFields, AnImageCanHoldWhatItIsFilledWith) {
  TestRecord rgb, grey;
  rgb.AddPixels(4, 4, 3, Bytes(48, 9));
  grey.AddPixels(4, 4, 1, Bytes(16, 9));
  const std::vector<std::string> any = {
      "pad: {padding: 1, fill: ", "random_crop: {size: 4, padding: 1, fill: ",
      "random_zoom_out: {fill: ", "random_erasing: {value: ", "coarse_dropout: {fill: "};
  std::vector<std::string> all = any;
  for (const char* op :
       {"random_rotation: {degrees: 40, fill: ", "rand_augment: {fill: ", "aug_mix: {fill: ",
        "apply: {p: 1, ops: [pad: {padding: 1, fill: 0.485}]}"
        "\n- pad: {padding: 1, fill: "})
    all.emplace_back(op);
  for (const std::string& op : all) {
    const bool is_one = op.rfind("apply", 0) == 0;
    EXPECT_THAT(Refusal(absl::StrCat("- ", op, "[0.485, 0.456, 0.406]}"), rgb),
                AllOf(HasSubstr(is_one ? "is 0.485" : "is [0.485, 0.456, 0.406]"),
                      HasSubstr("'image'"), HasSubstr("0 to 255"),
                      HasSubstr(is_one ? "is 124 here" : "is [124, 116, 104] here")));
    if (is_one) continue;
    EXPECT_THAT(Refusal(absl::StrCat("- ", op, "[1, 2, 3]}"), grey),
                AllOf(HasSubstr("has 3 numbers"), HasSubstr("give one number")));
  }
  for (const std::string& op : any) {
    EXPECT_THAT(Refusal(absl::StrCat("- ", op, "-1}"), rgb), HasSubstr("is -1"));
    EXPECT_THAT(Refusal(absl::StrCat("- ", op, "256}"), rgb), HasSubstr("is 256"));
    EXPECT_THAT(Refusal(absl::StrCat("- ", op, "[0.5, 9, 9]}"), rgb),
                AllOf(HasSubstr("is [0.5, 9, 9]"), ::testing::Not(HasSubstr("of floats"))));
    // Behind normalize they are floats.
    const auto plan =
        MakePlan(PipelineText(absl::StrCat("- normalize: {mean: [0, 0, 0], std: [1, 1, 1]}\n- ", op,
                                           "[-1.5, 0.456, 300]}\n- center_crop: {size: 2}"),
                              "[image]"),
                 rgb.fields());
    EXPECT_TRUE(plan.ok()) << plan.status();
  }
}

TEST(JointFields, AMaskOfAnyTypeIsResampledAsOneOfBytesIs) {
  // Flips and windows behind the resize included.
  for (const char* op :
       {"- resize: {in: [image, mask], size: [7, 9]}",
        "- random_resized_crop: {in: [image, mask], size: [5, 11], scale: [0.3, 0.8]}",
        "- random_crop: {in: [image, mask], size: 8, padding: 3}"}) {
    TestRecord bytes, wide;
    const Bytes values = PatternPixels(13, 17, 1);
    for (TestRecord* record : {&bytes, &wide})
      record->AddPixels(13, 17, 3, PatternPixels(13, 17, 3));
    bytes.Add("mask", PixelSpec(13, 17, 1), PixelSpec(13, 17, 1), values);
    const TensorSpec spec{DType::kInt32, Layout::kPlain, {13, 17}};
    wide.Add("mask", spec, spec, BytesOf(std::vector<int32_t>(values.begin(), values.end())));
    for (int64_t id = 0; id < 5; ++id) {
      const auto narrow = RunGraph(op, bytes, "[mask]", id),
                 other = RunGraph(op, wide, "[mask]", id);
      ASSERT_TRUE(narrow.ok() && other.ok()) << narrow.status() << other.status();
      const auto numbers = As<int32_t>((*other)[0]);
      EXPECT_EQ(Bytes(numbers.begin(), numbers.end()), (*narrow)[0]) << op;
    }
  }
}

const char* const kMovers[] = {
    "random_horizontal_flip: {in: [image, boxes]}",
    "random_vertical_flip: {in: [image, boxes]}",
    "resize: {in: [image, boxes], size: [70, 150]}",
    "center_crop: {in: [image, boxes], size: [60, 140]}",
    "random_crop: {in: [image, boxes], size: [60, 90], padding: 10}",
    "random_resized_crop: {in: [image, boxes], size: [80, 90], scale: [0.3, 1]}",
    "random_iou_crop: {in: [image, boxes]}\n- resize: {in: [image, boxes], size: [96, 128]}",
    "random_zoom_out: {in: [image, boxes], p: 1}\n- resize: {in: [image, boxes], size: [196, 228]}",
    "pad: {in: [image, boxes], padding: [3, 0, 9, 5]}",
    "random_rotation: {in: [image, boxes], degrees: 180, interpolation: bilinear}",
    "random_rotation: {in: [image, boxes], degrees: 60}",
    "random_affine: {in: [image, boxes], degrees: 50, translate: [0.2, 0.1], scale: [0.5, 1.6], "
    "shear: [-20, 20, -15, 15], interpolation: bilinear}",
    "random_perspective: {in: [image, boxes], distortion_scale: 0.75, p: 1}",
    "grid_distortion: {in: [image, boxes], distort_limit: 0.8, p: 1}",
    "elastic_transform: {in: [image, boxes], alpha: 200, sigma: 8}",
};

class EveryMover : public ::testing::TestWithParam<const char*> {};

TEST_P(EveryMover, ADrawnBoxMovesAsTheBoxDoes) {
  constexpr int kHeight = 96, kWidth = 128;
  int seen = 0, exact = 0;
  for (int64_t id = 0; id < 60; ++id) {
    Draws draws(EpochKey(99, 0), static_cast<uint64_t>(id), 5);
    const int left = static_cast<int>(draws.Below(kWidth - 14)),
              top = static_cast<int>(draws.Below(kHeight - 14));
    const int right = left + 12 + static_cast<int>(draws.Below(kWidth - left - 12)),
              bottom = top + 12 + static_cast<int>(draws.Below(kHeight - top - 12));
    Bytes pixels(kHeight * kWidth * 3, 0);
    for (int y = top; y < bottom; ++y)
      std::fill_n(pixels.begin() + (y * kWidth + left) * 3, (right - left) * 3, 255);
    TestRecord record;
    record.AddPixels(kHeight, kWidth, 3, pixels);
    AddRows<float>(record, "boxes", 4,
                   {static_cast<float>(left), static_cast<float>(top), static_cast<float>(right),
                    static_cast<float>(bottom)});
    const auto plan = MakePlan(
        PipelineText(absl::StrCat("- ", GetParam()), "[image, {boxes: {pad_to: 1}}, boxes_length]"),
        record.fields());
    ASSERT_TRUE(plan.ok()) << plan.status();
    const auto outs = RunPlan(**plan, record, id);
    ASSERT_TRUE(outs.ok()) << outs.status();
    const auto& shape = (*plan)->outputs()[0].spec.shape;
    const int height = static_cast<int>(shape[0]), width = static_cast<int>(shape[1]);
    int x0 = width, y0 = height, x1 = 0, y1 = 0;
    for (int y = 0; y < height; ++y) {
      for (int x = 0; x < width; ++x) {
        if ((*outs)[0][static_cast<size_t>((y * width + x) * 3)] < 128) continue;
        x0 = std::min(x0, x), x1 = std::max(x1, x + 1);
        y0 = std::min(y0, y), y1 = std::max(y1, y + 1);
      }
    }
    if (x1 <= x0) continue;  // nothing of it is left to be seen
    const bool is_there = As<int64_t>((*outs)[2])[0] == 1;
    if (!is_there) {
      EXPECT_LE((x1 - x0) * (y1 - y0), 4) << "sample " << id;
      continue;
    }
    ++seen;
    const auto box = As<float>((*outs)[1]);
    constexpr float kSlack = 1.5f;
    EXPECT_LE(box[0], static_cast<float>(x0) + kSlack) << "sample " << id;
    EXPECT_LE(box[1], static_cast<float>(y0) + kSlack) << "sample " << id;
    EXPECT_GE(box[2], static_cast<float>(x1) - kSlack) << "sample " << id;
    EXPECT_GE(box[3], static_cast<float>(y1) - kSlack) << "sample " << id;
    if (x0 < 2 || y0 < 2 || x1 > width - 2 || y1 > height - 2) continue;
    // All of it is seen: then the box is no larger than the pixels either, but for the tip of a
    // sharp corner, which covers no half of a pixel.
    const float slack = absl::StrContains(GetParam(), "perspective") ? 3 : 2;
    ++exact;
    EXPECT_NEAR(box[0], static_cast<float>(x0), slack) << "sample " << id;
    EXPECT_NEAR(box[1], static_cast<float>(y0), slack) << "sample " << id;
    EXPECT_NEAR(box[2], static_cast<float>(x1), slack) << "sample " << id;
    EXPECT_NEAR(box[3], static_cast<float>(y1), slack) << "sample " << id;
  }
  EXPECT_GE(seen, 40);
  EXPECT_GE(exact, 5);
}

TEST_P(EveryMover, NoBoxesAndTenThousandAreMovedToo) {
  EXPECT_TRUE(Move(absl::StrCat("- ", GetParam()), ImageAndBoxes(96, 128, {}))->boxes.empty());
  std::vector<float> boxes;
  for (int i = 0; i < 10000; ++i) {
    const auto x = static_cast<float>(i % 100), y = static_cast<float>(i / 100) / 2;
    boxes.insert(boxes.end(), {x, y, x + 20, y + 30});
  }
  const auto moved =
      Move(absl::StrCat("- ", GetParam()), ImageAndBoxes(96, 128, boxes), false, 7, 10000);
  ASSERT_TRUE(moved.ok()) << moved.status();
  EXPECT_GT(moved->boxes.size(), 4u * 2000);
  for (size_t i = 0; i < moved->boxes.size(); i += 4) {
    ASSERT_LT(moved->boxes[i], moved->boxes[i + 2]);
    ASSERT_LT(moved->boxes[i + 1], moved->boxes[i + 3]);
  }
}

INSTANTIATE_TEST_SUITE_P(JointFields, EveryMover, ::testing::ValuesIn(kMovers),
                         [](const auto& info) {
                           return absl::StrCat(
                               std::string(info.param).substr(0, std::string(info.param).find(':')),
                               info.index);
                         });

TEST(JointFields, BoxesOnTheEdgeStayWhole) {
  EXPECT_THAT(Move("- random_horizontal_flip: {in: [image, boxes], p: 1}",
                   ImageAndBoxes(8, 8, {0, 0, 8, 8, 0, 0, 1, 1, 7, 7, 8, 8}))
                  ->boxes,
              ElementsAre(0, 0, 8, 8, 7, 0, 8, 1, 0, 7, 1, 8));
}

TEST(JointFields, WhatIsNoBoxMakesABadSampleAndSaysWhich) {
  const char* const op = "- random_rotation: {in: [image, boxes], degrees: 10}";
  EXPECT_THAT(Refusal(op, ImageAndBoxes(8, 8, {0, 0, 8, 8, 0, kNan, 1, 1})),
              AllOf(HasSubstr("random_rotation: field 'boxes' has the box [0, nan, 1, 1] in row 1"),
                    HasSubstr("invalid_boxes: drop")));
  EXPECT_THAT(Refusal(op, ImageAndBoxes(8, 8, {5, 0, 4, 8})), HasSubstr("[5, 0, 4, 8] in row 0"));
  EXPECT_THAT(Refusal(op, ImageAndBoxes(8, 8, {0, 0, INFINITY, 8})), HasSubstr("in row 0"));
}

TEST(JointFields, LabelsMustBeAsManyAsBoxes) {
  TestRecord record = ImageAndBoxes(8, 8, {0, 0, 8, 8});
  AddRows<int64_t>(record, "labels", 0, {1, 2});
  EXPECT_THAT(
      Refusal("- center_crop: {in: [image, boxes, labels], size: 4}", record),
      HasSubstr("field 'labels' has 2 rows, but field 'boxes', whose labels they are, has 1"));
}

TEST(JointFields, WhatCannotBeToldApartIsRefusedBeforeTheFirstSample) {
  TestRecord record = ImageAndBoxes(8, 8, {});
  AddRows<int64_t>(record, "labels", 0, {});
  AddRows<int64_t>(record, "whole", 4, {});
  AddRows<float>(record, "five", 5, {});
  const TensorSpec small{DType::kUInt8, Layout::kPlain, {4, 8}};
  record.Add("small", small, small, Bytes(32));
  const auto refusal = [&](const std::string& in) {
    return Refusal(absl::StrCat("- random_horizontal_flip: {in: ", in, "}"), record);
  };
  EXPECT_THAT(
      refusal("[image, labels]"),
      AllOf(HasSubstr("test.yaml:"), HasSubstr("op 'random_horizontal_flip' moves field 'labels'"),
            HasSubstr("stands behind no boxes")));
  EXPECT_THAT(refusal("[image, whole]"),
              HasSubstr("use '- cast: {in: whole, dtype: float32}' first"));
  EXPECT_THAT(refusal("[image, five]"), HasSubstr("no boxes (float32 [?,4])"));
  EXPECT_THAT(refusal("[image, small]"), HasSubstr("they must have one size"));
  EXPECT_THAT(refusal("[boxes, image]"), HasSubstr("'boxes' is float32[?,4]"));
}

TEST(JointFields, AMaskOfAnotherSizeIsABadSampleWhereSizesVary) {
  TestRecord record;
  record.AddEncoded(EncodedImage(6, 5, ".png"));
  const TensorSpec open{DType::kUInt8, Layout::kPlain, {-1, -1}},
      mask{DType::kUInt8, Layout::kPlain, {6, 6}};
  record.Add("mask", open, mask, Bytes(36));
  const auto result = RunGraph("- decode\n- resize: {in: [image, mask], size: [4, 4]}", record);
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(std::string(result.status().message()),
              HasSubstr("must have one size, but field 'mask' is uint8[6,6]"));
}

TEST(JointFields, WhatACacheKeepsOfBoxesIsWhatTheyWere) {
  TestRecord record = ImageAndBoxes(30, 40, {0, 0, 9, 9, 20, 10, 35, 25});
  AddRows<int64_t>(record, "labels", 0, {3, 4});
  const auto plan =
      MakePlan(PipelineText("- center_crop: {in: [image, boxes, labels], size: [20, 24]}\n"
                            "- random_rotation: {in: [image, boxes, labels], degrees: 20}",
                            "[image, {boxes: {pad_to: 2}}, {labels: {pad_to: 2}}, boxes_length]"),
               record.fields());
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto whole = RunPlan(**plan, record), halves = RunPlanInHalves(**plan, record);
  ASSERT_TRUE(whole.ok() && halves.ok()) << whole.status() << halves.status();
  EXPECT_EQ(*whole, *halves);
}

}  // namespace
}  // namespace feedwater::server
