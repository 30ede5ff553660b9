// LMDB: what is special about it. The conformance suite has the rest.
#include "tests/source/dataset_reader.h"
#include "tests/source/lmdb_text.h"

namespace feedwater::server {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Strings = std::vector<std::string>;
using Records = std::map<std::string, std::string>;

constexpr size_t kPage = LmdbText::kPage;

class LmdbTest : public ::testing::Test {
 protected:
  LmdbTest() : opener_(folder_.path()) {}

  absl::StatusOr<std::shared_ptr<const Dataset>> Open(const std::string& text,
                                                      const std::string& more = "") {
    folder_.Write("db/data.mdb", text);
    return opener_.Open("{format: lmdb, root: root, path: db" + more + "}");
  }
  std::shared_ptr<const Dataset> MustOpen(const std::string& text, const std::string& more = "") {
    auto dataset = Open(text, more);
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    return dataset.ok() ? *dataset : nullptr;
  }
  std::string ErrorOf(const std::string& text, const std::string& more = "") {
    const auto dataset = Open(text, more);
    return dataset.ok() ? "no error" : dataset.status().ToString();
  }
  static Strings Row(const Dataset& dataset, int64_t record) {
    Record scratch;
    return ReadFields(dataset, record, &scratch);
  }

  TempFolder folder_;
  Opener opener_;
};

std::string KeyOf(int number) {
  std::string key = std::to_string(number);
  return std::string(5 - key.size(), '0') + key;
}

Records Many(int count) {
  Records records;
  for (int i = 0; i < count; ++i)
    records[KeyOf(i)] = RandomBytes(static_cast<size_t>(i) * 37 % 9000, static_cast<uint64_t>(i));
  return records;
}

std::string Int64(int64_t value) { return {reinterpret_cast<const char*>(&value), sizeof(value)}; }

// A Datum as protobuf writes it.
std::string Varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
  bytes.push_back(static_cast<char>(value));
  return bytes;
}
std::string Number(int field, int64_t value) {
  return Varint(static_cast<uint64_t>(field) << 3) + Varint(static_cast<uint64_t>(value));
}
std::string Bytes(int field, const std::string& bytes) {
  return Varint(static_cast<uint64_t>(field) << 3 | 2) + Varint(bytes.size()) + bytes;
}
std::string Datum(int64_t channels, int64_t height, int64_t width, const std::string& rest) {
  return Number(1, channels) + Number(2, height) + Number(3, width) + rest;
}

TEST_F(LmdbTest, RecordsAreInTheOrderOfKeysWhereverTheirValuesAre) {
  const Records records = Many(200);
  const auto dataset = MustOpen(LmdbText(records).text());
  ASSERT_NE(dataset, nullptr);
  ASSERT_EQ(dataset->size(), 200);
  int64_t i = 0;
  for (const auto& [key, value] : records) EXPECT_THAT(Row(*dataset, i++), ElementsAre(key, value));
  folder_.Write("one.lmdb", LmdbText(records).text());
  const auto file = opener_.MustOpen("{format: lmdb, root: root, path: one.lmdb}");
  ASSERT_NE(file, nullptr);
  EXPECT_THAT(Row(*file, 7), ElementsAre(KeyOf(7), records.at(KeyOf(7))));
}

TEST_F(LmdbTest, WhatNoFieldTakesIsNotRead) {
  const Records records = Many(20);
  const auto values = MustOpen(LmdbText(records).text(), ", fields: {x: data}");
  ASSERT_NE(values, nullptr);
  std::vector<Extent> extents;
  values->Extents(9, &extents);
  ASSERT_EQ(extents.size(), 1u);
  EXPECT_EQ(extents[0].length, static_cast<int64_t>(records.at(KeyOf(9)).size()));
  EXPECT_THAT(Row(*values, 9), ElementsAre(records.at(KeyOf(9))));
  const auto keys = MustOpen(LmdbText(records).text(), ", fields: {x: key}");
  ASSERT_NE(keys, nullptr);
  keys->Extents(9, &extents);
  ASSERT_EQ(extents.size(), 1u);
  EXPECT_EQ(extents[0].length, 5);
}

