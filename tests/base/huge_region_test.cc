// Pieces of a region are apart, always find room, and leave no more resident than was asked for.
#include "server/base/huge_region.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace feedwater::server {
namespace {

constexpr size_t kKiB = 1 << 10, kMiB = 1 << 20;

struct Piece {
  std::byte* data;
  size_t bytes;
  int mark;
};

size_t ResidentOf(const std::byte* begin, size_t bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages(bytes / page);
  if (mincore(const_cast<std::byte*>(begin), bytes, pages.data()) != 0) return SIZE_MAX;
  size_t resident = 0;
  for (unsigned char state : pages) resident += (state & 1) * page;
  return resident;
}

TEST(HugeRegion, PiecesAreAlignedAndApart) {
  const auto region = HugeRegion::Create(4 * kMiB);
  ASSERT_NE(region, nullptr);
  std::byte* const first = region->Take(1);
  std::byte* const second = region->Take(100 * kKiB);
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % HugeRegion::kAlignment, 0U);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(second) % HugeRegion::kAlignment, 0U);
  EXPECT_GE(second, first + 1);
  region->Give(first, 1);
  EXPECT_EQ(region->Take(4 * kKiB), first) << "the lowest hole that fits";
}

TEST(HugeRegion, WhatIsInUseAlwaysFindsRoomAndKeepsItsBytes) {
  constexpr size_t kBytes = 16 * kMiB;
  const auto region = HugeRegion::Create(kBytes);
  ASSERT_NE(region, nullptr);
  std::mt19937 random(7);
  std::vector<Piece> pieces;
  size_t used = 0;
  for (int step = 0; step < 20'000; ++step) {
    const size_t bytes = (64 * kKiB) << random() % 8;
    while (used + bytes > kBytes || (!pieces.empty() && random() % 3 == 0)) {
      std::swap(pieces[random() % pieces.size()], pieces.back());
      const Piece piece = pieces.back();
      ASSERT_EQ(piece.data[0], static_cast<std::byte>(piece.mark));
      ASSERT_EQ(piece.data[piece.bytes - 1], static_cast<std::byte>(piece.mark));
      region->Give(piece.data, piece.bytes);
      used -= piece.bytes;
      pieces.pop_back();
    }
    std::byte* const data = region->Take(bytes);
    ASSERT_NE(data, nullptr) << "step " << step << ": " << used << " bytes in use";
    const int mark = static_cast<int>(random() % 255);
    data[0] = data[bytes - 1] = static_cast<std::byte>(mark);
    pieces.push_back({data, bytes, mark});
    used += bytes;
  }
}

TEST(HugeRegion, NoMoreIsResidentThanWasAskedFor) {
  constexpr size_t kBytes = 4 * kMiB;
  const auto region = HugeRegion::Create(kBytes);
  ASSERT_NE(region, nullptr);
  std::byte* const low = region->Take(3 * kMiB);
  memset(low, 1, 3 * kMiB);
  std::byte* const wedge = region->Take(kMiB);
  memset(wedge, 1, kMiB);
  EXPECT_EQ(ResidentOf(low, kBytes), kBytes);
  region->Give(low, 3 * kMiB);
  EXPECT_EQ(ResidentOf(low, kBytes), kBytes) << "kept for the next piece";
  // 3 MiB are free before the wedge: more needs addresses behind it, and their pages instead.
  std::byte* const behind = region->Take(3 * kMiB + 1);
  ASSERT_GT(behind, wedge);
  memset(behind, 1, 3 * kMiB);
  EXPECT_EQ(ResidentOf(low, 3 * kMiB), 0U);
  std::byte* const again = region->Take(64 * kKiB);
  ASSERT_EQ(again, low);
  memset(again, 1, 64 * kKiB);
  region->Give(again, 64 * kKiB);
  EXPECT_EQ(ResidentOf(low, 64 * kKiB), 0U) << "while something behind is in use";
  region->Give(behind, 3 * kMiB + 1);
  EXPECT_EQ(ResidentOf(behind, 3 * kMiB), 0U);
  region->Give(wedge, kMiB);
  region->ReturnFree();
  EXPECT_EQ(ResidentOf(low, kBytes), 0U);
}

TEST(HugeRegion, APieceEndsOnAnyThreadAndLaterThanItsRegionsMaker) {
  auto region = HugeRegion::Create(4 * kMiB);
  ASSERT_NE(region, nullptr);
  std::byte* const piece = region->Take(kMiB);
  std::thread other([piece, region = std::move(region)] {
    piece[0] = std::byte{1};
    region->Give(piece, kMiB);
  });
  other.join();
}

}  // namespace
}  // namespace feedwater::server
