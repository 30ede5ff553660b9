// Images whose size an op draws: what is reserved for them follows from what goes in, and no draw
// takes more.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <utility>

#include "server/graph/sample_memory.h"
#include "server/graph/workspace.h"
#include "tests/graph/graph_testing.h"
#include "tests/graph/sample_need.h"
#include "tests/testing/test_seed.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words

// An image of open size, and a box over its middle.
TestRecord PictureWithBox(int64_t height, int64_t width) {
  TestRecord record;
  record.Add("image", PixelSpec(-1, -1, 3), PixelSpec(height, width, 3),
             PatternPixels(height, width, 3));
  const TensorSpec boxes = OpenSpec(DType::kFloat32, {-1, 4});
  const float box[4] = {0.25f * static_cast<float>(width), 0.25f * static_cast<float>(height),
                        0.75f * static_cast<float>(width), 0.75f * static_cast<float>(height)};
  Bytes bytes(sizeof(box));
  std::memcpy(bytes.data(), box, sizeof(box));
  record.Add("boxes", boxes, boxes.WithRows(1), std::move(bytes));
  return record;
}

// The standard graph of SSD, and ops that draw a size before one that does not fuse.
TEST(DrawnSizes, AnImageTakesWhatItsOwnSizeAllows) {
  struct Case {
    const char* graph;
    double images;  // at most, in pictures as large as the record's
  };
  for (const auto& [graph, images] : {
           Case{"- random_photometric_distort\n- random_zoom_out: {in: [image, boxes]}\n"
                "- random_iou_crop: {in: [image, boxes]}\n- random_horizontal_flip: {in: [image, "
                "boxes]}",
                4 * 16},
           Case{"- random_iou_crop: {in: [image, boxes]}", 2},
           Case{"- random_rotation: {degrees: 90, expand: true}\n- gaussian_noise", 2 * 2.5},
           Case{"- random_zoom_out: {side_range: [1, 2]}\n- gaussian_noise", 3 * 4.5},
           Case{
               "- scale_jitter: {target_size: [375, 500], scale_range: [0.5, 2]}\n- gaussian_noise",
               2 * 4.5},
           Case{"- random_resize: {min_size: 300, max_size: 376}\n- gaussian_noise", 3},
           Case{"- random_short_side: {min_size: [300, 375]}\n- gaussian_noise", 3},
           Case{"- one_of: {ops: [random_zoom_out: {side_range: [1, 2]}, gaussian_blur: "
                "{kernel_size: 3}]}\n- gaussian_noise",
                4 * 4.5},
       }) {
    TestRecord record = PictureWithBox(375, 500);
    const auto plan =
        MakePlan(PipelineText(absl::StrCat(graph, "\n- resize: {size: [300, 300]}"), "[image]"),
                 record.fields());
    ASSERT_TRUE(plan.ok()) << plan.status();
    constexpr int64_t kOne = 375 * 500 * 3, kRows = 2 << 20;
    // What rows take does not depend on max_pixels alone: a narrow image has long ones.
    const double rows = 96.0 * 2 * images * 375 * 500 / 2;
    EXPECT_LT(NeedOf(**plan, record), images * kOne + rows + kRows) << graph;
    EXPECT_GT((*plan)->memory(SampleWay::kWhole).most, 100'000'000) << graph;
  }
}

