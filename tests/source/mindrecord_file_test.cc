// Nothing that a MindRecord file's header, pages and lengths say is believed.
#include "server/source/mindrecord_file.h"

#include <algorithm>

#include "tests/source/mindrecord_fixture.h"

namespace feedwater::server {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

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

}  // namespace
}  // namespace feedwater::server
