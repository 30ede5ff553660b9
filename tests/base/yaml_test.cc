// What YAML is read, what is refused, and that every refusal names its place.
#include "server/base/yaml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/test_data.h"

namespace feedwater::server {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

YamlNode Parse(absl::string_view text) {
  auto node = ParseYaml(text, "a.yaml");
  EXPECT_TRUE(node.ok()) << node.status();
  return node.ok() ? *std::move(node) : YamlNode();
}

std::string Refusal(absl::string_view text, const YamlLimits& limits = {}) {
  auto node = ParseYaml(text, "a.yaml", limits);
  if (node.ok()) return "was accepted";
  EXPECT_EQ(node.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(node.status().message());
}

TEST(Yaml, ReadsMapsListsAndScalarsWithTheirPlaces) {
  const YamlNode root = Parse("version: 1\nlist:\n  - a\n  - {b: 'two words'}\n");
  ASSERT_TRUE(root.is_map());
  ASSERT_EQ(root.entries.size(), 2u);
  EXPECT_EQ(root.entries[0].first.scalar, "version");
  const YamlNode* list = root.Find("list");
  ASSERT_NE(list, nullptr);
  ASSERT_EQ(list->items.size(), 2u);
  EXPECT_EQ(list->items[0].scalar, "a");
  EXPECT_EQ(list->items[0].Where(), "a.yaml:3:5");
  const YamlNode* b = list->items[1].Find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->scalar, "two words");
  EXPECT_EQ(b->Where(), "a.yaml:4:9");
  EXPECT_EQ(root.Find("c"), nullptr);
  EXPECT_EQ(b->Error("is wrong").message(), "a.yaml:4:9: is wrong");
}

TEST(Yaml, KeepsTheOrderOfTheFile) {
  const YamlNode root = Parse("{z: 1, a: 2, m: 3}");
  ASSERT_EQ(root.entries.size(), 3u);
  EXPECT_EQ(root.entries[0].first.scalar, "z");
  EXPECT_EQ(root.entries[1].first.scalar, "a");
  EXPECT_EQ(root.entries[2].first.scalar, "m");
}

TEST(Yaml, OnlyAnUnquotedNullIsNothing) {
  const YamlNode root = Parse("a: null\nb: 'null'\nc: ~\nd: \"~\"\ne:\nf: ''\ng: Null\nh: nUll\n");
  const auto is_null = [&](absl::string_view key) {
    return root.Find(key)->kind == YamlNode::Kind::kNull;
  };
  EXPECT_TRUE(is_null("a"));
  EXPECT_FALSE(is_null("b"));
  EXPECT_TRUE(is_null("c"));
  EXPECT_FALSE(is_null("d"));
  EXPECT_TRUE(is_null("e"));
  EXPECT_FALSE(is_null("f"));
  EXPECT_TRUE(is_null("g"));
  EXPECT_FALSE(is_null("h"));
  EXPECT_EQ(root.Find("b")->scalar, "null");
  EXPECT_EQ(root.Find("c")->Where(), "a.yaml:3:4");
}

TEST(Yaml, AnEmptyValueStandsWhereItsKeyStands) {
  EXPECT_EQ(Parse("a: 1\nb:\n\n\n# later\nc: 2\n").Find("b")->Where(), "a.yaml:2:1");
}

TEST(Yaml, AnEmptyFileIsNothing) {
  for (absl::string_view text : {"", "\n\n", "# only a comment\n", "---\n", "\xef\xbb\xbf"}) {
    EXPECT_EQ(Parse(text).kind, YamlNode::Kind::kNull) << text;
  }
  EXPECT_EQ(Parse("").Where(), "a.yaml:1:1");
}

TEST(Yaml, ReadsWindowsLineEndingsAndAByteOrderMark) {
  const YamlNode root = Parse(
      "\xef\xbb\xbf"
      "a: 1\r\nb: [2, 3]\r\n");
  EXPECT_EQ(root.Find("a")->scalar, "1");
  EXPECT_EQ(root.Find("b")->items[1].scalar, "3");
  EXPECT_EQ(root.Find("b")->Where(), "a.yaml:2:4");
}

TEST(Yaml, RefusesAnchorsAliasesTagsAndMergeKeysWithTheirPlace) {
  EXPECT_EQ(Refusal("a: 1\nb: &x 2\n"),
            "a.yaml:2:4: anchors ('&name') are not allowed: write the value out wherever it is "
            "used");
  EXPECT_THAT(Refusal("a: &x [1]\n"), HasSubstr("a.yaml:1:4: anchors"));
  EXPECT_THAT(Refusal("a: &x\n"), HasSubstr("anchors"));
  EXPECT_THAT(Refusal("&x a: 1\n"), HasSubstr("a.yaml:1:1: anchors"));
  EXPECT_EQ(Refusal("a: *x\n"),
            "a.yaml:1:4: aliases ('*name') are not allowed: write the value out, or put a text "
            "with '*' in quotes");
  EXPECT_THAT(Refusal("a: 1\nb: !!python/object x\n"), HasSubstr("a.yaml:2:4: tags"));
  EXPECT_THAT(Refusal("a: !!str 1\n"), HasSubstr("tags"));
  EXPECT_THAT(Refusal("a: ! 1\n"), HasSubstr("tags"));
  EXPECT_THAT(Refusal("a: ! '1'\n"), HasSubstr("tags"));
  EXPECT_THAT(Refusal("a: !x {b: 1}\n"), HasSubstr("tags"));
  EXPECT_THAT(Refusal("a: !x [1]\n"), HasSubstr("tags"));
  EXPECT_THAT(Refusal("a: !!null\n"), HasSubstr("tags"));
  EXPECT_THAT(Refusal("a: !<tag:yaml.org,2002:str> x\n"), HasSubstr("tags"));
  EXPECT_EQ(Refusal("a:\n  <<: {b: 1}\n"),
            "a.yaml:2:3: merge keys ('<<') are not allowed: write the keys out");
}

TEST(Yaml, RefusesABillionLaughs) {
  std::string text = "a: &a [x, x]\n";
  for (char c = 'b'; c < 'k'; ++c) {
    absl::StrAppend(&text, std::string(1, c), ": &", std::string(1, c), " [*",
                    std::string(1, c - 1), "]\n");
  }
  EXPECT_THAT(Refusal(text), HasSubstr("a.yaml:1:4: anchors"));
}

TEST(Yaml, RefusesAKeyThatStandsTwice) {
  EXPECT_EQ(Refusal("b: 2\na: 1\na: 3\n"),
            "a.yaml:3:1: the key 'a' appears twice, first in line 2: remove one of the two");
  EXPECT_THAT(Refusal("{x: {p: 1, 'p': 2}}"),
              StartsWith("a.yaml:1:12: the key 'p' appears twice, first in line 1"));
  EXPECT_EQ(Parse("{x: {p: 1}, y: {p: 2}}").entries.size(), 2u);  // two maps may each have it
}

TEST(Yaml, RefusesKeysThatAreNotWords) {
  EXPECT_THAT(Refusal("? [a]\n: 1\n"), HasSubstr("a key must be a plain word"));
  EXPECT_THAT(Refusal("? {a: 1}\n: 1\n"), HasSubstr("a key must be a plain word"));
  EXPECT_THAT(Refusal("~: 1\n"), HasSubstr("a key must be a plain word"));
  EXPECT_THAT(Refusal("{[a, b]: 1}"), HasSubstr("a key must be a plain word"));
}

TEST(Yaml, RefusesASecondDocument) {
  EXPECT_THAT(Refusal("a: 1\n---\nb: 2\n"), HasSubstr("second document"));
  EXPECT_THAT(Refusal("a: 1\n...\nb: 2\n"), StartsWith("a.yaml:3:1: "));
  EXPECT_EQ(Parse("---\na: 1\n...\n").Find("a")->scalar, "1");
}

TEST(Yaml, RefusesDepthInEveryWayOfWritingIt) {
  const auto repeated = [](absl::string_view part, int times) {
    std::string text;
    for (int i = 0; i < times; ++i) absl::StrAppend(&text, part);
    return text;
  };
  YamlLimits limits;
  limits.max_bytes = 1 << 20;
  EXPECT_TRUE(ParseYaml(repeated("[", 64) + repeated("]", 64), "a.yaml").ok());
  EXPECT_EQ(Refusal(repeated("[", 65) + repeated("]", 65)),
            "a.yaml:1:65: nested more than 64 levels deep");
  for (absl::string_view part :
       {"[", "{", "{a: ", "[{a: ", "- ", "? ", "? - ", "a: [", "!x [", "&a ["}) {
    EXPECT_THAT(Refusal(repeated(part, 100'000), limits), StartsWith("a.yaml:1:")) << part;
  }
}

TEST(Yaml, RefusesTooManyBytesAndTooManyValues) {
  YamlLimits limits;
  limits.max_bytes = 10;
  EXPECT_THAT(Refusal("abcdefghijk", limits), HasSubstr("11 bytes, more than the limit of 10"));
  EXPECT_TRUE(ParseYaml("abcdefghij", "a.yaml", limits).ok());
  limits = {};
  limits.max_nodes = 4;  // the list itself is one
  EXPECT_TRUE(ParseYaml("[1, 2, 3]", "a.yaml", limits).ok());
  EXPECT_EQ(Refusal("[1, 2, 3, 4]", limits), "a.yaml:1:11: more than 4 values in one file");
}

TEST(Yaml, RefusesControlCharactersAndWhatIsNotUtf8) {
  // yaml-cpp alone takes byte 4 for the end of the file, and guesses UTF-16 from the first bytes.
  EXPECT_THAT(Refusal(absl::string_view("a: 1\nb: \x04 2\n")),
              HasSubstr("a.yaml:2:4: the control character \\x04"));
  EXPECT_THAT(Refusal(absl::string_view("a: \0 1", 6)),
              HasSubstr("a.yaml:1:4: the control character \\x00"));
  EXPECT_THAT(Refusal("a: \x1b[2J"), HasSubstr("control character"));
  EXPECT_THAT(Refusal("a: \xff"), HasSubstr("a.yaml:1:4: this is not UTF-8"));
  EXPECT_THAT(Refusal("a: \xc0\x80"), HasSubstr("not UTF-8"));
  EXPECT_THAT(Refusal("a: \xed\xa0\x80"), HasSubstr("not UTF-8"));
  EXPECT_THAT(Refusal("a: \xe2\x82"), HasSubstr("not UTF-8"));
  EXPECT_THAT(Refusal(absl::string_view("\xff\xfe"
                                        "a\0:\0",
                                        6)),
              HasSubstr("not UTF-8"));
  EXPECT_EQ(Parse("a: \xe2\x82\xac\n").Find("a")->scalar, "\xe2\x82\xac");
}

TEST(Yaml, NamesThePlaceOfABrokenFile) {
  EXPECT_THAT(Refusal("a: [1, 2\nb: 3\n"), StartsWith("a.yaml:1:4: "));
  EXPECT_THAT(Refusal("a: 1\n  b: 2\n"), StartsWith("a.yaml:2:"));
  EXPECT_EQ(Refusal("a: 'open\n"),
            "a.yaml:1:4: the closing ' of this text is missing: add it where the text ends");
  EXPECT_THAT(Refusal("a: 'it''s\n"), StartsWith("a.yaml:"));
  EXPECT_THAT(Refusal("a: \"open \\\"\n"), StartsWith("a.yaml:"));
  EXPECT_EQ(Parse("a: 'it''s'\nb: \"q\\\"\"").Find("a")->scalar, "it's");
  EXPECT_THAT(Refusal("a: @x\n"), StartsWith("a.yaml:1:"));
  EXPECT_THAT(Refusal("]"), StartsWith("a.yaml:1:"));
  EXPECT_THAT(Refusal("%YAML 9.9\n---\na: 1\n"), StartsWith("a.yaml:"));
}

TEST(Yaml, ABrokenFileSaysWhereToChangeWhat) {
  const struct {
    const char *text, *place, *message;
  } kCases[] = {
      // Tabs.
      {"a:\n\tb: 1\n", "2:1", "this line is indented with a tab"},
      {"a: 1\n\tb: {c: 1}\n", "2:1", "this line is indented with a tab"},
      {"a:\n  b: 1\n\tc: 2\n", "3:1", "this line is indented with a tab"},
      {"graph:\n\t- decode: {}\n", "2:1", "this line is indented with a tab"},
      {"graph:\n  - decode\n  \t- resize\n  - flip\n", "3:3", "tab"},
      // Brackets.
      {"a: 1\nb: {x: 1, y: 2\nc: [1]\n", "2:4",
       "this '{' is not closed: a '}' or a ',' is missing before line 3, column 2"},
      {"b: {x: 1, y: 2\n\n", "1:4", "this '{' is never closed: add its '}'"},
      {"b: [1, {x: 1}, 2\n", "1:4", "this '[' is never closed: add its ']'"},
      {"b: [1, {x: 1, 2]\n", "1:16", "this ']' closes nothing: remove it, or add the bracket that"},
      {"a: {x: 1 y: 2}\n", "1:11",
       "a ',' is missing before here, or the '}' of the '{' in column 4"},
      {"a: {out: view_{0..9}}\n", "1:15",
       "a text with '{' in it stands in quotes within '{' and '}', such as"},
      {"a: [view_{0..9}]\n", "1:10", "stands in quotes within '[' and ']'"},
      {"a: [b: 1\nc: 2\n", "1:4", "this '[' is not closed"},
      {"a: {b: 1}}\n", "1:10", "this '}' closes nothing: remove it, or add the bracket"},
      {"]", "1:1", "this ']' closes nothing: remove it, or add the bracket"},
      // Quotes.
      {"a: \"open\nb: \"x\"\n", "1:4", "the closing \" of this text is missing in its line"},
      {"a: 'open\nb: 'x'\n", "1:4", "the closing ' of this text is missing in its line"},
      {"a: \"\\d\"\n", "1:5", "within double quotes a '\\' begins an escape, and this is none"},
      // Keys, indentation.
      {"version 1\nb: {}\n", "1:1", "this line has no ':' after its key"},
      {"a: 1\nversion:1\nb: 2\n", "2:1", "this line has no ':' after its key"},
      {"- decode\n    size: 3\n", "1:1", "this line has no ':' after its key"},
      {"a: 1\n# so\n  b: 2\n", "3:3", "the key of line 1 already has a value"},
      {"g:\n  - decode   {in: data, out: image}\n", "2:11",
       "':' is missing behind 'decode': write 'decode: {'"},
      {"a: b: c\n", "1:5", "a second ': ' in one value: put a text in quotes"},
      {"a:\n  b: 1\n c: 2\n", "3:2", "this does not continue what is above: indent it"},
      {"a:\n  - b\n - c\n", "3:2", "this does not continue what is above: indent it"},
      {"b: 1\n- a\n", "2:1", "this does not continue what is above: indent it"},
      {"a: - b\n", "1:4", "a '- ' entry is not allowed here: begin it on a line of its own"},
      {"a: {x: 1, , y: 2}\n", "1:11", "a key must be a plain word, not nothing"},
      // Texts and what else YAML has.
      {"a: @x\n", "1:4", "a text cannot begin with '@': put it in quotes"},
      {"a: %x\n", "1:4", "a text cannot begin with '%': put it in quotes"},
      {"a: `x`\n", "1:4", "a text cannot begin with '`': put it in quotes"},
      {"%YAML 9.9\n---\na: 1\n", "1:1", "directives ('%...') are not needed: remove this line"},
      {"a: *.jpg\n", "1:4", "put a text with '*' in quotes"},
      {"a: & b\n", "1:5", "anchors ('&name') are not allowed: write the value out"},
      {"a: 1\n---\nb: 2\n", "2:1", "keep one, and remove the '---' or '...' line"},
  };
  for (const auto& broken : kCases) {
    const std::string refusal = Refusal(broken.text);
    EXPECT_THAT(refusal, StartsWith(absl::StrCat("a.yaml:", broken.place, ": "))) << broken.text;
    EXPECT_THAT(refusal, HasSubstr(broken.message)) << broken.text;
  }
}

TEST(Yaml, AMissingFileIsNotFoundAndALargeOneIsRefused) {
  EXPECT_EQ(ReadYamlFile("/nonexistent/x.yaml").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(ReadYamlFile("/nonexistent/x.yaml").status().message()),
              HasSubstr("/nonexistent/x.yaml"));
  EXPECT_THAT(std::string(ReadYamlFile("/dev/zero").status().message()),
              HasSubstr("larger than the limit"));
  EXPECT_FALSE(ReadYamlFile("/").ok());
}

TEST(Yaml, ReadsAFileFromDisk) {
  const std::string path = ::testing::TempDir() + "yaml_test.yaml";
  std::ofstream(path) << "a: 1\nb: !x 2\n";
  EXPECT_EQ(ReadYamlFile(path).status().message(),
            absl::StrCat(path, ":2:4: tags ('!name') are not allowed: remove it"));
  std::remove(path.c_str());
}

TEST(Yaml, EveryFileOfTheHostileSuiteGivesAStatus) {
  // The YAML test suite and damaged copies of it: no crash, and every refusal names the file.
  // Damage is seeded.
  FW_TEST_DATA_OR_SKIP(folder, "hostile/yaml");
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  ASSERT_GE(paths.size(), 300u);
  constexpr uint32_t kSeed = 1;
  std::mt19937 random(kSeed);
  int accepted = 0, refused = 0;
  for (const auto& path : paths) {
    std::stringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    std::string bytes = text.str();
    for (int damage = 0; damage < 40; ++damage) {
      SCOPED_TRACE(absl::StrCat(path.string(), " seed ", kSeed, " damage ", damage));
      auto node = ParseYaml(bytes, "a.yaml");
      if (node.ok()) {
        ++accepted;
      } else {
        ++refused;
        ASSERT_EQ(node.status().code(), absl::StatusCode::kInvalidArgument);
        ASSERT_THAT(std::string(node.status().message()), StartsWith("a.yaml:"));
      }
      if (bytes.empty()) break;
      static constexpr absl::string_view kMarks = "[]{},:-?|>&*!%'\"\\#\n \t~";
      const size_t at = random() % bytes.size();
      switch (random() % 3) {
        case 0:
          bytes[at] = kMarks[random() % kMarks.size()];
          break;
        case 1:
          bytes.erase(at, 1 + random() % 8);
          break;
        default:
          bytes.insert(at, 1, kMarks[random() % kMarks.size()]);
          break;
      }
    }
  }
  EXPECT_GT(accepted, 100);
  EXPECT_GT(refused, 100);
}

TEST(Suggest, NamesTheNearestAndTheKnown) {
  const std::vector<std::string> known = {"center_crop", "decode", "normalize", "resize"};
  EXPECT_EQ(Suggest("resise", known),
            ", did you mean 'resize'? Known: center_crop, decode, normalize, resize");
  EXPECT_EQ(Suggest("Normalise", known),
            ", did you mean 'normalize'? Known: center_crop, decode, normalize, resize");
  EXPECT_EQ(Suggest("edcode", known),
            ", did you mean 'decode'? Known: center_crop, decode, normalize, resize");
  EXPECT_EQ(Suggest("mixup", known), ". Known: center_crop, decode, normalize, resize");
  EXPECT_EQ(Suggest("", known), ". Known: center_crop, decode, normalize, resize");
  EXPECT_EQ(Suggest("resize", {}), "");
}

TEST(DidYouMean, NamesTheNearestAlone) {
  EXPECT_EQ(DidYouMean("blok", {"none", "block"}), ", did you mean 'block'?");
  EXPECT_EQ(DidYouMean("random", {"none", "block"}), "");
}

TEST(Suggest, AShortWordIsNearOnlyWhenOneLetterDiffers) {
  EXPECT_EQ(Suggest("q", {"p", "size"}), ". Known: p, size");
  EXPECT_EQ(Suggest("oot", {"root", "dim"}), ", did you mean 'root'? Known: root, dim");
  EXPECT_EQ(Suggest("abc", {"axy"}), ". Known: axy");
}

TEST(Suggest, CutsALongListAndIgnoresAnAbsurdWord) {
  std::vector<std::string> known;
  for (int i = 0; i < 1000; ++i) known.push_back(absl::StrCat("operator_", i));
  const std::string text = Suggest(std::string(100'000, 'x'), known);
  EXPECT_LT(text.size(), 700u);
  EXPECT_THAT(text, ::testing::ContainsRegex(", and [0-9]+ more$"));
}

TEST(Printable, EscapesAndCuts) {
  EXPECT_EQ(Printable("plain \xe2\x82\xac"), "plain \xe2\x82\xac");
  EXPECT_EQ(Printable("\x1b[31m\n\xff"), "\\x1b[31m\\x0a\\xff");
  EXPECT_EQ(Printable(std::string(1000, 'a')), std::string(80, 'a') + "...");
}

}  // namespace
}  // namespace feedwater::server
