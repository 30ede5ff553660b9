// JSON Lines: what is special about it. The conformance suite has the rest.
#include <limits>

#include "server/source/json_line.h"
#include "tests/source/dataset_reader.h"

namespace feedwater::server {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Strings = std::vector<std::string>;

class JsonlTest : public ::testing::Test {
 protected:
  JsonlTest() : opener_(folder_.path()) {}

  std::shared_ptr<const Dataset> Open(const std::string& text, const std::string& more = "") {
    folder_.Write("t/a.jsonl", text);
    return opener_.MustOpen("{format: jsonl, root: root, path: t" + more + "}");
  }
  std::string ErrorOf(const std::string& text, const std::string& more = "") {
    folder_.Write("t/a.jsonl", text);
    const auto dataset = opener_.Open("{format: jsonl, root: root, path: t" + more + "}");
    return dataset.ok() ? "no error" : dataset.status().ToString();
  }
  static Strings Types(const Dataset& dataset) {
    Strings types;
    for (const FieldSpec& field : dataset.fields())
      types.push_back(field.name + ": " + field.spec.ToString());
    return types;
  }

  TempFolder folder_;
  Opener opener_;
};

TEST_F(JsonlTest, KeysAreColumnsByPathAndTypesComeFromAllLines) {
  const auto dataset = Open(
      "\xef\xbb\xbf{\"a\": 1, \"b\": {\"c\": \"x\\n\\u00e9\", \"d\": {\"e\": true}}, \"f\": 1}\r\n"
      "  {\"f\": 0.5, \"b\": {\"d\": {\"e\": false}, \"c\": \"\"}, \"a\": -9223372036854775808}");
  ASSERT_NE(dataset, nullptr);
  EXPECT_THAT(Types(*dataset),
              ElementsAre("a: int64[]", "b.c: uint8[?]", "b.d.e: bool[]", "f: float64[]"));
  EXPECT_THAT(ReadFields(*dataset, 0),
              ElementsAre(BytesOf<int64_t>({1}), "x\n\xc3\xa9", BytesOf({true}), BytesOf({1.0})));
  EXPECT_THAT(ReadFields(*dataset, 1),
              ElementsAre(BytesOf<int64_t>({INT64_MIN}), "", BytesOf({false}), BytesOf({0.5})));
}

// As Python's json.dumps writes floats that are no numbers, and json.loads reads them.
TEST_F(JsonlTest, NanAndInfinityAreRealNumbers) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  const auto dataset = Open(
      "{\"a\": 1, \"l\": [1, 2, 0e0], \"t\": \"NaN, -Infinity\\\" NaN\", \"z\": "
      "{\"y\": 2}}\n"
      "{\"a\":NaN,\"l\":[Infinity,-Infinity , NaN],\"t\":\"\",\"z\":{\"y\":0e0}}\r\n"
      "{\"a\": -Infinity, \"l\": [-0.0000e0, 0.0000e0, 0e0], \"t\": \"a\", \"z\": {\"y\": NaN}}\n");
  ASSERT_NE(dataset, nullptr);
  EXPECT_THAT(Types(*dataset),
              ElementsAre("a: float64[]", "l: float64[3]", "t: uint8[?]", "z.y: float64[]"));
  EXPECT_THAT(ReadFields(*dataset, 0), ElementsAre(BytesOf<double>({1}), BytesOf<double>({1, 2, 0}),
                                                   "NaN, -Infinity\" NaN", BytesOf<double>({2})));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(ReadFields(*dataset, 1),
              ElementsAre(BytesOf<double>({nan}), BytesOf<double>({kInfinite, -kInfinite, nan}), "",
                          BytesOf<double>({0})));
  EXPECT_THAT(ReadFields(*dataset, 2),
              ElementsAre(BytesOf<double>({-kInfinite}), BytesOf<double>({-0.0, 0.0, 0.0}), "a",
                          BytesOf<double>({nan})));
}

