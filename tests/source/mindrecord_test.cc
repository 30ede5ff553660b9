// What is special to MindRecord files: what each type of the schema becomes, packed integers, sets
// of files. mindrecord_file_test.cc has files that lie.
#include <algorithm>

#include "server/source/mindrecord_file.h"
#include "tests/source/mindrecord_fixture.h"

namespace feedwater::server {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(MindRecordTest, TypesOfTheSchemaAreTypesOfFields) {
  MindRecordText file;
  file.schema = {{"b", {{"type", "bytes"}}},
                 {"f32", {{"type", "float32"}}},
                 {"f64", {{"type", "float64"}}},
                 {"grid", {{"type", "float64"}, {"shape", {-1, 2}}}},
                 {"i32", {{"type", "int32"}}},
                 {"i64", {{"type", "int64"}}},
                 {"ids", {{"type", "int32"}, {"shape", {3}}}},
                 {"s", {{"type", "string"}}},
                 {"wide", {{"type", "int64"}, {"shape", {2, -1}}}}};
  file.blob_fields = {"wide", "b", "ids", "grid"};  // in an order of their own
  const auto doubles = [](std::vector<double> numbers) {
    std::string text;
    for (const double number : numbers) text += MindRecordNumber(number);
    return text;
  };
  file.rows = {
      {MindRecordMap(
           {{"f32", 0.1}, {"f64", 7}, {"i32", -70000}, {"i64", INT64_MIN}, {"s", "h\xc3\xa9"}}),
       MindRecordBlobText({MindRecordPacked({INT64_MAX, -1, 300, 1 << 20}), "JPEG",
                           MindRecordPacked({1, -2, 70000}), doubles({1, 2, 3, 4})})},
      {MindRecordMap({{"f32", 2}, {"f64", 0.1}, {"i32", 0}, {"i64", 5}, {"s", ""}}),
       MindRecordBlobText({MindRecordPacked({}), "", MindRecordPacked({0, 0, 0}), ""})}};
  Write(file);
  const auto dataset = opener_.MustOpen(kYaml);
  ASSERT_EQ(dataset->size(), 2);
  EXPECT_EQ(Fields(*dataset),
            "b uint8[?] encoded, f32 float32[], f64 float64[], grid float64[?,2], i32 int64[], "
            "i64 int64[], ids int32[3], s uint8[?], wide int64[2,?]");
  EXPECT_EQ(FieldOf(*dataset, 0, "b"), "JPEG");
  EXPECT_EQ(FieldOf(*dataset, 0, "s"), "h\xc3\xa9");
  EXPECT_THAT(Numbers<float>(*dataset, 0, "f32"), ElementsAre(0.1f));
  EXPECT_THAT(Numbers<double>(*dataset, 0, "f64"), ElementsAre(7));
  EXPECT_THAT(Numbers<double>(*dataset, 0, "grid"), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(Numbers<int64_t>(*dataset, 0, "i32"), ElementsAre(-70000));
  EXPECT_THAT(Numbers<int64_t>(*dataset, 0, "i64"), ElementsAre(INT64_MIN));
  EXPECT_THAT(Numbers<int32_t>(*dataset, 0, "ids"), ElementsAre(1, -2, 70000));
  EXPECT_THAT(Numbers<int64_t>(*dataset, 0, "wide"), ElementsAre(INT64_MAX, -1, 300, 1 << 20));
  EXPECT_THAT(Numbers<int64_t>(*dataset, 1, "wide"), ElementsAre());
  EXPECT_THAT(Numbers<float>(*dataset, 1, "f32"), ElementsAre(2));
}

// Version 2.0 stores integers as they are.
TEST_F(MindRecordTest, TheVersionSaysWhetherIntegersArePacked) {
  const json type = {{"type", "int32"}, {"shape", {-1}}};
  const std::string plain = MindRecordNumber(int32_t{5}) + MindRecordNumber(int32_t{-6});
  Write(Blob(type, plain, "2.0"));
  EXPECT_THAT(Numbers<int32_t>(*opener_.MustOpen(kYaml), 0, "x"), ElementsAre(5, -6));
  Write(Blob(type, MindRecordPacked({5, -6})));
  EXPECT_THAT(Numbers<int32_t>(*opener_.MustOpen(kYaml), 0, "x"), ElementsAre(5, -6));
  Write(Blob(type, plain, "4.0"));
  ExpectRefused(kYaml, {"a.mindrecord'", "is of version '4.0'", "2.0 and 3.0 are", "cure: "});
}

// A row's blob is not read for its label, nor the row for its image.
TEST_F(MindRecordTest, OnlyWhatAFieldAsksForIsRead) {
  MindRecordText file = Labels({4});
  file.schema["data"] = {{"type", "bytes"}};
  file.blob_fields = {"data"};
  file.rows[0].second = std::string(100, 'x');
  Write(file);
  const auto lengths = [&](const std::string& fields) {
    std::vector<Extent> extents;
    opener_.MustOpen(Yaml(fields))->Extents(0, &extents);
    std::vector<int64_t> lengths;
    for (const Extent& extent : extents) lengths.push_back(extent.length);
    return lengths;
  };
  const auto row = static_cast<int64_t>(8 + file.rows[0].first.size());
  EXPECT_THAT(lengths("fields: {label: label}"), ElementsAre(row));
  EXPECT_THAT(lengths("fields: {data: data}"), ElementsAre(108));
  EXPECT_THAT(lengths("fields: {data: data, label: label}"), ElementsAre(row, 108));
}

// As the first releases wrote: JSON's types, and blobs that are maps, too.
TEST_F(MindRecordTest, OldSchemasHaveTheTypesThatAllRowsHold) {
  MindRecordText file;
  file.version = "2.0";
  const json list = {{"type", "array"}, {"items", {{"type", "number"}}}};
  file.schema = {{"fixed", list},
                 {"flag", {{"type", "boolean"}}},
                 {"float", {{"type", "number"}}},
                 {"int", {{"type", "number"}}},
                 {"open", list},
                 {"seg", list}};
  file.blob_fields = {"seg"};
  for (int i = 0; i < 5; ++i) {
    const json number = i == 3 ? json(0.5) : json(i);
    file.rows.emplace_back(MindRecordMap({{"fixed", {1, i, number}},
                                          {"flag", i % 2 == 0},
                                          {"float", number},
                                          {"int", -i},
                                          {"open", std::vector<int>(static_cast<size_t>(i), 9)}}),
                           MindRecordMap({{"seg", {i, i}}}));
  }
  Write(file);
  const auto dataset = opener_.MustOpen(kYaml);
  EXPECT_EQ(Fields(*dataset),
            "fixed float64[3], flag int64[], float float64[], int int64[], open int64[?], "
            "seg int64[2]");
  EXPECT_THAT(Numbers<double>(*dataset, 3, "fixed"), ElementsAre(1, 3, 0.5));
  EXPECT_THAT(Numbers<int64_t>(*dataset, 4, "flag"), ElementsAre(1));
  EXPECT_THAT(Numbers<double>(*dataset, 2, "float"), ElementsAre(2));
  EXPECT_THAT(Numbers<int64_t>(*dataset, 2, "int"), ElementsAre(-2));
  EXPECT_THAT(Numbers<int64_t>(*dataset, 2, "open"), ElementsAre(9, 9));
  EXPECT_THAT(Numbers<int64_t>(*dataset, 4, "seg"), ElementsAre(4, 4));

  for (const auto& [value, why] :
       std::vector<std::pair<json, std::string>>{{{{1}}, "holds a list, not numbers"},
                                                 {7, "holds an integer, not a list"},
                                                 {{"t"}, "holds a text, not numbers"},
                                                 {nullptr, "no value by which"}}) {
    MindRecordText other;
    other.schema = {{"a", list}, {"b", {{"type", "string"}}}};
    other.rows.emplace_back(MindRecordMap({{"a", value}, {"b", "text"}}), "");
    Write(other);
    ExpectRefused(kYaml, {"column 'a'", why, "cure: "});
    const auto without = opener_.MustOpen(Yaml("fields: {b: b}"));
    EXPECT_EQ(FieldOf(*without, 0, "b"), "text");
    EXPECT_THAT(without->notes(), HasSubstr("column 'a' (array) is not read"));
  }
}

TEST_F(MindRecordTest, DataFilesAreThoseWithAnIndexDatabaseOrByName) {
  const auto part = [&](uint64_t shard, int label) {
    MindRecordText file = Labels({label});
    file.names = {"train0", "train1"};
    file.shard = shard;
    return file;
  };
  Write(part(0, 1), "train0");
  Write(part(1, 2), "train1");
  folder_.Write("d/train0.db", "SQLite format 3");
  folder_.Write("d/train1.db", "SQLite format 3");
  folder_.Write("d/notes.txt", "not data");
  EXPECT_THAT(AllLabels(), ElementsAre(1, 2));
  // A database alone is no data; a copied file needs none where its name says what it is.
  std::filesystem::remove(folder_ / "d/train1");
  ExpectRefused(kYaml,
                {"train0'", "is one of 2 files", "lacks 'train1'", "cure: copy it", "'files'"},
                absl::StatusCode::kNotFound);
  Write(part(1, 3), "copy.mindrecord12");
  EXPECT_THAT(AllLabels(), ElementsAre(3, 1)) << "in the order of names";
  EXPECT_THAT(AllLabels(Yaml("files: [train0, '*.mindrecord*']")), ElementsAre(1, 3));
  // Who names a part of a set gets that part, and is told.
  EXPECT_THAT(AllLabels(Yaml("files: [train0]")), ElementsAre(1));
  EXPECT_THAT(opener_.MustOpen(Yaml("files: [train0]"))->notes(),
              HasSubstr("1 file of the same sets not read, such as train1"));
  EXPECT_THAT(AllLabels("{format: mindrecord, root: root, path: d/train0}"), ElementsAre(1));
  ExpectRefused(Yaml("files: [train0.db]"),
                {"train0.db'", "is no MindRecord file", "it begins with no header", "cure: "});
  folder_.Write("e/notes.txt", "not data");
  ExpectRefused("{format: mindrecord, root: root, path: e}", {"holds no file *.mindrecord"},
                absl::StatusCode::kNotFound);
}

TEST_F(MindRecordTest, AFileBesideItsCopyIsRefusedUnlessBothAreNamed) {
  Write(Labels({1, 2}));
  Write(Labels({1, 2}), "b.mindrecord");
  ExpectRefused(kYaml, {"d/a.mindrecord'", "d/b.mindrecord'", "both say that they are",
                        "'a.mindrecord'", "cure: ", "'files'"});
  EXPECT_THAT(AllLabels(Yaml("files: [a.mindrecord]")), ElementsAre(1, 2));
  EXPECT_THAT(AllLabels(Yaml("files: ['*.mindrecord']")), ElementsAre(1, 2, 1, 2));
  Write(Labels({1, 3}), "b.mindrecord");  // which was written as a.mindrecord and renamed
  EXPECT_THAT(AllLabels(), ElementsAre(1, 2, 1, 3));
  Write(Labels({1, 2}), "c.mindrecord");
  ExpectRefused(kYaml, {"d/a.mindrecord'", "d/c.mindrecord'", "both say that they are"});
}

TEST_F(MindRecordTest, FilesOfAnotherSchemaAreRefused) {
  Write(Labels({1}), "a.mindrecord");
  MindRecordText other = Labels({2});
  other.schema["label"] = {{"type", "float64"}};
  Write(other, "b.mindrecord");
  ExpectRefused(kYaml, {"b.mindrecord'", "has another schema than", "a.mindrecord", "cure: "});
  EXPECT_THAT(AllLabels(Yaml("files: [a.mindrecord]")), ElementsAre(1));
}

TEST_F(MindRecordTest, FilesWithoutRecordsAreNoHarm) {
  Write(Labels({}), "a.mindrecord");
  ExpectRefused(kYaml, {"holds no records"});
  Write(Labels({7, 8}), "b.mindrecord");
  MindRecordText empty_pages = Labels({});
  empty_pages.change = [](json& header) {
    header["page"] = {{{"page_id", 0},
                       {"page_size", 0},
                       {"page_type", "RAW_DATA"},
                       {"row_group_ids", {{{"id", 0}, {"offset", 0}}}}},
                      {{"page_id", 1},
                       {"page_size", 0},
                       {"page_type", "BLOB_DATA"},
                       {"page_type_id", 0},
                       {"start_row_id", 0},
                       {"end_row_id", 0}}};
    header["header_size"] = 1024;
  };
  empty_pages.header_bytes = 4096;
  Write(empty_pages, "c.mindrecord");
  EXPECT_THAT(AllLabels(), ElementsAre(7, 8));
}

TEST_F(MindRecordTest, ARowThatIsNotWhatTheSchemaSaysIsABadSample) {
  const std::string good = MindRecordMap({{"label", 3}});
  const std::vector<std::pair<std::string, std::string>> rows = {
      {good, "\3"},
      {MindRecordMap({{"other", 3}}), "column 'label' is missing"},
      {MindRecordMap({{"label", nullptr}}), "column 'label' is missing"},
      {MindRecordMap({{"label", "3"}}), "column 'label' holds a text, not int32"},
      {MindRecordMap({{"label", 0.5}}), "column 'label' holds a number, not int32"},
      {MindRecordMap({{"label", {3}}}), "column 'label' holds a list, not int32"},
      {MindRecordMap({{"label", INT64_MAX}}), "holds 9223372036854775807, which is no int32"},
      {MindRecordMap({{"label", UINT64_MAX}}), "column 'label' holds an integer, not int32"},
      {MindRecordMap(json::array({1})), "its row is a list, not a map"},
      {good + "x", "its row goes on behind its map"},
      {good.substr(0, good.size() - 1), "its row ends within a value"},
      {"", "its row ends within a value"},
      {"\x82" + good.substr(1) + good.substr(1), "column 'label' stands there twice"},
      {"\xdf\xff\xff\xff\xff" + good.substr(1), "its row ends within a value"},
      {"\x81\3\3", "its row has an integer for a column's name"},
      {"\xc1", "its row holds a byte that begins no value"},
      {"\x81" + MindRecordMap("deep") + std::string(30, '\x91'), "its row ends within a value"},
  };
  MindRecordText file;
  file.schema = {{"label", {{"type", "int32"}}}};
  file.header_bytes = 8192;
  for (const auto& [row, message] : rows) file.rows.emplace_back(row, "");
  Write(file);
  const auto dataset = opener_.MustOpen(kYaml);
  EXPECT_THAT(Numbers<int64_t>(*dataset, 0, "label"), ElementsAre(3));
  for (size_t i = 1; i < rows.size(); ++i)
    EXPECT_THAT(FieldOf(*dataset, static_cast<int64_t>(i), "label"), HasSubstr(rows[i].second))
        << i;
  // Where a record may lack it, it is a zero.
  const auto optional = opener_.MustOpen(Yaml("fields: {label: {optional: true}}"));
  EXPECT_THAT(Numbers<int64_t>(*optional, 1, "label"), ElementsAre(0));
}

TEST_F(MindRecordTest, AFloatBeyondFloat32IsABadSample) {
  MindRecordText file;
  file.schema = {{"x", {{"type", "float32"}}}};
  file.header_bytes = 8192;
  file.rows = {{MindRecordMap({{"x", 0.5}}), ""}, {MindRecordMap({{"x", 1e39}}), ""}};
  Write(file);
  const auto dataset = opener_.MustOpen(kYaml);
  EXPECT_THAT(Numbers<float>(*dataset, 0, "x"), ElementsAre(0.5f));
  EXPECT_THAT(FieldOf(*dataset, 1, "x"), HasSubstr("holds 1e+39, which is no float32"));
}

TEST_F(MindRecordTest, ABlobThatIsNotWhatTheSchemaSaysIsABadSample) {
  const auto expect = [&](const json& type, const std::string& blob, const std::string& message) {
    Write(Blob(type, blob));
    EXPECT_THAT(FieldOf(*opener_.MustOpen(kYaml), 0, "x"), HasSubstr(message)) << message;
  };
  const json floats = {{"type", "float32"}, {"shape", {-1, 2}}};
  expect(floats, "abcde", "column 'x' has 5 bytes, no whole number of float32");
  expect(floats, std::string(12, 'x'), "has 3 elements, where the schema says [?,2]");
  expect({{"type", "float32"}, {"shape", {0, -1}}}, "abcd", "has 1 elements");
  expect({{"type", "float64"}, {"shape", {1}}}, "", "has 0 elements, where the schema says [1]");
  const json integers = {{"type", "int32"}, {"shape", {-1}}};
  const std::string packed = MindRecordPacked({1, 70000, 3, 4, 5});
  for (size_t keep = 0; keep < packed.size(); ++keep)
    expect(integers, packed.substr(0, keep), keep < 6 ? "is cut off" : "bytes of integers, where");
  expect(integers, packed + "x", "has 9 bytes of integers, where 8 belong");
  expect(integers, "\xff\xff\xff\xff", "column 'x' is cut off");
  expect(integers, MindRecordPacked({int64_t{1} << 40}), "1099511627776, which is no int32");

  MindRecordText file;
  file.schema = {{"a", {{"type", "bytes"}}}, {"b", {{"type", "bytes"}}}};
  file.blob_fields = {"a", "b"};
  const std::string good = MindRecordBlobText({"one", "two"});
  std::vector<std::string> blobs = {good + "x", "", "\xff\xff\xff\xff\xff\xff\xff\xff"};
  for (size_t keep = 1; keep < good.size(); ++keep) blobs.push_back(good.substr(0, keep));
  file.rows.emplace_back(MindRecordMap({{"id", 0}}), good);
  for (const std::string& blob : blobs) file.rows.emplace_back(MindRecordMap({{"id", 0}}), blob);
  file.header_bytes = 16384;
  Write(file);
  const auto dataset = opener_.MustOpen(kYaml);
  EXPECT_EQ(FieldOf(*dataset, 0, "b"), "two");
  for (int64_t i = 1; i < dataset->size(); ++i)
    EXPECT_THAT(FieldOf(*dataset, i, "b"), HasSubstr("do not add up to its length")) << i;
}

TEST_F(MindRecordTest, RealFilesHaveTheirRowsAndTypes) {
  const std::string data = OutsideData() + "/mindrecord";
  if (OutsideData().empty()) GTEST_SKIP() << "no outside data";
  Opener opener(data);
  const auto images =
      opener.MustOpen("{format: mindrecord, root: root, path: testMindDataSet/testImageNetData}");
  EXPECT_EQ(images->size(), 20);
  EXPECT_THAT(images->shard_starts(), ElementsAre(0, 5, 10, 15));
  EXPECT_EQ(Fields(*images), "data uint8[?] encoded, file_name uint8[?], label int64[]");
  for (int64_t i = 0; i < images->size(); ++i) {
    std::vector<Extent> extents;
    images->Extents(i, &extents);
    std::vector<std::string> bytes;
    for (const Extent& extent : extents) {
      std::ifstream file(data + "/" + images->ObjectPath(extent.object), std::ios::binary);
      file.seekg(extent.offset);
      bytes.emplace_back(static_cast<size_t>(extent.length), '\0');
      file.read(bytes.back().data(), extent.length);
    }
    Record record;
    ASSERT_TRUE(ParseBytes(*images, i, bytes, &record).ok());
    const auto text = [&](size_t field) {
      return std::string(reinterpret_cast<const char*>(record.fields[field].data),
                         record.fields[field].bytes());
    };
    EXPECT_EQ(text(0).substr(0, 3), "\xff\xd8\xff");
    EXPECT_THAT(text(1), HasSubstr("testImageNetDataWhole/images/n"));
  }
  const auto texts = opener.MustOpen("{format: mindrecord, root: root, path: testNlpReaderData}");
  EXPECT_EQ(texts->size(), 9);
  EXPECT_EQ(Fields(*texts),
            "id uint8[?], input_ids int64[50], input_mask int64[50], label int64[], rating "
            "int64[], segment_ids int64[50]");
}

}  // namespace
}  // namespace feedwater::server