TEST(DrawnSizes, NoDrawTakesMoreThanWasReserved) {
  const std::vector<std::string> ops = {
      "random_iou_crop: {in: [image, boxes]}",
      "random_rotation: {in: [image, boxes], degrees: 180, expand: true}",
      "random_rotation: {degrees: [44, 46], expand: true, center: [-700, 900]}",
      "random_zoom_out: {in: [image, boxes], side_range: [1, 3]}",
      "scale_jitter: {target_size: [90, 40], scale_range: [0.3, 1.7]}",
      "random_resize: {min_size: 5, max_size: 70}",
      "random_short_side: {min_size: [3, 31, 64]}",
      "random_short_side: {min_size: [3, 31, 64], max_size: 80}",
      "resize: {size: 37}",
      "resize: {size: 37, max_size: 50, interpolation: opencv_linear}",
      "scale_jitter: {target_size: 50, interpolation: opencv_linear}",
      "pad: {padding: [0, 3]}",
      "random_horizontal_flip",
      "random_equalize",
      "grayscale: {num_output_channels: 3}",
      "gaussian_noise",
      "gaussian_blur: {kernel_size: 3}",
      "random_erasing",
      "coarse_dropout",
      "random_adjust_sharpness: {sharpness_factor: 2}",
      "trivial_augment_wide",
      "rand_augment",
      "aug_mix",
      "elastic_transform",
      "python: {name: mine}",
      "one_of: {in: [image, boxes], ops: [random_zoom_out, random_iou_crop]}",
      "some_of: {n: 2, ops: [random_zoom_out, random_resize: {min_size: 8, max_size: 40}, "
      "random_rotation: {degrees: 90, expand: true}]}",
      "repeat: {times: 3, ops: [random_zoom_out: {side_range: [1, 1.5]}]}",
  };
  const uint32_t seed = testing::TestSeed();
  SCOPED_TRACE(absl::StrCat("FEEDWATER_TEST_SEED=", seed));
  std::mt19937_64 random(seed);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  int good = 0;
  for (int round = 0; round < 400; ++round) {
    const auto height = static_cast<int64_t>(1 + below(120)),
               width = static_cast<int64_t>(1 + below(120));
    TestRecord record = PictureWithBox(height, width);
    std::string graph;
    for (size_t i = 1 + below(4); i > 0; --i)
      absl::StrAppend(&graph, "- ", ops[below(ops.size())], "\n");
    const auto plan = MakePlan(PipelineText(absl::StrCat(graph, "- resize: {size: [8, 8]}"),
                                            "[image]", "limits: {max_pixels: 200000}\n"),
                               record.fields(), /*fuse=*/round % 4 != 0);
    ASSERT_TRUE(plan.ok()) << plan.status();
    for (int64_t id = 0; id < 5; ++id) {
      SampleWorkspace workspace;
      TestCaller caller;
      workspace.UseCaller(&caller, nullptr);
      TestBatch batch(**plan, 1);
      SampleInput input;
      input.record = record.record();
      input.sample_id = id;
      const int64_t need = (*plan)->NeedOf(input, SampleWay::kWhole, workspace).bytes;
      // The plan counts nothing for boxes of whatever number.
      EXPECT_LE(need, (*plan)->memory(SampleWay::kWhole).most + 3 * GrowingBuffer::Capacity(0))
          << graph;
      good += (*plan)->Run(input, 0, batch.memory, workspace).ok();
      const SampleWorkspace::Impl& work = *workspace.impl();
      const auto reserved = [](const std::vector<int64_t>& needs, size_t i) {
        return i < needs.size() ? needs[i] : 0;
      };
      for (size_t i = 0; i < work.buffers.size(); ++i) {
        ASSERT_LE(work.buffers[i].capacity(), reserved(work.needs.buffers, i))
            << "buffer " << i << " of " << width << "x" << height << "\n"
            << graph;
      }
      for (size_t i = 0; i < work.spares.size(); ++i) {
        ASSERT_LE(work.spares[i].capacity(), reserved(work.needs.spares, i))
            << "spare " << i << " of " << width << "x" << height << "\n"
            << graph;
      }
      // Who asks for nothing gets the smallest buffer there is.
      ASSERT_LE(work.scratch.capacity(), std::max(work.needs.scratch, GrowingBuffer::Capacity(0)))
          << "scratch of " << width << "x" << height << "\n"
          << graph;
    }
  }
  EXPECT_GT(good, 1000) << "most draws must make a sample";
}

}  // namespace
}  // namespace feedwater::server
