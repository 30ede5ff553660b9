// What either side of a decoder's memory may believe of the other.
#include "server/decoder/region.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <random>

namespace feedwater::server {
namespace {

RegionField Field(std::initializer_list<int64_t> shape, uint64_t bytes, uint64_t offset = 0) {
  RegionField field;
  EXPECT_TRUE(Describe({DType::kUInt8, Layout::kPlain, Shape(shape)}, offset, bytes, &field));
  return field;
}

TEST(RegionField, ComesBackAsItWasDescribed) {
  const TensorSpec spec{DType::kFloat32, Layout::kCHW, {3, 4, 5}};
  RegionField field;
  ASSERT_TRUE(Describe(spec, 128, 240, &field));
  const auto got = CheckField(field, 368);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(*got, spec);
  EXPECT_FALSE(CheckField(field, 367).ok());
  EXPECT_FALSE(Describe({DType::kUInt8, Layout::kPlain, {1, 1, 1, 1, 1, 1, 1, 1, 1}}, 0, 1, &field))
      << "more axes than there are places";
}

TEST(RegionField, ThatLiesOutsideOrIsNotWhatItSaysIsRefused) {
  constexpr uint64_t kArea = 1 << 20;
  EXPECT_TRUE(CheckField(Field({kArea}, kArea), kArea).ok());
  EXPECT_TRUE(CheckField(Field({0}, 0, kArea), kArea).ok());
  EXPECT_FALSE(CheckField(Field({64}, 64, kArea), kArea).ok());
  EXPECT_FALSE(CheckField(Field({64}, 64, ~0ull - 63), kArea).ok()) << "the sum overflows";
  EXPECT_FALSE(CheckField(Field({64}, 64, 1), kArea).ok()) << "not aligned";
  EXPECT_FALSE(CheckField(Field({64}, 65), kArea).ok());
  EXPECT_FALSE(CheckField(Field({-1}, 64), kArea).ok());
  EXPECT_FALSE(CheckField(Field({-8, -8}, 64), kArea).ok());
  EXPECT_FALSE(CheckField(Field({1LL << 62, 1LL << 62}, 0), kArea).ok());
  EXPECT_FALSE(CheckField(Field({1LL << 32, 1LL << 32}, 0), kArea).ok());
}

TEST(RegionField, OfAnyBytesIsRefusedOrLiesInside) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  constexpr uint64_t kArea = 4096;
  for (int round = 0; round < 200'000; ++round) {
    RegionField field = Field({8, 8}, 64, 64);
    auto* bytes = reinterpret_cast<uint8_t*>(&field);
    for (int changes = static_cast<int>(random() % 4); changes >= 0; --changes)
      bytes[random() % sizeof(field)] = static_cast<uint8_t>(random() % 3 == 0 ? random() : 0);
    const auto spec = CheckField(field, kArea);
    if (!spec.ok()) continue;
    const auto size = spec->ByteSize();
    ASSERT_TRUE(size.ok());
    ASSERT_LE(field.offset + static_cast<uint64_t>(*size), kArea);
    ASSERT_EQ(static_cast<uint64_t>(*size), field.bytes);
  }
}

TEST(Region, NeitherSideCanMakeSmallerOrLarger) {
  const auto region = Region::Make(kRecordBytes, 1 << 20, 0);
  ASSERT_TRUE(region.ok()) << region.status();
  struct stat info;
  ASSERT_EQ(fstat(region->fd(), &info), 0);
  EXPECT_NE(ftruncate(region->fd(), 0), 0);
  EXPECT_NE(ftruncate(region->fd(), info.st_size + 4096), 0);
  const auto other = Region::Open(dup(region->fd()));
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->header().output_bytes, 1u << 20);
  region->input()[5] = std::byte{7};
  EXPECT_EQ(other->input()[5], std::byte{7});
}

TEST(Region, GivesLargePagesBackAndKeepsSmallOnes) {
  const auto region = Region::Make(kRecordBytes, 64 << 20, 0);
  ASSERT_TRUE(region.ok()) << region.status();
  const auto pages = [&] {
    struct stat info;
    EXPECT_EQ(fstat(region->fd(), &info), 0);
    return info.st_blocks * 512;
  };
  std::memset(region->output(), 1, 32 << 20);
  EXPECT_GE(pages(), 32 << 20);
  region->GiveBack(region->output(), 32 << 20);
  EXPECT_LE(pages(), 5 << 20);
  EXPECT_EQ(region->output()[0], std::byte{1});
}

TEST(Region, ThatIsNoneIsRefused) {
  EXPECT_FALSE(Region::Open(-1).ok());
  const int small = memfd_create("small", 0);
  ASSERT_EQ(ftruncate(small, 100), 0);
  EXPECT_FALSE(Region::Open(small).ok());
  const int zeros = memfd_create("zeros", 0);
  ASSERT_EQ(ftruncate(zeros, 1 << 20), 0);
  EXPECT_FALSE(Region::Open(zeros).ok());
  const int lying = memfd_create("lying", 0);
  ASSERT_EQ(ftruncate(lying, 1 << 20), 0);
  const RegionHeader header = {kRegionMagic, kRegionVersion, 1 << 19, ~0ull, 0};
  ASSERT_EQ(pwrite(lying, &header, sizeof(header), 0), static_cast<ssize_t>(sizeof(header)));
  EXPECT_FALSE(Region::Open(lying).ok());
}

}  // namespace
}  // namespace feedwater::server
