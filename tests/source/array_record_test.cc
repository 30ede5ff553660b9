// What is special to ArrayRecord files: groups, compressed or not, across blocks of 64 KiB; what is
// refused; and files that lie.
#include <random>

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
  std::vector<std::string> ReadAll(const std::string& yaml = kYaml) {
    std::vector<std::string> all;
    const auto dataset = opener_.MustOpen(yaml);
    for (int64_t i = 0; dataset != nullptr && i < dataset->size(); ++i)
      all.push_back(ReadFields(*dataset, i, &record_).at(0));
    return all;
  }
  void UseStaging(int64_t bytes) {
    opener_.state_dir = state_.path();
    opener_.staging = StagingArea::Below(state_.path(), bytes);
  }
  std::vector<std::filesystem::path> StagedFiles() const {
    std::vector<std::filesystem::path> files;
    std::error_code error;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(state_.path() + "/staged", error)) {
      // Hidden: what the staging area keeps for itself.
      if (entry.is_regular_file() && entry.path().filename().string()[0] != '.')
        files.push_back(entry.path());
    }
    return files;
  }

  static constexpr const char* kYaml = "{format: array_record, root: root, path: d}";
  TempFolder folder_, state_;
  Opener opener_;
  Record record_;
};

constexpr size_t kLarge = 17 << 20;  // more than a group of several records may have

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

