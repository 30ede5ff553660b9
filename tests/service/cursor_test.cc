// The cursor comes back from outside, years later or tampered with: what is written must read back
// exactly, and everything else must be refused with the right code.
#include "server/service/cursor.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/shm/crc32c.h"

namespace feedwater::server {
namespace {

const std::string kDataset = "0123456789abcdef0123456789abcdef";
const std::string kPipeline = "fedcba9876543210fedcba9876543210";

Cursor Example() { return {kDataset, kPipeline, 7, 3, 81920, 4, 256, 2}; }
CursorTarget Target() { return {"p", kDataset, kPipeline, 7}; }

// The object with a right CRC around this content, which must be in canonical form.
std::string Sealed(const std::string& members) {
  std::string canonical = absl::StrCat("{", members, "}");
  return absl::StrCat("{", members, R"(,"crc32c":)",
                      wire::Crc32c(0, canonical.data(), canonical.size()), "}");
}

std::string Members(const std::string& position, const std::string& seed,
                    const std::string& version, const std::string& dataset) {
  return absl::StrCat(R"("batch_size":256,"dataset":)", dataset, R"(,"epoch":3,"pipeline":")",
                      kPipeline, R"(","position":)", position, R"(,"seed":)", seed,
                      R"(,"substituted":0,"version":)", version, R"(,"world_size":4)");
}

TEST(Cursor, ReadsBackWhatWasWritten) {
  Cursor written = Example();
  written.seed = std::numeric_limits<uint64_t>::max();
  auto read = ParseCursor(FormatCursor(written));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->dataset, written.dataset);
  EXPECT_EQ(read->pipeline, written.pipeline);
  EXPECT_EQ(read->seed, written.seed);
  EXPECT_EQ(read->epoch, written.epoch);
  EXPECT_EQ(read->position, written.position);
  EXPECT_EQ(read->world_size, written.world_size);
  EXPECT_EQ(read->batch_size, written.batch_size);
  EXPECT_EQ(read->substituted, written.substituted);
  EXPECT_LE(FormatCursor(written).size(), kMaxCursorBytes);
}

// The very bytes that Python's json.dumps(state, sort_keys=True, separators=(",", ":")) and its CRC
// give.
TEST(Cursor, HasTheCanonicalFormThatClientsCompute) {
  EXPECT_EQ(
      FormatCursor(Example()),
      R"({"batch_size":256,"crc32c":2224637421,"dataset":"0123456789abcdef0123456789abcdef","epoch":3,)"
      R"("pipeline":"fedcba9876543210fedcba9876543210","position":81920,"seed":7,"substituted":2,"version":1,)"
      R"("world_size":4})");
}

TEST(Cursor, MayBeWrittenWithOtherSpacesAndOrder) {
  std::string text = FormatCursor(Example());
  size_t comma = text.find(',');
  std::string spaced = absl::StrCat("{ ", text.substr(comma + 1, text.size() - comma - 2), ", \n",
                                    text.substr(1, comma - 1), " }");
  EXPECT_TRUE(ParseCursor(spaced).ok()) << ParseCursor(spaced).status();
}

TEST(Cursor, EveryChangedCharacterIsNoticed) {
  const std::string good = FormatCursor(Example());
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = bad[i] == '1' ? '2' : '1';
    if (bad == good) continue;
    EXPECT_FALSE(ParseCursor(bad).ok()) << bad;
  }
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_FALSE(ParseCursor(good.substr(0, size)).ok());
}

TEST(Cursor, AnUnknownVersionIsNamedBesideTheKnownOne) {
  absl::Status status =
      ParseCursor(Sealed(Members("1", "7", "2", "\"" + kDataset + "\""))).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_NE(status.message().find("version 2"), absl::string_view::npos) << status;
  EXPECT_NE(status.message().find("version 1"), absl::string_view::npos) << status;
}

TEST(Cursor, MalformedOnesAreInvalidArguments) {
  const std::string dataset = "\"" + kDataset + "\"";
  ASSERT_TRUE(ParseCursor(Sealed(Members("1", "7", "1", dataset))).ok());
  const std::string malformed[] = {
      "",
      " ",
      "null",
      "[]",
      "7",
      "\"x\"",
      "{}",
      "{",
      "\xff\xfe",
      std::string(100, '['),
      std::string(1024, '{'),
      std::string("{\"a\":\0}", 7),
      std::string(2000, ' '),
      Sealed(Members("-1", "7", "1", dataset)),     // position below 0
      Sealed(Members("1.5", "7", "1", dataset)),    // not whole
      Sealed(Members("\"1\"", "7", "1", dataset)),  // text
      Sealed(Members("true", "7", "1", dataset)),
      Sealed(Members("null", "7", "1", dataset)),
      Sealed(Members("9223372036854775808", "7", "1", dataset)),   // over int64
      Sealed(Members("1", "18446744073709551616", "1", dataset)),  // over uint64
      Sealed(Members("1", "7", "\"1\"", dataset)),
      Sealed(Members("1", "7", "1", "\"0123\"")),  // short digest
      Sealed(Members("1", "7", "1", "\"0123456789ABCDEF0123456789abcdef\"")),
      Sealed(Members("1", "7", "1", "7")),
      Sealed(R"("version":1)"),
  };
  for (const std::string& text : malformed) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseCursor(text).status()))
        << text << ": " << ParseCursor(text).status();
  }
}

TEST(Cursor, ContinuesWithAnotherWorldAndBatchSize) {
  Cursor cursor = Example();
  cursor.world_size = 9;
  cursor.batch_size = 1;
  EXPECT_TRUE(CheckCursor(cursor, Target()).ok());
}

TEST(Cursor, NeedsTheSameWorldWhereEachRankMakesItsRecords) {
  CursorTarget target = Target();
  target.world_size = static_cast<int64_t>(Example().world_size);
  EXPECT_TRUE(CheckCursor(Example(), target).ok());
  ++target.world_size;
  const absl::Status status = CheckCursor(Example(), target);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_NE(status.message().find("an iterable dataset"), absl::string_view::npos) << status;
}

TEST(Cursor, IsRefusedWithTheDifferingFieldNamed) {
  auto expect = [](const Cursor& cursor, absl::StatusCode code,
                   std::initializer_list<std::string> words) {
    absl::Status status = CheckCursor(cursor, Target());
    EXPECT_EQ(status.code(), code) << status;
    for (const std::string& word : words)
      EXPECT_NE(status.message().find(word), absl::string_view::npos) << status;
  };
  const std::string other(32, '0');
  Cursor cursor = Example();
  cursor.dataset = other;
  expect(cursor, absl::StatusCode::kFailedPrecondition,
         {"dataset", kDataset, other, "files have changed since"});
  cursor = Example();
  cursor.pipeline = other;
  expect(cursor, absl::StatusCode::kFailedPrecondition, {"pipeline", kPipeline, other});
  cursor = Example();
  cursor.seed = 8;
  expect(cursor, absl::StatusCode::kFailedPrecondition, {"seed", "7", "8"});
}

}  // namespace
}  // namespace feedwater::server
