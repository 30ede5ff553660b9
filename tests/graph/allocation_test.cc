// Once warm, a sample is made without asking the allocator for anything: memory stays flat and
// workers do not meet in malloc.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "tests/graph/graph_testing.h"

namespace {
std::atomic<int64_t> allocations{0};

void* Allocate(size_t bytes, size_t alignment = alignof(std::max_align_t)) {
  ++allocations;
  void* memory = std::aligned_alloc(
      alignment, (bytes + alignment - 1) / alignment * alignment + (bytes == 0 ? alignment : 0));
  if (memory == nullptr) std::abort();
  return memory;
}
}  // namespace

void* operator new(size_t bytes) { return Allocate(bytes); }
void* operator new[](size_t bytes) { return Allocate(bytes); }
// std::stable_sort asks for its buffer with this one.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return Allocate(bytes); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<size_t>(alignment));
}
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words

int64_t AllocationsWhenWarm(const std::string& graph, TestRecord record,
                            const std::string& batch = "") {
  const auto plan = MakePlan(PipelineText(graph, "[image, label]", batch), record.fields());
  EXPECT_TRUE(plan.ok()) << plan.status();
  if (!plan.ok()) return -1;
  constexpr int64_t kBatch = 4;
  SampleWorkspace workspace;
  TestBatch memory(**plan, kBatch);
  SampleInput input;
  input.record = record.record();
  const auto round = [&] {
    bool good = true;
    for (int64_t k = 0; k < kBatch; ++k) {
      input.sample_id = k;  // the same samples each round: the same crops need the same memory
      good &= (*plan)->Run(input, k, memory.memory, workspace).ok();
    }
    return good && (*plan)->FinishBatch(kBatch, 1, {}, memory.memory, workspace).ok();
  };
  EXPECT_TRUE(round() && round());
  const int64_t before = allocations;
  EXPECT_TRUE(round());
  return allocations - before;
}

TEST(Allocation, ATrainingSampleFromAJpegNeedsNone) {
  TestRecord record;
  record.AddEncoded(EncodedImage(300, 400, ".jpg")).AddLabel(1);
  EXPECT_EQ(
      AllocationsWhenWarm("- decode\n- random_resized_crop: {size: 64}\n- random_horizontal_flip\n"
                          "- normalize: {mean: [120], std: [60]}",
                          record),
      0);
}

TEST(Allocation, SeparateStepsNeedNone) {
  TestRecord record;
  record.AddEncoded(EncodedImage(300, 400, ".jpg")).AddLabel(1);
  EXPECT_EQ(AllocationsWhenWarm(
                "- decode\n- random_resized_crop: {size: 64}\n- color_jitter: {brightness: 0.4, "
                "hue: 0.1}\n"
                "- center_crop: {size: 70}\n- cast: {dtype: float64}\n- layout\n- one_hot",
                record),
            0);
}

TEST(Allocation, OpsOfColoursNeedNone) {
  TestRecord record;
  record.AddEncoded(EncodedImage(300, 400, ".jpg")).AddLabel(1);
  EXPECT_EQ(AllocationsWhenWarm(
                "- decode\n- random_resized_crop: {size: 64}\n- color_jitter: {brightness: 0.4, "
                "contrast: 0.4, saturation: 0.4, hue: 0.1}\n- random_equalize: {p: 1}\n"
                "- random_grayscale: {p: 0.5}\n- normalize: {mean: [120], std: [60]}",
                record),
            0);
}

TEST(Allocation, StoredPixelsAndBatchOpsNeedNone) {
  TestRecord record;
  record.AddPixels(32, 32, 3, PatternPixels(32, 32, 3)).AddLabel(1);
  EXPECT_EQ(AllocationsWhenWarm(
                "- random_crop: {size: 32, padding: 4}\n- normalize: {mean: [120], std: [60]}",
                record, "batch: {graph: [mixup, cutmix]}\n"),
            0);
  EXPECT_EQ(AllocationsWhenWarm("- random_crop: {size: 32, padding: 4}\n- normalize: {mean: [120], "
                                "std: [60]}",
                                record, "batch: {graph: [mosaic, resize_mix]}\n"),
            0);
}

TEST(Allocation, WarpsFiltersAndBoxesNeedNone) {
  TestRecord record;
  record.AddPixels(48, 56, 3, PatternPixels(48, 56, 3)).AddLabel(1);
  const TensorSpec boxes{DType::kFloat32, Layout::kPlain, {-1, 4}},
      labels{DType::kInt64, Layout::kPlain, {-1}}, mask{DType::kInt32, Layout::kPlain, {48, 56}};
  record.Add("boxes", boxes, boxes.WithRows(40), Bytes(40 * 16));
  record.Add("labels", labels, labels.WithRows(40), Bytes(40 * 8));
  record.Add("mask", mask, mask, Bytes(48 * 56 * 4));
  std::string graph;
  for (const char* op :
       {"random_horizontal_flip", "random_rotation: {degrees: 30}", "random_affine: {degrees: 9}",
        "random_perspective: {p: 1}", "elastic_transform", "grid_distortion: {p: 1}",
        "resize: {size: [40, 50]}", "pad: {padding: 3}"}) {
    const std::string text = op;
    const size_t colon = text.find(':');
    absl::StrAppend(&graph, "- ", text.substr(0, colon), ": {in: [image, mask, boxes, labels]",
                    colon == std::string::npos ? "}" : ", " + text.substr(text.find('{') + 1),
                    "\n");
  }
  absl::StrAppend(
      &graph,
      "- gaussian_blur: {kernel_size: 9}\n- random_adjust_sharpness: {sharpness_factor: 2, p: "
      "1}\n- gaussian_noise\n- motion_blur: {p: 1}\n- median_blur: {p: 1}\n- clahe: {p: 1}\n"
      "- jpeg: {quality: 60}\n- coarse_dropout: {p: 1}\n"
      "- random_erasing: {p: 1}\n- trivial_augment_wide\n- rand_augment: {num_ops: 16}\n"
      "- auto_augment: {policy: svhn}\n- aug_mix");
  EXPECT_EQ(AllocationsWhenWarm(graph, record), 0);
}

}  // namespace
}  // namespace feedwater::server
