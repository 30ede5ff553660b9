// Goal: tar shards are split into records as the webdataset library splits them, whatever header a
// name needs, and archives that are cut, damaged, joined or odd are refused by name and place.
#include "server/source/tar.h"
#include "server/source/tar_index.h"
#include "tests/source/column_testing.h"
#include "tests/source/npy_text.h"
#include "tests/source/tar_text.h"

namespace feedwater::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kYaml[] = "{format: webdataset, root: root}";

std::string PaxText(const std::string& key, const std::string& value) {
  std::string record;
  for (size_t length = key.size() + value.size() + 3;; ++length) {
    record = absl::StrCat(length, " ", key, "=", value, "\n");
    if (record.size() == length) break;
  }
  return TarMemberText("pax", record, 'x');
}

class WebdatasetTest : public ColumnTest {
 protected:
  std::shared_ptr<const Dataset> Open(const std::string& archive) {
    folder_.Write("a.tar", archive);
    return opener_.MustOpen(kYaml);
  }
  void ExpectBad(const std::string& archive, const std::vector<std::string>& words) {
    folder_.Write("a.tar", archive);
    std::vector<std::string> all = words;
    all.push_back("'a.tar' of root 'root'");
    ExpectRefused(kYaml, all);
  }
};

TEST_F(WebdatasetTest, FilesThatShareANameAreARecord) {
  const auto dataset =
      Open(TarMemberText("dir/", "", '5') + TarMemberText("dir/a.JPG", "A") +
           TarMemberText("dir/a.cls", " 4 ") + TarMemberText("dir/a.seg.png", "S") +
           TarMemberText("dir/b.jpg", "BB") + TarMemberText("dir/b.cls", "5") +
           TarMemberText("dir/b.seg.png", "T") + TarEnd());
  EXPECT_EQ(Fields(*dataset), "data uint8[?] encoded, label int64[], seg.png uint8[?] encoded");
  ASSERT_EQ(dataset->size(), 2);
  EXPECT_EQ(FieldOf(*dataset, 0, "data"), "A");
  EXPECT_EQ(FieldOf(*dataset, 1, "data"), "BB");
  EXPECT_THAT(Numbers<int64_t>(*dataset, 0, "label"), ElementsAre(4));
  EXPECT_EQ(FieldOf(*dataset, 1, "seg.png"), "T");
}

TEST_F(WebdatasetTest, LongNamesOfPaxAndGnuAreRead) {
  const std::string deep(150, 'd'), gnu(180, 'g');
  folder_.Write("a.tar", PaxText("path", deep + "/one.jpg") + TarMemberText("cut", "1") +
                             TarMemberText("././@LongLink", gnu + "/two.jpg" + '\0', 'L') +
                             TarMemberText("cut", "22") + PaxText("mtime", "1.5") +
                             TarMemberText("three.jpg", "333") + TarEnd());
  const auto dataset =
      opener_.MustOpen("{format: webdataset, root: root, fields: {data: jpg, key: __key__}}");
  ASSERT_EQ(dataset->size(), 3);
  EXPECT_EQ(FieldOf(*dataset, 0, "key"), deep + "/one");
  EXPECT_EQ(FieldOf(*dataset, 1, "key"), gnu + "/two");
  EXPECT_EQ(FieldOf(*dataset, 2, "key"), "three");
  EXPECT_EQ(FieldOf(*dataset, 1, "data"), "22");
}

TEST_F(WebdatasetTest, WhatBelongsToNoRecordIsLeftOutAndCounted) {
  const auto dataset = Open(TarMemberText("README", "x") + TarMemberText("._a.jpg", "junk") +
                            TarMemberText("a.jpg", "A") + TarMemberText("dev.jpg", "", '3') +
                            TarMemberText("__meta__", "{}") + TarMemberText("b.jpg", "B"));
  EXPECT_EQ(dataset->size(), 2);
  EXPECT_EQ(FieldOf(*dataset, 1, "data"), "B");
  EXPECT_EQ(dataset->notes(), "4 members of no record, such as README");
}