// Python strings hold such halves where bytes were decoded with errors="surrogateescape".
TEST_F(JsonlTest, HalfOfASurrogatePairIsTheReplacementCharacter) {
  const std::vector<std::pair<std::string, std::string>> texts = {
      {"x\\ud83dy", "x\xef\xbf\xbdy"},
      {"\\uDC80", "\xef\xbf\xbd"},
      {"\\ud83d\\ud83d\\ude00", "\xef\xbf\xbd\xf0\x9f\x98\x80"},
      {"\\ud83d\\ude00\\ude00", "\xf0\x9f\x98\x80\xef\xbf\xbd"},
      {"\\ude00\\ud83d", "\xef\xbf\xbd\xef\xbf\xbd"},
      {"\\ud83d\\n\\\"\\u00e9", "\xef\xbf\xbd\n\"\xc3\xa9"},
      {"\\\\ud83d", "\\ud83d"},
      {"\\u0000\\udfff", std::string("\0\xef\xbf\xbd", 4)},
  };
  std::string lines;
  for (const auto& [text, value] : texts) lines += "{\"t\": \"" + text + "\", \"\\ud83d\": 1}\n";
  const auto dataset = Open(lines);
  ASSERT_NE(dataset, nullptr);
  ASSERT_EQ(dataset->size(), static_cast<int64_t>(texts.size()));
  for (size_t i = 0; i < texts.size(); ++i)
    EXPECT_EQ(ReadFields(*dataset, static_cast<int64_t>(i))[0], texts[i].second) << texts[i].first;
}

TEST_F(JsonlTest, AnEmptyListMayBeTheFirstValueThatIsEverRead) {
  const auto dataset = Open("{\"a\": []}\n{\"a\": [1, 2]}\n");
  ASSERT_NE(dataset, nullptr);
  EXPECT_THAT(ReadFields(*dataset, 0), ElementsAre(""));
}

TEST_F(JsonlTest, ListsOfNumbersHaveTheShapesThatAllLinesShare) {
  const auto dataset = Open(
      R"({"fixed": [1, 2], "open": [1], "rows": [[1, 2.5], [3, 4]], "cube": [[[1], [2]]], "mask": [true]})"
      "\n"
      R"({"fixed": [3, 4], "open": [], "rows": [], "cube": [[[3], [4]]], "mask": [false]})"
      "\n"
      R"({"fixed": [5, 6], "open": [1, 2, 3], "rows": [[5, 6]], "cube": [[[5], [6]]], "mask": [true]})"
      "\n");
  ASSERT_NE(dataset, nullptr);
  EXPECT_THAT(Types(*dataset),
              ElementsAre("fixed: int64[2]", "open: int64[?]", "rows: float64[?,2]",
                          "cube: int64[1,2,1]", "mask: bool[1]"));
  EXPECT_THAT(ReadFields(*dataset, 0), ElementsAre(BytesOf<int64_t>({1, 2}), BytesOf<int64_t>({1}),
                                                   BytesOf<double>({1, 2.5, 3, 4}),
                                                   BytesOf<int64_t>({1, 2}), BytesOf({true})));
  EXPECT_THAT(ReadFields(*dataset, 1), ElementsAre(BytesOf<int64_t>({3, 4}), "", "",
                                                   BytesOf<int64_t>({3, 4}), BytesOf({false})));
  Record record;
  ASSERT_TRUE(ParseBytes(*dataset, 1, ReadExtents(*dataset, 1), &record).ok());
  EXPECT_EQ(record.fields[2].spec.shape, (Shape{0, 2}));
}

TEST_F(JsonlTest, ListsInListsOfAnotherLengthInEachLineHaveTwoOpenAxes) {
  const auto dataset = Open("{\"x\": [[1, 2]]}\n{\"x\": [[3], [4]]}\n{\"x\": []}\n");
  ASSERT_NE(dataset, nullptr);
  EXPECT_THAT(Types(*dataset), ElementsAre("x: int64[?,?]"));
  Record record;
  ASSERT_TRUE(ParseBytes(*dataset, 1, ReadExtents(*dataset, 1), &record).ok());
  EXPECT_EQ(record.fields[0].spec.shape, (Shape{2, 1}));
  ASSERT_TRUE(ParseBytes(*dataset, 2, ReadExtents(*dataset, 2), &record).ok());
  EXPECT_EQ(record.fields[0].spec.shape, (Shape{0, 0}));
}