TEST_F(LmdbTest, TheIndexKeepsSixteenBytesARecord) {
  Records records;
  for (int i = 0; i < 20'000; ++i) records[KeyOf(i)] = "value";
  const auto dataset = MustOpen(LmdbText(records, 100).text());
  ASSERT_NE(dataset, nullptr);
  EXPECT_LT(dataset->memory_bytes(), 20'000 * 16 + 4096);
}

TEST_F(LmdbTest, TheNewestWholeMetaPageCounts) {
  const LmdbText good(Many(20));
  LmdbText text = good;
  text.Put<uint32_t>(kPage + 16, 0);  // the older one has no records
  EXPECT_THAT(ErrorOf(text.text()), HasSubstr("no records"));
  text = good;
  text.Put<uint32_t>(16, 0);  // the page size is then that of the newer one
  text.Put<uint32_t>(40, 0);
  const auto dataset = MustOpen(text.text());
  ASSERT_NE(dataset, nullptr);
  EXPECT_EQ(dataset->size(), 20);
  text.Put<uint32_t>(kPage + 16, 0);
  EXPECT_THAT(ErrorOf(text.text()), HasSubstr("no meta page is whole"));
}

TEST_F(LmdbTest, DamagedTreesAreRefusedWithThePage) {
  const LmdbText good(Many(20));
  const size_t root = good.root() * kPage;
  const size_t branch_node = good.NodeAt(good.root(), 0);
  uint64_t below = 0, leaf = good.root();
  for (int depth = good.Get<uint16_t>(LmdbText::kMain + 6); depth > 1; --depth) {
    below = leaf;
    leaf = good.Get<uint32_t>(good.NodeAt(leaf, 0));
  }
  const auto error = [&](auto change) {
    LmdbText text = good;
    change(&text);
    return ErrorOf(text.text());
  };
  const auto says = [](const std::string& what) {
    return AllOf(HasSubstr("'db/data.mdb' of root 'root'"), HasSubstr(what));
  };
  // Loops, of every kind.
  for (const uint64_t page : {good.root(), below, leaf}) {
    const size_t last = good.NodeAt(below, 1);
    EXPECT_THAT(error([&](LmdbText* text) { text->Put<uint32_t>(last, page); }),
                says("is reached twice"));
  }
  EXPECT_THAT(error([&](LmdbText* text) { text->Put<uint64_t>(LmdbText::kMain + 40, 99'999); }),
              says("page 99999 is a part of the tree, but the file has"));
  EXPECT_THAT(error([&](LmdbText* text) { text->Put<uint64_t>(LmdbText::kMain + 40, 1); }),
              says("page 1 is a part of the tree"));
  EXPECT_THAT(error([&](LmdbText* text) { text->Put<uint16_t>(branch_node + 4, 0xffff); }),
              says("is a part of the tree, but the file has"));
  EXPECT_THAT(error([&](LmdbText* text) { text->Put<uint16_t>(LmdbText::kMain + 6, 2); }),
              says("is no leaf of the tree"));
  EXPECT_THAT(error([&](LmdbText* text) { text->Put<uint16_t>(LmdbText::kMain + 6, 9); }),
              says("is no branch of the tree"));
  EXPECT_THAT(error([&](LmdbText* text) { text->Put<uint16_t>(LmdbText::kMain + 6, 33); }),
              HasSubstr("no records"));  // the older meta page
  EXPECT_THAT(error([&](LmdbText* text) { text->Put<uint64_t>(root, 7); }),
              says("says that it is another one"));
  for (const uint16_t lower : {uint16_t{0}, uint16_t{17}, uint16_t{4098}, uint16_t{65535}}) {
    EXPECT_THAT(error([&](LmdbText* text) { text->Put<uint16_t>(root + 12, lower); }),
                says("a list of nodes that does not fit"));
  }
  EXPECT_THAT(error([&](LmdbText* text) { text->Put<uint16_t>(root + 12, 16); }),
              says("is a branch without leaves"));
  for (const uint16_t at : {uint16_t{0}, uint16_t{4090}, uint16_t{65535}}) {
    EXPECT_THAT(error([&](LmdbText* text) { text->Put<uint16_t>(leaf * kPage + 16, at); }),
                says("a node that does not fit"));
  }
  const size_t node = good.NodeAt(leaf, 0);
  EXPECT_THAT(error([&](LmdbText* text) { text->Put<uint16_t>(node + 6, 5000); }),
              says("a node that does not fit"));
  EXPECT_THAT(error([&](LmdbText* text) { text->Put<uint16_t>(node + 2, 5000); }),
              says("a value that does not fit"));
  EXPECT_THAT(error([&](LmdbText* text) { text->Put<char>(node + 8, 'z'); }),
              says("keys that are not in order"));
  for (const uint64_t entries : {uint64_t{0}, uint64_t{19}, uint64_t{21}, UINT64_MAX}) {
    EXPECT_THAT(error([&](LmdbText* text) { text->Put(LmdbText::kMain + 32, entries); }),
                says("records, but has"));
  }
  // Cut off, in the middle of anything.
  for (size_t pages = 0; pages < good.text().size() / kPage; ++pages) {
    EXPECT_THAT(ErrorOf(good.text().substr(0, pages * kPage + 100)),
                ::testing::Not(HasSubstr("no error")));
  }
  EXPECT_THAT(ErrorOf(std::string(100'000, '\0')), says("no meta page is whole"));
  EXPECT_THAT(ErrorOf("x"), says("no meta page is whole"));
}

TEST_F(LmdbTest, LargeValuesMustLieOnTheirPages) {
  const LmdbText good(Records{{"a", std::string(5000, 'a')}, {"b", "b"}});
  const size_t node = good.NodeAt(good.root(), 0);
  const auto page = good.Get<uint64_t>(node + 9);
  for (const uint64_t wrong : {uint64_t{0}, uint64_t{1}, page + 1, page + 2, UINT64_MAX}) {
    LmdbText text = good;
    text.Put(node + 9, wrong);
    const auto dataset = Open(text.text());
    if (!dataset.ok()) {
      EXPECT_THAT(std::string(dataset.status().message()), HasSubstr("has a value on page"));
    } else {  // within the file: its bytes tell
      EXPECT_THAT(Row(**dataset, 0)[0], HasSubstr("does not hold the record's value"));
    }
  }
  LmdbText text = good;
  text.Put<uint32_t>(page * kPage + 12, 1);
  auto dataset = MustOpen(text.text());
  ASSERT_NE(dataset, nullptr);
  EXPECT_THAT(Row(*dataset, 0)[0], HasSubstr("does not hold the record's value"));
  text = good;
  text.Put<uint32_t>(node, 0xffffffff);
  EXPECT_THAT(ErrorOf(text.text()), HasSubstr("it was cut off"));
}

TEST_F(LmdbTest, WhatIsNotSupportedIsRefusedWithTheCure) {
  LmdbText text(Many(4));
  text.Put<uint16_t>(LmdbText::kMain + 4, 4);
  EXPECT_THAT(ErrorOf(text.text()), AllOf(HasSubstr("MDB_DUPSORT"), HasSubstr("cure:")));
  const LmdbText one(Records{{"a", "value"}});
  text = one;
  text.Put<uint16_t>(text.NodeAt(text.root(), 0) + 4, 2);
  EXPECT_THAT(ErrorOf(text.text()), AllOf(HasSubstr("named databases"), HasSubstr("mdb_load")));
  text = one;
  text.Put<uint16_t>(text.NodeAt(text.root(), 0) + 4, 6);
  EXPECT_THAT(ErrorOf(text.text()), HasSubstr("MDB_DUPSORT"));
  text = one;
  text.Put<uint16_t>(text.root() * kPage + 10, 0x22);
  EXPECT_THAT(ErrorOf(text.text()), HasSubstr("MDB_DUPSORT"));
  text = one;
  text.Put<uint32_t>(20, 2);
  text.Put<uint32_t>(kPage + 20, 2);
  EXPECT_THAT(ErrorOf(text.text()), AllOf(HasSubstr("format 2"), HasSubstr("mdb_dump")));
  EXPECT_THAT(ErrorOf(one.text(), ", values: pickle"),
              AllOf(HasSubstr("would run code"), HasSubstr("cure:")));
  EXPECT_THAT(ErrorOf(one.text(), ", values: caffe_datum"),
              AllOf(HasSubstr("record 0"), HasSubstr("is no Caffe Datum"), HasSubstr("cure:")));
  std::filesystem::remove(folder_ / "db/data.mdb");
  EXPECT_THAT(opener_.Open("{format: lmdb, root: root, path: db}").status().ToString(),
              HasSubstr("data.mdb"));
}

TEST_F(LmdbTest, DatumsGiveImageAndLabel) {
  const std::string pixels = RandomBytes(12, 1), more = RandomBytes(12, 2);
  auto dataset = MustOpen(LmdbText(Records{{"a", Datum(3, 2, 2, Bytes(4, pixels) + Number(5, 7))},
                                           {"b", Datum(3, 2, 2, Bytes(4, more) + Number(5, -1))},
                                           {"c", Datum(3, 2, 2, Bytes(4, more))}})
                              .text(),
                          ", values: caffe_datum");
  ASSERT_NE(dataset, nullptr);
  EXPECT_EQ(dataset->fields()[1].spec.ToString(), "uint8[3,2,2] CHW");
  EXPECT_THAT(Row(*dataset, 0), ElementsAre("a", pixels, Int64(7)));
  EXPECT_THAT(Row(*dataset, 1), ElementsAre("b", more, Int64(-1)));
  EXPECT_THAT(Row(*dataset, 2), ElementsAre("c", more, Int64(0)));

  dataset = MustOpen(
      LmdbText(Records{{"a", Bytes(4, "an image file") + Number(5, 3) + Number(7, 1)}}).text(),
      ", values: caffe_datum");
  ASSERT_NE(dataset, nullptr);
  EXPECT_EQ(dataset->fields()[1].spec.layout, Layout::kEncoded);
  EXPECT_THAT(Row(*dataset, 0), ElementsAre("a", "an image file", Int64(3)));

  const float values[2] = {0.5f, -2.0f};
  const std::string first(reinterpret_cast<const char*>(&values[0]), 4);
  const std::string second(reinterpret_cast<const char*>(&values[1]), 4);
  const std::string one_by_one = Varint(6 << 3 | 5) + first + Varint(6 << 3 | 5) + second;
  dataset = MustOpen(LmdbText(Records{{"a", Datum(2, 1, 1, Bytes(6, first + second))},
                                      {"b", Datum(1, 1, 2, one_by_one)}})
                         .text(),
                     ", values: caffe_datum");
  ASSERT_NE(dataset, nullptr);
  EXPECT_EQ(dataset->fields()[1].spec.ToString(), "float32[?,1,?]");
  EXPECT_EQ(Row(*dataset, 0)[1], first + second);
  EXPECT_EQ(Row(*dataset, 1)[1], first + second);
}

TEST_F(LmdbTest, DatumsThatAreNoneAreRefusedOrBadRecords) {
  const auto error = [&](const std::string& value) {
    return ErrorOf(LmdbText(Records{{"a", value}}).text(), ", values: caffe_datum");
  };
  const std::string good = Datum(1, 2, 2, Bytes(4, "abcd"));
  EXPECT_EQ(error(good), "no error");
  EXPECT_THAT(error(Datum(1, 2, 3, Bytes(4, "abcd"))), HasSubstr("1 x 2 x 3 with 4 elements"));
  EXPECT_THAT(error(Datum(-1, 2, 2, Bytes(4, "abcd"))), HasSubstr("impossible"));
  EXPECT_THAT(error(Datum(1 << 20, 1 << 20, 1 << 20, "")), HasSubstr("with 0 elements"));
  EXPECT_THAT(error(good.substr(0, good.size() - 1)), HasSubstr("is no Caffe Datum"));
  EXPECT_THAT(error(""), HasSubstr("is no Caffe Datum"));
  EXPECT_THAT(error(Datum(1, 2, 2, Bytes(6, "abc"))), HasSubstr("float_data"));
  EXPECT_THAT(ErrorOf(LmdbText(Records{{"a", good}, {"b", Number(7, 1) + Bytes(4, "x")}}).text(),
                      ", values: caffe_datum"),
              HasSubstr("record 1"));
  const auto dataset =
      MustOpen(LmdbText(Records{{"a", good}}).text(), ", values: caffe_datum, fields: {x: data}");
  ASSERT_NE(dataset, nullptr);
  Record record;
  const auto bad = [&](const std::string& value) {
    return ParseBytes(*dataset, 0, {value}, &record).ToString();
  };
  EXPECT_EQ(bad(good), "OK");
  EXPECT_THAT(bad(Datum(2, 2, 1, Bytes(4, "abcd"))), HasSubstr("as in the first records"));
  EXPECT_THAT(bad(Number(7, 1) + Bytes(4, "x")), HasSubstr("an encoded image"));
  EXPECT_THAT(bad("x"), HasSubstr("is no Caffe Datum"));
  EXPECT_THAT(bad(Datum(1, 1, 1, Bytes(6, std::string(4, 'f')))), HasSubstr("is not of uint8"));
}

}  // namespace
}  // namespace feedwater::server
