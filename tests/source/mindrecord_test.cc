// What is special to MindRecord files: what each type of the schema becomes, packed integers, sets
// of files, and that nothing which a header, a row or a blob says is believed.
#include <algorithm>

#include "server/source/json_document.h"
#include "server/source/mindrecord_file.h"
#include "tests/source/column_testing.h"
#include "tests/source/mindrecord_text.h"

namespace feedwater::server {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const char kYaml[] = "{format: mindrecord, root: root, path: d}";

std::string Yaml(const std::string& more) {
  return absl::StrCat("{format: mindrecord, root: root, path: d, ", more, "}");
}

class MindRecordTest : public ColumnTest {
 protected:
  void Write(const MindRecordText& file, const std::string& name = "a.mindrecord") {
    folder_.Write("d/" + name, file.text());
  }
  // Rows of one column `label`, without blobs.
  static MindRecordText Labels(const std::vector<int>& labels) {
    MindRecordText file;
    file.schema = {{"label", {{"type", "int64"}}}};
    for (const int label : labels)
      file.rows.emplace_back(MindRecordMap({{"label", label}}), std::string(4, '\0'));
    return file;
  }
  // One blob column of a type, and its one value.
  static MindRecordText Blob(const json& type, const std::string& blob,
                             const std::string& version = "3.0") {
    MindRecordText file;
    file.schema = {{"x", type}};
    file.blob_fields = {"x"};
    file.version = version;
    file.rows.emplace_back(MindRecordMap({{"id", 0}}), blob);
    return file;
  }
  std::vector<int64_t> AllLabels(const std::string& yaml = kYaml) {
    const auto dataset = opener_.MustOpen(yaml);
    std::vector<int64_t> labels;
    for (int64_t i = 0; dataset != nullptr && i < dataset->size(); ++i)
      labels.push_back(Numbers<int64_t>(*dataset, i, "label")[0]);
    return labels;
  }
};

TEST(JsonDocument, IsBoundedBeforeItIsParsed) {
  std::string objects = "[";
  for (int i = 0; i < 500'000; ++i) absl::StrAppend(&objects, i == 0 ? "{}" : ",{}");
  objects += "]";  // a parser that looks through the list at each of them takes minutes
  EXPECT_EQ(ParseJsonDocument(objects).size(), 500'000u);
  EXPECT_GE(ShapeOfJson(objects).memory_bytes(objects), 500'000 * 112);
  const auto nested = [](int depth) {
    return std::string(static_cast<size_t>(depth), '[') +
           std::string(static_cast<size_t>(depth), ']');
  };
  EXPECT_TRUE(ParseJsonDocument(nested(16)).is_array());
  EXPECT_TRUE(ParseJsonDocument(nested(17)).is_discarded());
  EXPECT_EQ(ParseJsonDocument(R"({"[[[[\"[[[[[[[[[[[[[[[[[[": "]{{{"})").size(), 1u);
  for (const char* bad : {"", "[", "]]]]", "\"", "\"\\", "{\"a\":"})
    EXPECT_TRUE(ParseJsonDocument(bad).is_discarded()) << bad;
}

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

// MindSpore moves a row group to a new page when rows are appended to it: the old page ends earlier
// than its bytes do.
TEST_F(MindRecordTest, BytesBehindAPagesEndAreNotRead) {
  MindRecordText file = Labels({1, 2, 3});
  file.group = 4;
  const std::string text = file.text();
  file.change = [](json& header) { header["page_size"] = 256; };
  folder_.Write("d/a.mindrecord", text + std::string(500, 'x'));
  EXPECT_THAT(AllLabels(), ElementsAre(1, 2, 3));
}

TEST_F(MindRecordTest, NothingThatAHeaderSaysIsBelieved) {
  // Page 0: blobs of rows 0 and 1; page 1: blobs of 2 and 3; page 2: both groups' rows; page 3:
  // the blob of row 4; page 4: row 4.
  const auto page = [](json& header, size_t i) -> json& { return header["page"][i]; };
  const std::vector<std::pair<std::string, std::function<void(json&)>>> lies = {
      {"no text 'version'", [](json& header) { header.erase("version"); }},
      {"has no list 'schema'", [](json& header) { header["schema"] = 1; }},
      {"has 0 schemas", [](json& header) { header["schema"] = nullptr; }},
      {"has 2 schemas", [](json& header) { header["schema"].push_back(header["schema"][0]); }},
      {"no object 'schema'", [](json& header) { header["schema"][0]["schema"] = "x"; }},
      {"column 'label' in its schema that is no object",
       [](json& header) { header["schema"][0]["schema"]["label"] = 1; }},
      {"without a type", [](json& header) { header["schema"][0]["schema"]["label"]["type"] = 5; }},
      {"whose shape is no list",
       [](json& header) { header["schema"][0]["schema"]["label"]["shape"] = 5; }},
      {"no length", [](json& header) { header["schema"][0]["schema"]["label"]["shape"] = {-2}; }},
      {"no length",
       [](json& header) { header["schema"][0]["schema"]["label"]["shape"] = {1ull << 63}; }},
      {"no length", [](json& header) { header["schema"][0]["schema"]["label"]["shape"] = {1.5}; }},
      {"more than one axis",
       [](json& header) {
         header["schema"][0]["schema"]["label"]["shape"] = {-1, -1};
       }},
      {"has the type 'int64' with a shape",
       [](json& header) { header["schema"][0]["schema"]["label"]["shape"] = {2}; }},
      {"has the type 'object'",
       [](json& header) { header["schema"][0]["schema"]["label"]["type"] = "object"; }},
      {"'blob_fields'", [](json& header) { header["schema"][0]["blob_fields"] = {"other"}; }},
      {"'blob_fields'", [](json& header) { header["schema"][0]["blob_fields"] = {3}; }},
      {"'blob_fields'",
       [](json& header) {
         header["schema"][0]["blob_fields"] = {"label", "label"};
       }},
      {"'shard_addresses'", [](json& header) { header["shard_addresses"] = 1; }},
      {"names no files", [](json& header) { header["shard_addresses"] = {1}; }},
      {"says that it is file 0 of a set of 0",
       [](json& header) { header["shard_addresses"] = json::array(); }},
      {"no number 'shard_id'", [](json& header) { header["shard_id"] = -1; }},
      {"no number 'header_size'", [](json& header) { header["header_size"] = "x"; }},
      {"in room for 10", [](json& header) { header["header_size"] = 10; }},
      {"does not lie in its", [](json& header) { header["header_size"] = UINT64_MAX; }},
      {"no number 'page_size'", [](json& header) { header["page_size"] = 1.5; }},
      {"where a page has 0", [](json& header) { header["page_size"] = 0; }},
      {"does not lie in its", [](json& header) { header["page_size"] = uint64_t{1} << 62; }},
      {"no list 'page'", [](json& header) { header["page"] = 4; }},
      {"page in its header that is no object", [&](json& header) { page(header, 0) = 1; }},
      {"no number 'page_id'", [&](json& header) { page(header, 0).erase("page_id"); }},
      {"two pages with the number 1", [&](json& header) { page(header, 0)["page_id"] = 1; }},
      {"page 1000000 does not lie", [&](json& header) { page(header, 0)["page_id"] = 1000000; }},
      {"does not lie", [&](json& header) { page(header, 0)["page_id"] = UINT64_MAX; }},
      {"has 300 bytes in page 0", [&](json& header) { page(header, 0)["page_size"] = 300; }},
      {"is cut off: page 4", [&](json& header) { page(header, 4)["page_size"] = 255; }},
      {"the type 'MAGIC'", [&](json& header) { page(header, 0)["page_type"] = "MAGIC"; }},
      {"has no list 'row_group_ids'",
       [&](json& header) { page(header, 2).erase("row_group_ids"); }},
      {"no number 'end_row_id'", [&](json& header) { page(header, 0)["end_row_id"] = -1; }},
      {"has rows 2 to 0",
       [&](json& header) {
         page(header, 0)["start_row_id"] = 2;
         page(header, 0)["end_row_id"] = 0;
       }},
      {"has rows 0 to 4000000000",
       [&](json& header) { page(header, 0)["end_row_id"] = 4000000000; }},
      {"two pages of blobs of row group 1",
       [&](json& header) { page(header, 0)["page_type_id"] = 1; }},
      {"row group 0 in page 2, and no page of its blobs",
       [&](json& header) { page(header, 0)["page_type_id"] = 9; }},
      {"blobs of row group 2, and no rows", [&](json& header) { header["page"].erase(4); }},
      {"row group 0 in page 2 and in another place",
       [&](json& header) { page(header, 2)["row_group_ids"][1]["id"] = 0; }},
      {"row group in page 2 that is no object",
       [&](json& header) { page(header, 2)["row_group_ids"][1] = "x"; }},
      {"no number 'offset'",
       [&](json& header) { page(header, 2)["row_group_ids"][1]["offset"] = -4; }},
      {"behind the page's end",
       [&](json& header) { page(header, 2)["row_group_ids"][1]["offset"] = 4000; }},
      {"before another", [&](json& header) { page(header, 2)["row_group_ids"][1]["offset"] = 0; }},
      {"has 0 rows in a row group",
       [&](json& header) { page(header, 3)["end_row_id"] = page(header, 3)["start_row_id"]; }},
      {"has a row group that begins with row 1, where row 2 is the next",
       [&](json& header) { page(header, 1)["start_row_id"] = 1; }},  // rows that overlap
      {"begins with row 3, where row 2",
       [&](json& header) {
         page(header, 1)["start_row_id"] = 3;
         page(header, 1)["end_row_id"] = 5;
       }},
      {"has 1 rows in a row group whose rows end",
       [&](json& header) {
         page(header, 3)["start_row_id"] = 3;
         page(header, 1)["end_row_id"] = 3;
         page(header, 3)["end_row_id"] = 4;
       }},
      {"does not end within its row group",
       [&](json& header) { page(header, 2)["row_group_ids"][1]["offset"] = 31; }},
      {"does not end within its row group",
       [&](json& header) { page(header, 3)["page_size"] = 11; }},
  };
  for (const auto& [message, lie] : lies) {
    MindRecordText file = Labels({0, 1, 2, 3, 4});
    file.header_bytes = 4096;
    Write(file);
    ASSERT_THAT(AllLabels(), ElementsAre(0, 1, 2, 3, 4));
    file.change = lie;
    Write(file);
    ExpectRefused(kYaml, {"a.mindrecord", message, "cure: "});
  }
}

TEST_F(MindRecordTest, AFileThatIsCutOffAnywhereIsRefused) {
  MindRecordText file = Labels({0, 1, 2});
  file.header_bytes = 1024;
  const std::string whole = file.text();
  for (size_t keep = 0; keep < whole.size(); keep += keep < 20 ? 1 : 7) {
    folder_.Write("d/a.mindrecord", whole.substr(0, keep));
    ExpectRefused(kYaml, {"a.mindrecord", "cut off", "cure: "});
  }
  for (const std::string& json : {std::string("[1]"), std::string(5000, '['), std::string("{")}) {
    folder_.Write("d/a.mindrecord", MindRecordNumber(uint64_t{json.size()}) + json);
    ExpectRefused(kYaml, {"a.mindrecord'", "has a header that is no JSON object", "cure: "});
  }
  folder_.Write("d/a.mindrecord", std::string(100, '\xff'));
  ExpectRefused(kYaml, {"is no MindRecord file"});
}

TEST_F(MindRecordTest, LengthsOfRowsAndBlobsThatLieAreRefused) {
  MindRecordText file = Labels({0, 1, 2});
  const std::string good = file.text();
  for (const size_t row : {size_t{2048}, size_t{2048 + 12}, size_t{2048 + 2 * 256}}) {
    for (const uint64_t lie : {uint64_t{0}, uint64_t{200}, UINT64_MAX, UINT64_MAX - 7}) {
      std::string text = good;
      std::memcpy(&text[row], &lie, sizeof(lie));
      folder_.Write("d/a.mindrecord", text);
      ExpectRefused(kYaml, {"a.mindrecord", "row group", "cure: "});
    }
  }
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

// A row or a blob that was damaged after the index was made.
TEST_F(MindRecordTest, ALengthThatIsNotTheIndexedOneIsADamage) {
  Write(Blob({{"type", "bytes"}}, "abc"));
  const auto dataset = opener_.MustOpen(kYaml);
  Record record;
  for (const std::string& bytes : {std::string("short"), MindRecordNumber(uint64_t{9}) + "abc",
                                   MindRecordNumber(UINT64_MAX) + "abc"}) {
    EXPECT_TRUE(absl::IsDataLoss(ParseBytes(*dataset, 0, {bytes}, &record)));
  }
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