// Else the daemon's own memory would follow it into the batch.
TEST_F(JsonlTest, AnEmptyListInAListHasNoElementsOfTheOthers) {
  const std::string good = R"({"boxes": [[1, 2, 3, 4], [5, 6, 7, 8]], "labels": [7, 8]})"
                           "\n";
  const std::string other = R"({"boxes": [[1, 2, 3, 4]], "labels": [7, 8]})"
                            "\n";
  for (const std::string& empty : Strings{"[[]]", "[[], []]"}) {
    const std::string bad = "{\"boxes\": " + empty + ", \"labels\": [7, 8]}\n";
    for (const std::string& lines : Strings{good + bad, good + other + bad}) {
      const auto dataset = Open(lines);
      ASSERT_NE(dataset, nullptr);
      EXPECT_THAT(ReadFields(*dataset, dataset->size() - 1)[0],
                  HasSubstr("column 'boxes' holds a list of another shape than int64"))
          << lines;
    }
  }
  const auto cubes = Open(
      "{\"x\": [[[1, 2]], [[3, 4]]]}\n{\"x\": [[[1, 2], [3, 4]]]}\n{\"x\": [[[]]]}\n{\"x\": [[]]}\n"
      "{\"x\": []}\n");
  ASSERT_NE(cubes, nullptr);
  EXPECT_THAT(Types(*cubes), ElementsAre("x: int64[?,?,2]"));
  EXPECT_THAT(ReadFields(*cubes, 2)[0], HasSubstr("holds a list of another shape"));
  for (const auto& [record, shape] :
       std::vector<std::pair<int64_t, Shape>>{{3, {1, 0, 2}}, {4, {0, 0, 2}}}) {
    Record read;
    ASSERT_TRUE(ParseBytes(*cubes, record, ReadExtents(*cubes, record), &read).ok());
    EXPECT_EQ(read.fields[0].spec.shape, shape);
  }
}

TEST_F(JsonlTest, NullIsMissing) {
  const std::string text = "{\"n\": 1}\n{\"n\": null}\n{}\n";
  auto dataset = Open(text);
  ASSERT_NE(dataset, nullptr);
  EXPECT_THAT(ReadFields(*dataset, 1)[0], HasSubstr("column 'n' is missing"));
  EXPECT_THAT(ReadFields(*dataset, 2)[0], HasSubstr("column 'n' is missing"));
  dataset = Open(text, ", fields: {n: {optional: true}}");
  ASSERT_NE(dataset, nullptr);
  EXPECT_THAT(ReadFields(*dataset, 1), ElementsAre(BytesOf<int64_t>({0})));
}

TEST_F(JsonlTest, KeysThatCannotBeColumnsAreLeftOutAndAnErrorWhereAFieldAsksForThem) {
  for (const auto& [values, why] : std::vector<std::pair<Strings, std::string>>{
           {{"1", "\"x\""}, "text in .*line 2 and a number before"},
           {{"[1]", "1"}, "a number in .*line 2 and a list of numbers before"},
           {{"true", "1"}, "a number in .*line 2 and true or false before"},
           {{"[[1]]", "[1]"}, "lists in 1 level in .*line 2 and in 2 before"},
           {{"[\"x\"]", "[1]"}, "a list of text in .*line 1"},
           {{"[1]", "[{\"b\": [1, {\"c\": 2}]}]"}, "a list of objects in .*line 2"},
           {{"[[1, 2], [3]]", "[]"}, "lists of different lengths in a list in .*line 1"},
           {{"[1, [2]]", "[]"}, "a list of numbers and lists in .*line 1"},
           {{"[[1], 2]", "[]"}, "a list of numbers and lists in .*line 1"},
           {{"[[], 2]", "[]"}, "a list of numbers and lists in .*line 1"},
           {{"[1, null]", "[]"}, "null in a list in .*line 1"},
           {{"[1, true]", "[]"}, "a list of numbers and of true or false in .*line 1"},
           {{"[[[[[1]]]]]", "[]"}, "lists in more than 4 levels in .*line 1"},
           {{"1", "9223372036854775808"}, "an integer beyond int64 in .*line 2"},
           {{"1", "-9223372036854775809"}, "an integer beyond int64 in .*line 2"},
           {{"1.5", "36893488147419103233"}, "an integer beyond int64 in .*line 2"},
           {{"[1, 36893488147419103233]", "[]"}, "an integer beyond int64 in .*line 1"}}) {
    const std::string text =
        "{\"a\": " + values[0] + ", \"ok\": 1}\n{\"a\": " + values[1] + ", \"ok\": 2}\n";
    const auto dataset = Open(text);
    ASSERT_NE(dataset, nullptr);
    EXPECT_THAT(Types(*dataset), ElementsAre("ok: int64[]")) << text;
    EXPECT_THAT(dataset->notes(), ::testing::ContainsRegex("1 key .*'a' \\(" + why)) << text;
    EXPECT_THAT(ReadFields(*dataset, 1), ElementsAre(BytesOf<int64_t>({2}))) << text;
    const std::string error = ErrorOf(text, ", fields: {x: a}");
    EXPECT_THAT(error, ::testing::ContainsRegex("column 'a' of .* holds " + why)) << text;
    EXPECT_THAT(error, AllOf(HasSubstr("test.yaml:1:"), HasSubstr("cure:")));
  }
}