TEST_F(WebdatasetTest, ArchivesThatAreCutDamagedOrJoinedAreRefused) {
  const std::string good = TarMemberText("a.jpg", std::string(700, 'x'));
  for (const size_t keep : {good.size() - 600, size_t{512}, size_t{600}, size_t{100}})
    ExpectBad(good.substr(0, keep), {"cut off"});
  std::string sum = good;
  sum[100] ^= 1;
  ExpectBad(sum, {"wrong checksum", "at byte 0"});
  ExpectBad(good + TarEnd() + good, {"goes on behind the end", "at byte 2560"});
  ExpectBad(good + TarMemberText("a.jpg", "again"), {"two files 'a.jpg'", "at byte 1536"});
  for (const char type : {'1', '2'})
    ExpectBad(good + TarMemberText("b.jpg", "", type), {"'b.jpg' at byte 1536", "link"});
  ExpectBad(good + TarEnd() + std::string(200'000, '\0') + good, {"goes on behind the end"});
  ExpectBad(TarMemberText("a.jpg", "x", 'S'), {"sparse"});
  ExpectBad(PaxText("GNU.sparse.major", "1") + good, {"sparse"});
  ExpectBad(TarMemberText("a.jpg", "x", 'M'), {"several volumes"});
  ExpectBad(PaxText("size", "9999999") + good, {"9999999 bytes", "cut off"});
  ExpectBad(PaxText("size", "-1") + good, {"no number"});
  ExpectBad(TarMemberText("p", "99 path=x\n", 'x') + good, {"pax header that is damaged"});
  ExpectBad(TarMemberText("p", "8 pat=x\n", 'g') + PaxText("path", "b.jpg"), {"cut off"});
  ExpectBad(std::string(700, 'x'), {"no tar header"});
}

TEST_F(WebdatasetTest, TheLastPartOfAnExtensionSaysWhatItHolds) {
  const auto dataset = Open(TarMemberText("a.jpg", "A") + TarMemberText("a.caption.txt", "a dog") +
                            TarMemberText("a.fine.cls", " 7") + TarMemberText("a.mask.png", "M"));
  EXPECT_EQ(Fields(*dataset),
            "data uint8[?] encoded, caption.txt uint8[?], fine.cls int64[], mask.png uint8[?] "
            "encoded");
  EXPECT_THAT(Numbers<int64_t>(*dataset, 0, "fine.cls"), ElementsAre(7));
}

TEST_F(WebdatasetTest, ClassesAreNamedByAListOrAFile) {
  folder_.Write("a.tar", TarMemberText("a.jpg", "A") + TarMemberText("a.cls", "1"));
  folder_.Write("names", "a cat\n\xff\xfe\n\n");
  const auto plain = opener_.MustOpen(kYaml);
  EXPECT_THAT(plain->classes(), ElementsAre());
  const auto listed = opener_.MustOpen("{format: webdataset, root: root, classes: [cat, dog]}");
  EXPECT_THAT(listed->classes(), ElementsAre("cat", "dog"));
  EXPECT_NE(listed->digest(), plain->digest());
  const std::string by_file = "{format: webdataset, root: root, class_file: names}";
  EXPECT_THAT(opener_.MustOpen(by_file)->classes(), ElementsAre("a cat", "\xff\xfe", ""));
  folder_.Write("names", "owl\n");
  EXPECT_THAT(opener_.MustOpen(by_file)->classes(), ElementsAre("owl"));
  // As Windows writes it.
  folder_.Write("names", "\xef\xbb\xbfowl\r\na cat\r\n\r\nb\rc\r\n");
  EXPECT_THAT(opener_.MustOpen(by_file)->classes(), ElementsAre("owl", "a cat", "", "b\rc"));
  folder_.Write("names", "owl\r\ncat");
  EXPECT_THAT(opener_.MustOpen(by_file)->classes(), ElementsAre("owl", "cat"));
  ExpectRefused("{format: webdataset, root: root, class_file: nowhere}", {"nowhere"},
                absl::StatusCode::kNotFound);
  ExpectRefused("{format: webdataset, root: root, class_file: names, classes: [a]}",
                {"'classes' and 'class_file' say the same"});
}

TEST_F(WebdatasetTest, ArraysSayLengthsThatDifferOnSeveralAxes) {
  folder_.Write("a.tar", TarMemberText("a.x.npy", NpyText("|u1", "(2, 3, 1)", "abcdef")) +
                             TarMemberText("b.x.npy", NpyText("|u1", "(1, 2, 1)", "gh")) +
                             TarMemberText("c.x.npy", NpyText("|u1", "(6,)", "ijklmn")) +
                             TarMemberText("d.x.npy", "ijklmn"));
  const auto dataset = opener_.MustOpen(
      "{format: webdataset, root: root, fields: {x: {from: x.npy, dtype: uint8, shape: [-1, -1, "
      "1]}}}");
  const auto shape_of = [&](int64_t record) {
    Record scratch;
    const auto bytes = ReadExtents(*dataset, record);
    EXPECT_TRUE(ParseBytes(*dataset, record, bytes, &scratch).ok());
    return scratch.fields[0].spec.shape;
  };
  EXPECT_EQ(shape_of(0), (Shape{2, 3, 1}));
  EXPECT_EQ(shape_of(1), (Shape{1, 2, 1}));
  EXPECT_EQ(FieldOf(*dataset, 1, "x"), "gh");
  EXPECT_EQ(FieldOf(*dataset, 2, "x"), "error: field 'x' has the shape [6], not [?,?,1]");
  EXPECT_THAT(FieldOf(*dataset, 3, "x"), HasSubstr("is no .npy array"));
  ExpectRefused(
      "{format: webdataset, root: root, fields: {x: {from: __key__, dtype: uint8, shape: [-1, "
      "-1]}}}",
      {"one -1 at most"});
}

TEST_F(WebdatasetTest, GlobalHeadersBelongToNoRecord) {
  const auto dataset =
      Open(TarMemberText("g", "14 comment=xy\n", 'g') + TarMemberText("a.jpg", "A") +
           TarMemberText("g", "14 comment=xy\n", 'g') + TarMemberText("b.jpg", "B"));
  ASSERT_EQ(dataset->size(), 2);
  std::vector<Extent> extents;
  dataset->Extents(1, &extents);
  EXPECT_EQ(extents[0].offset, 3072);
  EXPECT_EQ(FieldOf(*dataset, 0, "data"), "A");
  EXPECT_EQ(FieldOf(*dataset, 1, "data"), "B");
}

TEST_F(WebdatasetTest, EveryHeaderOfAHostileArchiveEndsTheReading) {
  const std::string data = OutsideData();
  if (data.empty()) GTEST_SKIP() << "no outside data";
  int archives = 0;
  for (const char* kind : {"tar", "tar_go"}) {
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(data + "/hostile/" + kind)) {
      if (!entry.is_regular_file()) continue;
      std::ifstream file(entry.path(), std::ios::binary);
      const std::string bytes((std::istreambuf_iterator<char>(file)), {});
      folder_.Write("a.tar", bytes);
      ++archives;
      const auto dataset = opener_.Open(kYaml);
      if (!dataset.ok()) {
        EXPECT_FALSE(dataset.status().message().empty());
        continue;
      }
      Record scratch;
      for (int64_t i = 0; i < (*dataset)->size(); ++i)
        (void)ParseBytes(**dataset, i, ReadExtents(**dataset, i), &scratch);
    }
  }
  EXPECT_GT(archives, 20);
}

TEST_F(WebdatasetTest, RealShardsGiveTheirRecords) {
  const std::string data = OutsideData();
  if (data.empty()) GTEST_SKIP() << "no outside data";
  Opener opener(data + "/webdataset");
  const auto dataset = opener.MustOpen("{format: webdataset, root: root, files: [tendata.tar]}");
  ASSERT_NE(dataset, nullptr);
  EXPECT_EQ(dataset->size(), 100);
}

TEST(SplitMemberName, FollowsWebdataset) {
  absl::string_view key;
  std::string extension;
  ASSERT_TRUE(SplitMemberName("a.b/c.Seg.PNG", &key, &extension));
  EXPECT_EQ(key, "a.b/c");
  EXPECT_EQ(extension, "seg.png");
  for (const char* name : {"a/b", ".hidden.jpg", "a/._x.jpg", "__key__.txt__", ""})
    EXPECT_FALSE(SplitMemberName(name, &key, &extension)) << name;
}

// --- an index beside the shard (tar_index.h)

class IndexBesideTest : public WebdatasetTest {
 protected:
  static std::string RecordText(int number) {
    return TarMemberText(absl::StrCat("k", number, ".jpg"), std::string(700 + number, 'j')) +
           TarMemberText(absl::StrCat("k", number, ".cls"), absl::StrCat(number));
  }
  // A shard of so many records, and what `feedwater convert` writes beside it.
  static std::string Shard(int records, TarIndex* index) {
    std::string archive;
    for (int i = 0; i < records; ++i) {
      const std::string record = RecordText(i);
      EXPECT_TRUE(index->Add(static_cast<int64_t>(archive.size()), record).ok());
      archive += record;
    }
    archive += TarEnd();
    index->tar_bytes = static_cast<int64_t>(archive.size());
    return archive;
  }
  static std::vector<std::string> Contents(const Dataset& dataset) {
    std::vector<std::string> all = {dataset.digest(), Fields(dataset)};
    for (int64_t r = 0; r < dataset.size(); ++r) {
      all.push_back(FieldOf(dataset, r, "data"));
      std::vector<Extent> extents;
      dataset.Extents(r, &extents);
      for (const Extent& extent : extents)
        all.push_back(absl::StrCat(extent.object, " ", extent.offset, " ", extent.length));
    }
    return all;
  }
};

TEST_F(IndexBesideTest, GivesWhatAScanGives) {
  TarIndex index;
  const std::string archive = Shard(30, &index);
  const std::vector<std::string> scanned = Contents(*Open(archive));
  folder_.Write("a.tar.fwidx", index.Text());
  const auto dataset = Open(archive);
  EXPECT_EQ(Contents(*dataset), scanned);
  EXPECT_EQ(dataset->notes(), "");
}

// A shard in which the scan would fail shows that there was none.
TEST_F(IndexBesideTest, SparesTheScan) {
  TarIndex index;
  std::string archive = Shard(30, &index);
  archive[index.begins[5] * kTarBlock + 150] ^= 1;  // a header's checksum, where nobody looks
  ExpectBad(archive, {"checksum"});
  folder_.Write("a.tar.fwidx", index.Text());
  const auto dataset = Open(archive);
  ASSERT_EQ(dataset->size(), 30);
  EXPECT_EQ(FieldOf(*dataset, 4, "data"), std::string(704, 'j'));
}

TEST_F(IndexBesideTest, OfAnotherShardIsNotUsed) {
  TarIndex index, other;
  const std::string archive = Shard(30, &index);
  const std::vector<std::string> scanned = Contents(*Open(archive));
  const auto expect_unused = [&](const TarIndex& beside, const std::string& why) {
    folder_.Write("a.tar.fwidx", beside.Text());
    const auto dataset = Open(archive);
    EXPECT_EQ(Contents(*dataset), scanned) << why;
    EXPECT_THAT(dataset->notes(), HasSubstr(why));
    EXPECT_THAT(dataset->notes(), HasSubstr("a.tar.fwidx"));
  };
  Shard(29, &other);
  expect_unused(other, "another size");
  other.tar_bytes = index.tar_bytes;
  expect_unused(other, "goes on behind");
  other = index;
  for (uint64_t& begin : other.begins) ++begin;
  expect_unused(other, "");
  other = index;
  other.extensions = {"jpg"};
  expect_unused(other, "other files");
  other = index;
  other.begins.erase(other.begins.begin());
  expect_unused(other, "several records");
  other = index;
  other.end -= 1;
  expect_unused(other, "");
}

// No look at a few records finds it: then the record itself does.
TEST_F(IndexBesideTest, ThatTakesTwoRecordsForOneIsFoundByTheRecord) {
  TarIndex index;
  const std::string archive = Shard(30, &index);
  index.begins.erase(index.begins.begin() + 17);
  folder_.Write("a.tar.fwidx", index.Text());
  const auto dataset = Open(archive);
  ASSERT_EQ(dataset->size(), 29);
  Record record;
  std::vector<Extent> extents;
  dataset->Extents(16, &extents);
  const std::string bytes = archive.substr(extents[0].offset, extents[0].length);
  const absl::Span<const std::byte> span(reinterpret_cast<const std::byte*>(bytes.data()),
                                         bytes.size());
  const absl::Status status = dataset->Parse(16, {span}, &record);
  EXPECT_THAT(std::string(status.message()), HasSubstr("several records"));
}

TEST_F(IndexBesideTest, ThatIsCutOrFlippedIsNone) {
  TarIndex index;
  Shard(3, &index);
  const std::string text = index.Text();
  ASSERT_TRUE(TarIndex::Parse(text).ok());
  for (size_t bytes = 0; bytes < text.size(); ++bytes)
    EXPECT_FALSE(TarIndex::Parse(text.substr(0, bytes)).ok()) << bytes;
  for (size_t at = 0; at < text.size(); ++at) {
    std::string flipped = text;
    flipped[at] ^= 4;
    EXPECT_FALSE(TarIndex::Parse(flipped).ok()) << at;
  }
  EXPECT_FALSE(TarIndex::Parse(text + "x").ok());
}

}  // namespace
}  // namespace feedwater::server
