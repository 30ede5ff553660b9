// Payloads: tensors written by one side and read by another that believes nothing of them.
#include "server/base/payload.h"

#include <gmock/gmock.h>

#include <cstring>
#include <random>

#include "absl/strings/str_cat.h"
#include "proto/shm/wire.h"

namespace feedwater::server {
namespace {

using ::testing::HasSubstr;

struct Written {
  std::vector<float> floats{1, 2, 3, 4, 5, 6};
  int64_t number = 42;
  std::vector<std::byte> bytes;
  std::vector<TensorSpec> specs;

  Written() {
    const std::vector<Tensor> tensors = {
        {{DType::kFloat32, Layout::kPlain, {2, 3}}, reinterpret_cast<std::byte*>(floats.data())},
        {{DType::kInt64, Layout::kPlain, {}}, reinterpret_cast<std::byte*>(&number)}};
    for (const Tensor& tensor : tensors) specs.push_back(tensor.spec);
    bytes.resize(static_cast<size_t>(*PayloadBytes(specs)));
    WritePayload(tensors, bytes.data());
  }
  wire::TensorHead* head(size_t i) { return reinterpret_cast<wire::TensorHead*>(bytes.data()) + i; }
};

absl::Status Read(absl::Span<const std::byte> bytes, absl::Span<const TensorSpec> declared,
                  std::vector<Tensor>* tensors) {
  return ReadPayload(
      bytes, declared, [](size_t i) { return absl::StrCat("field ", i); }, tensors);
}

TEST(Payload, WhatIsWrittenIsRead) {
  Written written;
  std::vector<Tensor> tensors;
  ASSERT_TRUE(Read(written.bytes, written.specs, &tensors).ok());
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(std::memcmp(tensors[0].data, written.floats.data(), 24), 0);
  EXPECT_EQ(*tensors[1].as<int64_t>(), 42);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tensors[0].data) % alignof(float), 0u);
}

TEST(Payload, AnAxisOfAnySizeIsTakenFromTheHead) {
  Written written;
  const std::vector<TensorSpec> declared = {{DType::kFloat32, Layout::kPlain, {-1, 3}},
                                            {DType::kInt64, Layout::kPlain, {}}};
  std::vector<Tensor> tensors;
  ASSERT_TRUE(Read(written.bytes, declared, &tensors).ok());
  EXPECT_EQ(tensors[0].spec.shape, (Shape{2, 3}));
}

TEST(Payload, AnotherTypeOrShapeIsNamed) {
  Written written;
  std::vector<TensorSpec> declared = written.specs;
  declared[0].shape = {3, 3};
  std::vector<Tensor> tensors;
  const absl::Status status = Read(written.bytes, declared, &tensors);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("field 0 is float32[3,3], and float32[2,3] came"));
  written.head(1)->dtype = 200;
  EXPECT_THAT(std::string(Read(written.bytes, written.specs, &tensors).message()),
              HasSubstr("something that is no tensor"));
}

TEST(Payload, NothingOutsideOfItIsEverPointedAt) {
  Written written;
  const std::vector<TensorSpec> open = {{DType::kFloat32, Layout::kPlain, {-1, -1}},
                                        {DType::kInt64, Layout::kPlain, {}}};
  std::vector<Tensor> tensors;
  for (const int64_t rows : {int64_t{30}, int64_t{1} << 40, INT64_MAX, int64_t{-1}, INT64_MIN}) {
    Written broken;
    broken.head(0)->shape[0] = rows;
    EXPECT_TRUE(absl::IsInvalidArgument(Read(broken.bytes, open, &tensors))) << rows;
  }
  for (const uint64_t offset : {uint64_t{0}, uint64_t{64}, UINT64_MAX, uint64_t{1} << 63}) {
    Written broken;
    broken.head(1)->offset = offset;
    EXPECT_TRUE(absl::IsInvalidArgument(Read(broken.bytes, open, &tensors))) << offset;
  }
  for (size_t size = 0; size < written.bytes.size(); ++size)
    EXPECT_FALSE(Read(absl::MakeSpan(written.bytes).first(size), open, &tensors).ok()) << size;
  std::mt19937 random(1);  // NOLINT(cert-msc51-cpp): the same bytes each time
  for (int i = 0; i < 20'000; ++i) {
    Written broken;
    for (int flips = 0; flips < 4; ++flips)
      broken.bytes[random() % (2 * sizeof(wire::TensorHead))] = static_cast<std::byte>(random());
    if (!Read(broken.bytes, open, &tensors).ok()) continue;
    for (const Tensor& tensor : tensors) {
      EXPECT_GE(tensor.data, broken.bytes.data());
      EXPECT_LE(tensor.data + tensor.bytes(), broken.bytes.data() + broken.bytes.size());
    }
  }
}

TEST(Payload, SizesThatOverflowAreRefused) {
  const TensorSpec large{DType::kUInt8, Layout::kPlain, {INT64_MAX - 100}};
  EXPECT_FALSE(PayloadBytes(std::vector<TensorSpec>{large, large}).ok());
  EXPECT_FALSE(PayloadBytes(std::vector<TensorSpec>{{DType::kUInt8, Layout::kPlain, {-1}}}).ok());
}

}  // namespace
}  // namespace feedwater::server