TEST_F(JsonlTest, BadFilesAreRefusedWithFileLineAndCure) {
  const auto nested = [](size_t levels, const std::string& open, const std::string& close) {
    std::string text = "{\"a\": ";
    for (size_t i = 0; i < levels; ++i) text += open;
    text += "1";
    for (size_t i = 0; i < levels; ++i) text += close;
    return text + "}\n";
  };
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{\"a\": 1}\n{\"a\": }\n", "line 2: no JSON at byte 7"},
      {"{\"a\": 1} {\"a\": 2}\n", "line 1: no JSON at byte"},
      {"[\n  {\"a\": 1}\n]\n", "line 1: a list, not an object"},
      {"{\n\"a\": 1}\n", "line 1: no JSON"},
      {"1\n", "line 1: a value, not an object"},
      {"{\"a\": \"\xff\"}\n", "line 1: no JSON"},
      {"{\"a\": 1e999}\n", "line 1: no JSON"},
      {"{\"a\": -NaN}\n", "line 1: no JSON"},
      {"{\"a\": NaN1}\n", "line 1: no JSON"},
      {"{\"a\": 1NaN}\n", "line 1: no JSON"},
      {"{\"a\": --Infinity}\n", "line 1: no JSON"},
      {"{\"a\": Infinity7}\n", "line 1: no JSON"},
      {"{\"a\": 3Infinity}\n", "line 1: no JSON"},
      {"{\"a\": nan}\n", "line 1: no JSON"},
      {"NaN\n", "line 1: no JSON"},
      {"{NaN: 1}\n", "line 1: no JSON"},
      {"{\"a\": [NaN\n", "line 1: no JSON"},
      {"{\"a\": NaN", "line 1: no JSON"},
      {"{\"a\": \"\\ud83d\\", "line 1: no JSON"},
      {"{\"a\": \"\\ud83d\\u12\"}\n", "line 1: no JSON"},
      {"{\"a\": \"\\udead\xff\"}\n", "line 1: no JSON"},
      {"{\"a\": 1", "line 1: no JSON"},
      {"{\"a\": 1}\n{\"a\": 1, \"a\": 2}\n", "line 2 has two values 'a'"},
      {"{\"a.b\": 1, \"a\": {\"b\": 2}}\n", "line 1 has two values 'a.b'"},
      {"{\"\": 1}\n", "a key without a name"},
      {nested(100, "[", "]"), "more than 64 levels"},
      {nested(100, "{\"b\": ", "}"), "more than 64 levels"},
      {nested(1'000'000, "[", "]"), "more than 64 levels"},
      {"{\"" + std::string(2000, 'k') + "\": 1}\n", "longer than 1024 bytes"},
      {"\x1f\x8b\x08", "gzip"},
      {"\n\n", "no records"},
      {"{}\n", "no key that can be a column"},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_THAT(ErrorOf(text), AllOf(HasSubstr(message), HasSubstr("root 'root'")))
        << text.substr(0, 60);
  }
  std::string many = "{\"a\": 1";
  for (int i = 0; i < 10'000; ++i) many += ", \"k" + std::to_string(i) + "\": 1";
  EXPECT_THAT(ErrorOf(many + "}\n"), HasSubstr("one key more than 10000"));
}

