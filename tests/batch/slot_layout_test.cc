// Where the outputs of a batch stand: in order, aligned, rounded to pages, and never past the limit
// or the end of the numbers.
#include "server/batch/slot_layout.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <limits>

namespace feedwater::server {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

FieldSpec Field(std::string name, DType dtype, Shape shape) {
  FieldSpec field;
  field.name = std::move(name);
  field.spec.dtype = dtype;
  field.spec.shape = std::move(shape);
  return field;
}

TEST(SlotLayout, OutputsFollowEachOtherAligned) {
  const auto layout =
      SlotLayout::Create({Field("image", DType::kUInt8, {3, 5, 7}),
                          Field("label", DType::kInt64, {}), Field("mask", DType::kFloat32, {2})},
                         3, kNoLimit);
  ASSERT_TRUE(layout.ok()) << layout.status();
  ASSERT_EQ(layout->outputs.size(), 3u);
  EXPECT_EQ(layout->batch_size, 3);
  EXPECT_EQ(layout->outputs[0].offset, 0);
  EXPECT_EQ(layout->outputs[0].sample_bytes, 105);
  EXPECT_EQ(layout->outputs[1].offset, 320);  // 315 rounded up to 64
  EXPECT_EQ(layout->outputs[1].sample_bytes, 8);
  EXPECT_EQ(layout->outputs[2].offset, 384);  // 344 rounded up to 64
  EXPECT_EQ(layout->slot_bytes, sysconf(_SC_PAGESIZE));
  EXPECT_EQ(layout->outputs[2].field.name, "mask");
}

TEST(SlotLayout, ARaggedOutputHasRoomForAllItsRowsAndThenItsOffsets) {
  FieldSpec boxes = Field("boxes", DType::kFloat32, {-1, 4});
  boxes.max_rows = 5;
  const auto layout = SlotLayout::Create({boxes, Field("label", DType::kInt64, {})}, 3, kNoLimit);
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(layout->outputs[0].sample_bytes, 80);
  EXPECT_EQ(layout->outputs[0].offsets_offset, 256);  // 240 rounded up to 64
  EXPECT_EQ(layout->outputs[1].offset, 320);          // 256 and four numbers, rounded up
  EXPECT_EQ(layout->outputs[1].offsets_offset, -1);
  std::byte slot[1];
  const BatchMemory memory = layout->MemoryOf(slot);
  EXPECT_EQ(reinterpret_cast<std::byte*>(memory.offsets[0]), slot + 256);
  EXPECT_EQ(memory.offsets[1], nullptr);

  boxes.max_rows = 6;
  EXPECT_NE(layout->DifferenceFrom(
                *SlotLayout::Create({boxes, Field("label", DType::kInt64, {})}, 3, kNoLimit)),
            "");
  boxes.max_rows = kNoLimit / 64;
  const auto large = SlotLayout::Create({boxes}, 8, kNoLimit);
  EXPECT_EQ(large.status().code(), absl::StatusCode::kInvalidArgument) << large.status();
  boxes.max_rows = 1 << 20;
  const auto over = SlotLayout::Create({boxes}, 8, 1 << 20);
  EXPECT_NE(over.status().message().find("max_rows"), absl::string_view::npos) << over.status();
}

TEST(SlotLayout, ASlotIsAWholeNumberOfPagesAndAtLeastOne) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  EXPECT_EQ(SlotLayout::Create({Field("a", DType::kUInt8, {page})}, 2, kNoLimit)->slot_bytes,
            2 * page);
  EXPECT_EQ(SlotLayout::Create({Field("a", DType::kUInt8, {page + 1})}, 1, kNoLimit)->slot_bytes,
            2 * page);
  EXPECT_EQ(SlotLayout::Create({Field("a", DType::kUInt8, {0})}, 4, kNoLimit)->slot_bytes, page);
}

TEST(SlotLayout, ABatchOverTheLimitIsRefusedWithItsSize) {
  const auto layout = SlotLayout::Create(
      {Field("image", DType::kFloat32, {3, 224, 224}), Field("label", DType::kInt64, {})},
      1'000'000, int64_t{4} << 30);
  ASSERT_EQ(layout.status().code(), absl::StatusCode::kInvalidArgument);
  for (const char* part : {"1000000 samples", "602112 (image)", "8 (label)", "4.0 GiB"}) {
    EXPECT_NE(layout.status().message().find(part), absl::string_view::npos)
        << part << " in " << layout.status();
  }
}

TEST(SlotLayout, TheLimitItselfIsAllowed) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  EXPECT_TRUE(SlotLayout::Create({Field("a", DType::kUInt8, {page})}, 4, 4 * page).ok());
  EXPECT_FALSE(SlotLayout::Create({Field("a", DType::kUInt8, {page})}, 4, 4 * page - 1).ok());
}

TEST(SlotLayout, NoBatchSizeOverflows) {
  const std::vector<FieldSpec> outputs = {Field("a", DType::kFloat32, {3, 224, 224}),
                                          Field("b", DType::kUInt8, {1})};
  for (int64_t batch_size :
       {int64_t{1} << 40, int64_t{1} << 62, kNoLimit, kNoLimit / 602112, kNoLimit / 602112 - 1}) {
    const auto layout = SlotLayout::Create(outputs, batch_size, int64_t{1} << 50);
    EXPECT_EQ(layout.status().code(), absl::StatusCode::kInvalidArgument) << batch_size;
  }
  const auto huge = SlotLayout::Create({Field("a", DType::kUInt8, {kNoLimit})}, 1, kNoLimit);
  EXPECT_EQ(huge.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(SlotLayout, ABatchHasSamplesAndOutputs) {
  EXPECT_EQ(SlotLayout::Create({Field("a", DType::kUInt8, {1})}, 0, kNoLimit).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(SlotLayout::Create({Field("a", DType::kUInt8, {1})}, -5, kNoLimit).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(SlotLayout::Create({}, 8, kNoLimit).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(SlotLayout, AnOutputOfNoFixedSizeIsRefusedByName) {
  const auto layout =
      SlotLayout::Create({Field("picture", DType::kUInt8, {-1, -1, 3})}, 8, kNoLimit);
  EXPECT_FALSE(layout.ok());
  EXPECT_NE(layout.status().message().find("'picture'"), absl::string_view::npos)
      << layout.status();
}

}  // namespace
}  // namespace feedwater::server
