#include "server/base/tensor.h"

#include <gtest/gtest.h>

namespace feedwater::server {
namespace {

TEST(Tensor, EveryDTypeHasANameThatReadsBack) {
  for (int number = 1; number <= 11; ++number) {
    const auto dtype = static_cast<DType>(number);
    EXPECT_GT(DTypeSize(dtype), 0u) << number;
    auto back = DTypeFromName(DTypeName(dtype));
    ASSERT_TRUE(back.ok()) << number;
    EXPECT_EQ(*back, dtype);
  }
  EXPECT_EQ(DTypeSize(static_cast<DType>(0)), 0u);
  EXPECT_EQ(DTypeName(static_cast<DType>(200)), "unknown");
}

TEST(Tensor, AnUnknownDTypeIsRefusedWithTheNearest) {
  const absl::Status status = DTypeFromName("flaot32").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("did you mean 'float32'?"), absl::string_view::npos) << status;
}

TEST(Tensor, SizesAreCheckedForOverflow) {
  EXPECT_EQ(*(TensorSpec{DType::kFloat32, Layout::kCHW, {3, 224, 224}}).ByteSize(), 602112);
  EXPECT_EQ(*(TensorSpec{DType::kInt64, Layout::kPlain, {}}).ByteSize(), 8);
  EXPECT_EQ(*(TensorSpec{DType::kInt64, Layout::kPlain, {0, 5}}).ByteSize(), 0);
  EXPECT_FALSE((TensorSpec{DType::kInt64, Layout::kPlain, {int64_t{1} << 32, int64_t{1} << 32}})
                   .ByteSize()
                   .ok());
  EXPECT_FALSE((TensorSpec{DType::kUInt8, Layout::kHWC, {-1, -1, 3}}).ByteSize().ok());
  EXPECT_FALSE((TensorSpec{DType::kUInt8, Layout::kHWC, {-1, -1, 3}}).IsStatic());
}

TEST(Tensor, DescribesItself) {
  EXPECT_EQ((TensorSpec{DType::kUInt8, Layout::kHWC, {224, -1, 3}}).ToString(),
            "uint8[224,?,3] HWC");
  EXPECT_EQ((TensorSpec{DType::kInt64, Layout::kPlain, {}}).ToString(), "int64[]");
  Tensor tensor{{DType::kFloat16, Layout::kPlain, {2, 5}}, nullptr};
  EXPECT_EQ(tensor.elements(), 10);
  EXPECT_EQ(tensor.bytes(), 20u);
}

}  // namespace
}  // namespace feedwater::server