TEST_F(JsonlTest, ALineThatChangedIsABadRecord) {
  const auto dataset = Open("{\"n\": 1, \"t\": \"x\", \"l\": [1, 2]}\n");
  ASSERT_NE(dataset, nullptr);
  Record record;
  const auto error = [&](const std::string& bytes) {
    return ParseBytes(*dataset, 0, {bytes}, &record).ToString();
  };
  EXPECT_THAT(error("{\"n\": 0.5}"), HasSubstr("column 'n' holds a number, not int64"));
  EXPECT_THAT(error("{\"n\": [1]}"), HasSubstr("column 'n' holds a list of numbers"));
  EXPECT_THAT(error("{\"n\": 36893488147419103233}"),
              HasSubstr("column 'n' holds an integer beyond int64, not int64"));
  EXPECT_THAT(error("{\"t\": 1}"), HasSubstr("column 't' holds no text"));
  EXPECT_THAT(error("{\"l\": [[1], [2]]}"), HasSubstr("another shape than int64[2]"));
  EXPECT_THAT(error("{\"l\": [1]}"), HasSubstr("another shape than int64[2]"));
  EXPECT_THAT(error("{\"n\": 1, \"n\": 2}"), HasSubstr("two values"));
  EXPECT_THAT(error("{\"n\": 1"), HasSubstr("no JSON"));
  EXPECT_THAT(error(""), HasSubstr("no JSON"));
}

TEST_F(JsonlTest, LinesAcrossTheEndsOfTheBufferAreRead) {
  const std::string large(3 << 20, 'l');
  const auto dataset = Open("{\"t\": \"" + large + "\"}\n{\"t\": \"s\"}\n\n \n{\"t\": \"e\"}");
  ASSERT_NE(dataset, nullptr);
  ASSERT_EQ(dataset->size(), 3);
  EXPECT_EQ(ReadFields(*dataset, 0)[0], large);
  EXPECT_EQ(ReadFields(*dataset, 1)[0], "s");
  EXPECT_EQ(ReadFields(*dataset, 2)[0], "e");
  EXPECT_EQ(dataset->notes(), "2 empty lines");
  EXPECT_THAT(ErrorOf("{\"t\": \"" + std::string(65 << 20, 'l') + "\"}\n"),
              HasSubstr("longer than 64"));
}

// Or caches would not give way (Catalogue::MakeRoomFor).
TEST_F(JsonlTest, AKeyThatMemoryIsRefusedForSaysSo) {
  std::string line = "{\"k0\": 0";
  for (int i = 1; i < 5000; ++i) line += ", \"k" + std::to_string(i) + "\": 0";
  folder_.Write("t/a.jsonl", line + "}\n");
  opener_.budget = MemoryBudget::Create(1 << 20);
  const absl::Status refused = opener_.Open("{format: jsonl, root: root, path: t}").status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr(" line 1 indexes "));
  EXPECT_TRUE(RefusedMemoryOf(refused).has_value()) << refused;
}

TEST_F(JsonlTest, FilesShareOneBuffer) {
  const std::string line = "{\"t\": \"" + std::string(100'000, 'x') + "\"}\n";
  for (int i = 0; i < 40; ++i) folder_.Write("t/" + std::to_string(i) + ".jsonl", line);
  opener_.budget = MemoryBudget::Create(1 << 20);
  const auto dataset = opener_.MustOpen("{format: jsonl, root: root, path: t}");
  ASSERT_NE(dataset, nullptr);
  EXPECT_EQ(dataset->size(), 40);
}

TEST_F(JsonlTest, TheIndexKeepsFourBytesARecord) {
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += "{\"a\": 1}\n";
  const auto dataset = Open(text);
  ASSERT_NE(dataset, nullptr);
  EXPECT_LT(dataset->memory_bytes(), 100'000 * 4 + 4096);
}

}  // namespace
}  // namespace feedwater::server
