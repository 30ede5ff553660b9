// Goal: the C++ client writes the cursor that every client and the daemon agree on, byte for byte.
#include "client/cpp/cursor.h"

#include <gtest/gtest.h>

#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "proto/shm/crc32c.h"

namespace feedwater {
namespace {

TEST(Cursor, Crc32cIsTheOneOfTheStandardsCheckValue) {
  EXPECT_EQ(wire::Crc32c(0, "123456789", 9), 0xe3069283u);
}

TEST(Cursor, JsonIsTheSortedFieldsWithTheChecksumOverTheRest) {
  const Cursor cursor{
      std::string(32, 'd'), std::string(32, 'p'), 18446744073709551615u, {3, 24}, 2, 4, 1, {}};
  const std::string canonical =
      R"({"batch_size":4,"dataset":"dddddddddddddddddddddddddddddddd","epoch":3,)"
      R"("pipeline":"pppppppppppppppppppppppppppppppp","position":24,"seed":18446744073709551615,)"
      R"("substituted":1,"version":1,"world_size":2})";
  const std::string crc = std::to_string(wire::Crc32c(0, canonical.data(), canonical.size()));
  const std::string json = cursor.ToJson();
  EXPECT_TRUE(absl::StrContains(json, "\"crc32c\":" + crc)) << json;
  EXPECT_TRUE(absl::StrContains(json, "\"seed\":18446744073709551615")) << json;
  EXPECT_LE(json.size(), 1024u);
}

Cursor Example() {
  Cursor cursor{std::string(32, 'd'), std::string(32, 'p'), 42, {3, 24}, 2, 4, 1, {}};
  EXPECT_TRUE(cursor.Skip({3, 32, 40}).ok());
  EXPECT_TRUE(cursor.Skip({7, 0, 8}).ok());
  return cursor;
}

TEST(Cursor, WhatIsWrittenIsRead) {
  const std::string json = Example().ToJson();
  const absl::StatusOr<Cursor> again = Cursor::FromJson(json);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->ToJson(), json);
  EXPECT_EQ(again->at, (EpochPosition{3, 24}));
  ASSERT_EQ(again->skips.size(), 2u);
  EXPECT_EQ(again->skips[0].end, 40);
}

TEST(Cursor, NoByteCanBeCutOrChanged) {
  const std::string json = Example().ToJson();
  for (size_t i = 0; i < json.size(); ++i) {
    EXPECT_TRUE(absl::IsInvalidArgument(Cursor::FromJson(json.substr(0, i)).status())) << i;
    for (const char flip : {1, 2, 16, 64}) {
      std::string other = json;
      other[i] = static_cast<char>(other[i] ^ flip);
      const absl::StatusOr<Cursor> read = Cursor::FromJson(other);
      EXPECT_TRUE(absl::IsInvalidArgument(read.status())) << other;
      EXPECT_LT(read.status().message().size(), 500u);
    }
  }
}

TEST(Cursor, RangesThatTouchAreOneAndPassedOnesAreForgotten) {
  Cursor cursor;
  for (const SkippedRange& range :
       {SkippedRange{1, 8, 12}, SkippedRange{0, 20, 24}, SkippedRange{1, 0, 4},
        SkippedRange{0, 4, 8}, SkippedRange{1, 4, 8}, SkippedRange{0, 6, 10}}) {
    ASSERT_TRUE(cursor.Skip(range).ok());
  }
  ASSERT_EQ(cursor.skips.size(), 3u);
  EXPECT_EQ(cursor.skips[0].end, 10);
  EXPECT_EQ(cursor.skips[2].first, 0);
  EXPECT_EQ(cursor.skips[2].end, 12);
  cursor.at = {0, 10};
  cursor.ForgetPassed();
  EXPECT_EQ(cursor.skips.size(), 2u);
  cursor.at = {1, 12};
  cursor.ForgetPassed();
  EXPECT_TRUE(cursor.skips.empty());
}

TEST(Cursor, ABatchThatWouldReachIntoARangeBeginsBehindIt) {
  Cursor cursor;
  cursor.world_size = 2;
  cursor.batch_size = 2;
  for (const SkippedRange& range :
       {SkippedRange{0, 8, 12}, SkippedRange{0, 20, 25}, SkippedRange{0, 27, 30}})
    ASSERT_TRUE(cursor.Skip(range).ok());
  for (const auto& [from, to] : std::vector<std::pair<int64_t, int64_t>>{
           {0, 0}, {4, 4}, {5, 12}, {8, 12}, {11, 12}, {16, 16}, {17, 30}, {24, 30}, {30, 30}}) {
    EXPECT_EQ(cursor.AfterSkips({0, from}).position, to) << from;
    EXPECT_EQ(cursor.AfterSkips({1, from}).position, from) << "another epoch";
  }
}

TEST(Cursor, ThereIsRoomForEightRangesInAKibibyte) {
  constexpr uint64_t kBig = std::numeric_limits<uint64_t>::max();
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  Cursor cursor{
      std::string(64, 'd'), std::string(64, 'p'), kBig, {kBig, kMost}, kMost, kMost, kMost, {}};
  for (int64_t k = 0; k < 8; ++k)
    ASSERT_TRUE(cursor.Skip({kBig, kMost - 2 * k - 1, kMost - 2 * k}).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(cursor.Skip({0, 0, 4})));
  EXPECT_LE(cursor.ToJson().size(), 1024u);
}

}  // namespace
}  // namespace feedwater
