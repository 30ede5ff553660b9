// What is special to ArrayRecord files: groups, compressed or not, across blocks of 64 KiB; what is
// refused; and files that lie.
#include "absl/strings/str_cat.h"
#include "server/source/riegeli.h"
#include "tests/source/dataset_reader.h"
#include "tests/source/riegeli_text.h"

namespace feedwater::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ArrayRecordTest : public ::testing::Test {
 protected:
  ArrayRecordTest() : opener_(folder_.path()) {}

  void Write(ArrayRecordText text) { folder_.Write("d/a.array_record", text.Finish()); }
  std::string OpenError() {
    const auto dataset = opener_.Open(kYaml);
    EXPECT_FALSE(dataset.ok());
    return std::string(dataset.status().message());
  }
  std::vector<std::string> ReadAll() {
    std::vector<std::string> all;
    const auto dataset = opener_.MustOpen(kYaml);
    for (int64_t i = 0; dataset != nullptr && i < dataset->size(); ++i)
      all.push_back(ReadFields(*dataset, i, &record_).at(0));
    return all;
  }

  static constexpr const char* kYaml = "{format: array_record, root: root, path: d}";
  TempFolder folder_;
  Opener opener_;
  Record record_;
};

TEST_F(ArrayRecordTest, TheFirstChunkIsTheSignatureOfTheFormat) {
  ArrayRecordText text;
  text.AddGroup({"x"});
  const std::string bytes = text.Finish();
  EXPECT_EQ(bytes.substr(24, 8), "\x91\xba\xc2\x3c\x92\x87\xe1\xa9");
  EXPECT_EQ(bytes.substr(40, 8), "\xe1\x9f\x13\xc0\xe9\xb1\xc3\x72");
}

TEST_F(ArrayRecordTest, RecordsOfAnySizeLieAcrossBlocks) {
  std::vector<std::string> given;
  ArrayRecordText text;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const auto compression = seed % 3 == 0 ? ArrayRecordText::kZstd : ArrayRecordText::kNone;
    std::vector<std::string> group;
    for (uint64_t i = 0; i <= seed % 4; ++i) {
      // Every length about a block's, so that chunk and block headers meet in every way.
      const size_t bytes = seed < 40 ? 16'300 + seed * 7 + i : seed * 5'000;
      group.push_back(seed % 5 == 0 ? std::string(bytes, 'a') : RandomBytes(bytes, seed * 10 + i));
      given.push_back(group.back());
    }
    text.AddGroup(group, compression);
  }
  Write(std::move(text));
  EXPECT_EQ(ReadAll(), given);
}

// Chunks that begin and end at every place about a block header.
TEST_F(ArrayRecordTest, ChunksMeetBlockHeadersInEveryWay) {
  for (size_t before = 65'536 - 64 - 40 - 60; before < 65'536 - 64 - 40 + 60; ++before) {
    const size_t bytes = before - 4;  // a group's head: compression and sizes
    ArrayRecordText text;
    text.AddGroup({std::string(bytes, 'a')});
    text.AddGroup({"second", "third"});
    folder_.Write("d/a.array_record", text.Finish());
    EXPECT_EQ(ReadAll(), (std::vector<std::string>{std::string(bytes, 'a'), "second", "third"}))
        << before;
  }
}

TEST_F(ArrayRecordTest, PaddingIsNotRead) {
  ArrayRecordText text;
  text.AddGroup({"one"});
  text.PadToBlock();
  text.AddGroup({"two"});
  Write(std::move(text));
  const auto dataset = opener_.MustOpen(kYaml);
  EXPECT_EQ(ReadExtents(*dataset, 0).at(0).size(), 40u + 3 + 3);
  EXPECT_EQ(ReadAll(), (std::vector<std::string>{"one", "two"}));
}

TEST_F(ArrayRecordTest, EveryByteOfAGroupIsChecked) {
  ArrayRecordText text;
  text.AddGroup({"one", "two"});
  text.AddGroup({"three"}, ArrayRecordText::kZstd);
  Write(std::move(text));
  const auto dataset = opener_.MustOpen(kYaml);
  for (const int64_t record : {0, 1, 2}) {
    const std::string good = ReadExtents(*dataset, record).at(0);
    for (size_t i = 0; i < good.size(); ++i) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ 4);
      EXPECT_TRUE(absl::IsDataLoss(ParseBytes(*dataset, record, {bad}, &record_))) << i;
    }
  }
}