TEST_F(ArrayRecordTest, AFileWithLargeGroupsIsUnpackedOnceIntoItsRecords) {
  UseStaging(int64_t{1} << 30);
  std::vector<std::string> given;
  ArrayRecordText text;
  const auto add = [&](const std::vector<std::string>& records, ArrayRecordText::Compression how) {
    text.AddGroup(records, how);
    given.insert(given.end(), records.begin(), records.end());
  };
  add({"small", "", RandomBytes(100'000, 1)}, ArrayRecordText::kNone);
  // More than a piece of what is read and written at once, sizes on both sides of it.
  std::vector<std::string> large;
  // Below 20 MB in all, or it might be being written still (UnsettledUntilNs).
  for (uint64_t i = 0; i < 14; ++i) large.push_back(RandomBytes(100'000 + i * 60'033, 10 + i));
  large.insert(large.begin() + 7, {"", std::string(3 << 20, 'a'), ""});
  large.emplace_back();
  add(large, ArrayRecordText::kNone);
  add({"between"}, ArrayRecordText::kZstd);
  large[0] = std::string(kLarge, 'z');
  add(large, ArrayRecordText::kZstd);
  folder_.Write("d/a.array_record-00000-of-00002", text.Finish());
  ArrayRecordText plain;
  plain.AddGroup({"last"});
  given.emplace_back("last");
  folder_.Write("d/a.array_record-00001-of-00002", plain.Finish());
  ASSERT_EQ(ReadAll(), given);
  const auto files = StagedFiles();
  ASSERT_EQ(files.size(), 1u) << "the other file is read as it is";
  const auto written = std::filesystem::last_write_time(files[0]);
  EXPECT_EQ(ReadAll(), given);
  EXPECT_EQ(opener_.builds, 1);
  // Another index is made of what is unpacked already.
  opener_.rebuild = true;
  const auto dataset = opener_.MustOpen(kYaml);
  EXPECT_EQ(opener_.builds, 2);
  EXPECT_EQ(std::filesystem::last_write_time(files[0]), written);
  EXPECT_EQ(ReadExtents(*dataset, 0).at(0).size(), 8 + 5u) << "a record is read, not its group";
  EXPECT_TRUE(absl::IsDataLoss(ParseBytes(*dataset, 0, {"short"}, &record_)));
  EXPECT_TRUE(absl::IsDataLoss(ParseBytes(*dataset, 0, {std::string(13, '\7')}, &record_)));
  // Whoever removes it gets it again.
  opener_.rebuild = false;
  std::filesystem::remove(files[0]);
  EXPECT_EQ(ReadAll(), given);
  EXPECT_EQ(StagedFiles().size(), 1u);
}

TEST_F(ArrayRecordTest, LargeGroupsThatLieAreRefusedAndLeaveNothing) {
  UseStaging(int64_t{1} << 30);
  const std::string half(kLarge / 2, 'h');
  const auto raw = ArrayRecordText::GroupData({half, half}, ArrayRecordText::kNone);
  const auto packed = ArrayRecordText::GroupData({half, half}, ArrayRecordText::kZstd);
  const std::string sizes =
      ArrayRecordText::Varint(half.size()) + ArrayRecordText::Varint(half.size());
  struct Group {
    std::string data;
    uint64_t records, bytes;
    std::string message;
  };
  const std::vector<Group> groups = {
      {raw.substr(0, raw.size() - 1), 2, kLarge, "do not fit together"},
      {raw, 3, kLarge, "do not add up"},
      {raw, 2, kLarge + 1, "do not fit together"},
      {std::string(1, '\0') + ArrayRecordText::Varint(sizes.size()) + sizes + half + half + "x", 2,
       kLarge + 1, "do not add up"},
      {std::string("\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12), 2, kLarge,
       "do not fit together"},
      {std::string("\0\xff\xff\xff\xff\x0f", 6), 2, kLarge, "do not fit together"},
      {std::string("\0\x80", 2), 2, kLarge, "do not fit together"},
      {"", 2, kLarge, "do not fit together"},
      {"z\2\1!" + packed.substr(6), 2, kLarge, "zstd does not unpack"},
      {"z\x06\xff\xff\xff\xff\x0f!", 2, kLarge, "do not fit together"},
      {packed.substr(0, packed.size() - 9), 2, kLarge, "zstd does not unpack"},
      {packed + "tail", 2, kLarge, "zstd does not unpack"},
      {packed, 2, kLarge + 2, "do not fit together"},
      {packed + ArrayRecordText::GroupData({}, ArrayRecordText::kZstd).substr(3), 2, kLarge,
       "zstd does not unpack"},
  };
  for (const Group& group : groups) {
    ArrayRecordText text;
    text.AddGroup({"fine"});
    const size_t at = text.size();
    text.AddGroupData(group.data, group.records, group.bytes);
    folder_.Write("d/a.array_record", text.Finish());
    EXPECT_THAT(OpenError(),
                AllOf(HasSubstr("a.array_record"), HasSubstr(group.message),
                      HasSubstr(absl::StrCat("at byte ", at, ";")), HasSubstr("cure: ")))
        << group.message;
    EXPECT_EQ(StagedFiles().size(), 0u);
  }
  // A flipped byte, which only the hash tells.
  ArrayRecordText text;
  text.AddGroup({half, half});
  std::string file = text.Finish();
  file[file.size() / 2 + 1000] = 'H';  // not in a block's header
  folder_.Write("d/a.array_record", file);
  EXPECT_THAT(OpenError(), HasSubstr("do not have the hash that is stored"));
  EXPECT_EQ(StagedFiles().size(), 0u);
}

// Two readers of one thing: a group as a stream, and one of its records. Whatever bytes a group
// has, they say the same of it.
TEST_F(ArrayRecordTest, AStreamOfAGroupIsWhatItsRecordsAre) {
  const auto roots = Roots::Create({{"root", folder_.path()}});
  ASSERT_TRUE(roots.ok());
  const DatasetLocation location{*(*roots)->Find("root"), ""};
  std::mt19937_64 random(5);
  int good = 0;
  for (int round = 0; round < 600; ++round) {
    std::vector<std::string> records(1 + random() % 5);
    uint64_t bytes = 0;
    for (std::string& record : records) {
      record = RandomBytes(random() % 4 == 0 ? random() % 70'000 : random() % 200, random());
      bytes += record.size();
    }
    std::string data = ArrayRecordText::GroupData(
        records, round % 2 == 0 ? ArrayRecordText::kZstd : ArrayRecordText::kNone);
    for (uint64_t edits = random() % 3; edits > 0; --edits) {
      const size_t at = random() % std::min<size_t>(data.size(), round % 3 == 0 ? 12 : 100'000);
      data[at] = static_cast<char>(random());
    }
    if (random() % 8 == 0) data.resize(random() % data.size());
    if (random() % 8 == 0) ++bytes;
    ArrayRecordText text;
    const size_t at = text.size();
    text.AddGroupData(data, records.size(), bytes);
    const std::string file = text.Finish();
    folder_.Write("a", file);
    auto window = FileWindow::Open(location, {"a", static_cast<int64_t>(file.size()), nullptr, ""});
    ASSERT_TRUE(window.ok()) << window.status();
    char compression = 0;
    const auto chunk = ReadRiegeliChunk(&*window, at, &compression);
    ASSERT_TRUE(chunk.ok()) << chunk.status();
    std::vector<std::string> streamed;
    std::vector<uint64_t> lengths;
    const absl::Status status = UnpackRiegeliChunk(
        &*window, at, *chunk,
        [&](uint64_t length) {
          lengths.push_back(length);
          streamed.emplace_back();
          return absl::OkStatus();
        },
        [&](absl::string_view piece) {
          streamed.back().append(piece.data(), piece.size());
          return absl::OkStatus();
        });
    std::vector<std::byte> scratch;
    for (size_t i = 0; i < records.size(); ++i) {
      ColumnValues values(1, &scratch);
      const absl::Status one =
          ReadRiegeliRecord(absl::string_view(file).substr(at), at, records.size(), i, 0, &values);
      ASSERT_EQ(one.ok(), status.ok()) << "round " << round << ": " << one << ", " << status;
      if (!one.ok()) continue;
      ++good;
      const std::string read(reinterpret_cast<const char*>(values.data(0)),
                             static_cast<size_t>(values.shape(0)[0]));
      ASSERT_EQ(streamed[i], read) << round;
      ASSERT_EQ(lengths[i], read.size()) << round;
    }
  }
  EXPECT_GT(good, 300);
}

TEST_F(ArrayRecordTest, UnpackingStaysWithinItsLimit) {
  const std::string half(kLarge / 2, 'h');
  ArrayRecordText text;
  text.AddGroup({half, half}, ArrayRecordText::kZstd);
  folder_.Write("d/a.array_record", text.Finish());
  UseStaging(kLarge - 1);
  const absl::Status status = opener_.Open(kYaml).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("stage.disk"));
  opener_.staging = nullptr;
  EXPECT_THAT(OpenError(), AllOf(HasSubstr("2 records in the group at byte 64, 17.0 MiB"),
                                 HasSubstr("group_size:1"), HasSubstr("stage: {disk: SIZE}")));
}

TEST_F(ArrayRecordTest, AFolderIsOneSetOfPartsAndAllOfThem) {
  const auto write = [&](const std::string& name, const std::string& record) {
    ArrayRecordText text;
    text.AddGroup({record});
    folder_.Write("d/" + name, text.Finish());
  };
  write("mnist-train.array_record-00000-of-00003", "a");
  write("mnist-train.array_record-00002-of-00003", "c");
  EXPECT_THAT(OpenError(), AllOf(HasSubstr("lacks part 1 of 3 of 'mnist-train.array_record-*'"),
                                 HasSubstr("cure: ")));
  write("mnist-train.array_record-00001-of-00003", "b");
  folder_.Write("d/features.json", "{}");
  EXPECT_EQ(ReadAll(), (std::vector<std::string>{"a", "b", "c"}));
  write("mnist-test.array_record-00000-of-00001", "t");
  EXPECT_THAT(OpenError(), AllOf(HasSubstr("several sets"), HasSubstr("mnist-test.array_record"),
                                 HasSubstr("mnist-train.array_record"), HasSubstr("cure: ")));
  const std::string files = "{format: array_record, root: root, path: d, files: [";
  EXPECT_EQ(ReadAll(files + "\"mnist-test.*\"]}"), (std::vector<std::string>{"t"}));
  EXPECT_EQ(ReadAll(files + "\"*-00001-of-00003\"]}"), (std::vector<std::string>{"b"}));
  EXPECT_EQ(ReadAll("{format: array_record, root: root, path: "
                    "d/mnist-test.array_record-00000-of-00001}"),
            (std::vector<std::string>{"t"}));
}

TEST_F(ArrayRecordTest, AFolderHoldsNoRecordTwice) {
  ArrayRecordText text;
  text.AddGroup({"r"});
  const std::string file = text.Finish();
  folder_.Write("d/x.array_record-00000-of-00001", file);
  EXPECT_EQ(ReadAll(), (std::vector<std::string>{"r"}));
  for (const auto& [name, words] : std::vector<std::pair<std::string, std::string>>{
           {"x.array_record", "'x.array_record' beside the parts of 'x.array_record'"},
           {"x.array_record-0-of-1", "part 0 of 'x.array_record' twice"},
           {"x.array_record-00001-of-00001", "whose number is none of 1"}}) {
    folder_.Write("d/" + name, file);
    EXPECT_THAT(OpenError(), AllOf(HasSubstr(words), HasSubstr("cure: "))) << name;
    std::filesystem::remove(folder_.path() + "/d/" + name);
  }
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
