// Packed fields come back as they were; bytes that are cut, flipped or of another graph are refused
// or at least never read beyond their end.
#include "server/pipeline/kept_fields.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "tests/testing/test_seed.h"

namespace feedwater::server {
namespace {

const TensorSpec kLabel{DType::kInt64, Layout::kPlain, {}};
const TensorSpec kAnyImage{DType::kUInt8, Layout::kHWC, {-1, -1, 3}};
const TensorSpec kFloats{DType::kFloat32, Layout::kPlain, {5}};

KeptForm TestPrefix() {
  KeptForm prefix;
  prefix.digest = "0123456789abcdef0123456789abcdef";
  prefix.fields = {{"label", kLabel, ""}, {"image", kAnyImage, ""}, {"weights", kFloats, ""}};
  return prefix;
}

class KeptFields : public ::testing::Test {
 protected:
  KeptFields() {
    for (size_t i = 0; i < memory_.size(); ++i) memory_[i] = static_cast<std::byte>(i * 7);
    record_.fields = {{kLabel, memory_.data()},
                      {{DType::kUInt8, Layout::kHWC, {4, 11, 3}}, memory_.data() + 8},
                      {kFloats, memory_.data() + 200}};
  }

  const KeptForm prefix_ = TestPrefix();
  std::vector<std::byte> memory_ = std::vector<std::byte>(1024);
  Record record_;
};

TEST_F(KeptFields, ComeBackAsTheyWere) {
  std::vector<std::byte> payload;
  ASSERT_TRUE(PackFields(prefix_, record_, &payload));
  Record back;
  ASSERT_TRUE(UnpackFields(prefix_, payload, &back).ok());
  ASSERT_EQ(back.fields.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(back.fields[i].spec, record_.fields[i].spec);
    EXPECT_EQ(std::memcmp(back.fields[i].data, record_.fields[i].data, record_.fields[i].bytes()),
              0);
    EXPECT_EQ((back.fields[i].data - payload.data()) % 64, 0);
  }
}

TEST_F(KeptFields, OfNoElementsAreKept) {
  record_.fields[1] = {{DType::kUInt8, Layout::kHWC, {0, 11, 3}}, nullptr};
  std::vector<std::byte> payload;
  ASSERT_TRUE(PackFields(prefix_, record_, &payload));
  Record back;
  ASSERT_TRUE(UnpackFields(prefix_, payload, &back).ok());
  EXPECT_EQ(back.fields[1].elements(), 0);
}

TEST_F(KeptFields, TooLargeForABlockAreNotKept) {
  std::vector<std::byte> payload;
  // Never read: sizes are looked at before bytes.
  record_.fields[1].spec.shape = {1 << 13, 1 << 12, 3};
  EXPECT_FALSE(PackFields(prefix_, record_, &payload));
  record_.fields[1].spec.shape = {int64_t{1} << 40, int64_t{1} << 40, 3};
  EXPECT_FALSE(PackFields(prefix_, record_, &payload));
}

TEST_F(KeptFields, OfAnotherGraphAreRefused) {
  std::vector<std::byte> payload;
  ASSERT_TRUE(PackFields(prefix_, record_, &payload));
  Record back;
  KeptForm other = TestPrefix();
  other.digest.back() = '0';
  EXPECT_FALSE(UnpackFields(other, payload, &back).ok());
  other = TestPrefix();
  other.fields.pop_back();
  EXPECT_FALSE(UnpackFields(other, payload, &back).ok());
  other = TestPrefix();
  other.fields[1].spec.shape = {4, 12, 3};
  EXPECT_FALSE(UnpackFields(other, payload, &back).ok());
  other.fields[1].spec.shape = {-1, -1, 3, -1};
  EXPECT_FALSE(UnpackFields(other, payload, &back).ok());
}

TEST_F(KeptFields, ThatAreCutAnywhereAreRefused) {
  std::vector<std::byte> payload;
  ASSERT_TRUE(PackFields(prefix_, record_, &payload));
  // The last field is padded: what is cut of the padding is not missed.
  const size_t needed = payload.size() - 64 + 5 * sizeof(float);
  for (size_t bytes = 0; bytes < payload.size(); ++bytes) {
    const std::vector<std::byte> cut(payload.begin(),
                                     payload.begin() + static_cast<ptrdiff_t>(bytes));
    Record back;
    EXPECT_EQ(UnpackFields(prefix_, cut, &back).ok(), bytes >= needed) << bytes;
  }
}

TEST_F(KeptFields, ThatAreFlippedNeverReachBeyondThePayload) {
  std::vector<std::byte> payload;
  ASSERT_TRUE(PackFields(prefix_, record_, &payload));
  const uint32_t seed = ::feedwater::testing::TestSeed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::vector<std::byte> hostile = payload;
    for (int flips = 1 + static_cast<int>(random() % 3); flips-- > 0;)
      hostile[random() % 128] = static_cast<std::byte>(random());
    Record back;
    if (!UnpackFields(prefix_, hostile, &back).ok()) {
      ++refused;
      continue;
    }
    for (const Tensor& field : back.fields) {
      ASSERT_TRUE(field.spec.IsStatic());
      ASSERT_GE(field.data, hostile.data());
      ASSERT_LE(field.data + field.bytes(), hostile.data() + hostile.size());
    }
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace feedwater::server