// Groups with right hashes whose parts lie: bad samples.
TEST_F(ArrayRecordTest, GroupsThatLieAreBadSamples) {
  const auto raw = [](const std::vector<std::string>& records) {
    return ArrayRecordText::GroupData(records, ArrayRecordText::kNone);
  };
  const auto packed = [](const std::vector<std::string>& records) {
    return ArrayRecordText::GroupData(records, ArrayRecordText::kZstd);
  };
  struct Group {
    std::string data;
    uint64_t records, bytes;
    std::string message;
  };
  std::string huge = packed({"abc"});
  const std::vector<Group> groups = {
      {raw({"abc"}), 1, 4, "do not fit together"},              // a byte is missing
      {raw({"abc", "d"}), 1, 4, "do not add up"},               // a size too many
      {raw({"abc"}), 2, 3, "do not add up"},                    // one too few
      {std::string("\0\2\x80\1x", 5), 1, 1, "do not add up"},   // 128 bytes of 1
      {std::string("\0\7\1", 3), 1, 1, "do not fit together"},  // sizes behind the end
      {std::string("\0\1\x80x", 4), 1, 1, "do not add up"},     // an open varint
      {std::string(1, '\0'), 1, 0, "do not fit together"},
      {packed({"abc"}), 1, 5, "do not fit together"},
      {"z\2\1!\3abc", 1, 3, "does not unpack"},
      {"z" + ArrayRecordText::Varint(9) + std::string(9, '\xff') + "x", 1, 1,
       "do not fit together"},
      {packed({"abc"}) + "x", 1, 3, "does not unpack"},
      {"z\1" + ArrayRecordText::Varint(1) + ArrayRecordText::Varint(uint64_t{1} << 61), 1,
       uint64_t{1} << 61, "more than a record may take"},
  };
  ArrayRecordText text;
  for (const Group& group : groups) text.AddGroupData(group.data, group.records, group.bytes);
  Write(std::move(text));
  const auto dataset = opener_.MustOpen(kYaml);
  int64_t record = 0;
  for (const Group& group : groups) {
    const absl::Status status =
        ParseBytes(*dataset, record, ReadExtents(*dataset, record), &record_);
    EXPECT_THAT(std::string(status.message()), HasSubstr(group.message)) << record;
    record += static_cast<int64_t>(group.records);
  }
}

TEST_F(ArrayRecordTest, WhatIsNotReadIsRefusedWithTheCure) {
  const auto refuse = [&](ArrayRecordText::Compression compression, char type,
                          const std::vector<std::string>& records) {
    ArrayRecordText text;
    text.AddGroup({"fine"});
    text.AddGroup(records, compression, type);
    Write(std::move(text));
    return OpenError();
  };
  EXPECT_THAT(refuse(ArrayRecordText::kBrotli, 'r', {"x"}),
              AllOf(HasSubstr("a.array_record"), HasSubstr("Brotli"), HasSubstr("cure: ")));
  EXPECT_THAT(refuse(ArrayRecordText::kSnappy, 'r', {"x"}), HasSubstr("Snappy"));
  EXPECT_THAT(refuse(ArrayRecordText::kNone, 't', {"x"}),
              AllOf(HasSubstr("transposed"), HasSubstr("cure: ")));
  EXPECT_THAT(refuse(ArrayRecordText::kZstd, 'r', {std::string(17 << 20, 'x'), "y"}),
              AllOf(HasSubstr("17.0 MiB"), HasSubstr("group_size:1")));
}

TEST_F(ArrayRecordTest, DamagedFilesAreRefusedWithTheByteAndACure) {
  ArrayRecordText text;
  text.AddGroup({"one"});
  const size_t second = text.size();
  text.AddGroup({"two"});
  const std::string good = ArrayRecordText(text).Finish();
  const auto flipped = [&](size_t at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    return bad;
  };
  const std::vector<std::pair<std::string, std::string>> files = {
      {"", "is no ArrayRecord file"},
      {good.substr(0, good.size() - 1), "is no ArrayRecord file"},
      {good.substr(0, 65'536), "is no ArrayRecord file"},
      {good.substr(0, 65'536) + good.substr(0, 65'536), "does not say where its footer is"},
      {std::string(131'072, '\0'), "does not say where its footer is"},
      {flipped(good.size() - 65'536 + 24), "does not say where its footer is"},
      {flipped(good.size() - 65'536 + 24 + 45), "does not say where its footer is"},
      {flipped(24), "at byte 0"},
      {flipped(second), absl::StrCat("at byte ", second)},
      {ArrayRecordText(text).Finish(1), "footer of 4 entries for 2 groups"},
  };
  for (const auto& [bytes, message] : files) {
    folder_.Write("d/a.array_record", bytes);
    EXPECT_THAT(OpenError(),
                AllOf(HasSubstr(message), HasSubstr("a.array_record"), HasSubstr("cure: ")))
        << message;
  }
}

TEST_F(ArrayRecordTest, ReadsRealFiles) {
  if (OutsideData().empty()) GTEST_SKIP() << "no outside data";
  Opener real(OutsideData());
  const auto dataset = real.MustOpen(
      "{format: array_record, root: root, path: array_record/grain/_src/python/testdata}");
  ASSERT_EQ(dataset->size(), 10);
  for (int64_t i = 0; i < 10; ++i)
    EXPECT_EQ(ReadFields(*dataset, i, &record_).at(0), std::to_string(i));
}

}  // namespace
}  // namespace feedwater::server
