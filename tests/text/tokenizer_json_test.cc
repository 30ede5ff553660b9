// Tokenizers of a tokenizer.json without ByteLevel, as Llama 2, Gemma, T5 and XLM-R have them. What
// is expected is what tokenizers 0.23.3 gave; for the files of the tests as a whole see
// tokenizer_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "server/text/graphemes.h"
#include "server/text/json_vocabulary.h"
#include "server/text/unicode.h"
#include "tests/text/tokenizer_testing.h"

namespace feedwater::server {
namespace {

using namespace text_testing;  // NOLINT: the tests' own words
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Pieces = std::vector<std::pair<std::string, double>>;

json Unigram(const Pieces& vocabulary, const json& unknown = 0, bool falls_back = false) {
  return {{"model",
           {{"type", "Unigram"},
            {"unk_id", unknown},
            {"byte_fallback", falls_back},
            {"vocab", vocabulary}}}};
}

json Bpe(const json& vocabulary, const json& merges, const json& more = json::object()) {
  json model = {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", merges}};
  model.update(more);
  return {{"model", model}};
}

std::vector<int32_t> Ids(const json& file, const std::string& text) {
  const auto tokenizer = Make(file.dump());
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  if (!tokenizer.ok()) return {-1};
  const Encoded encoded = Encode(**tokenizer, text);
  EXPECT_TRUE(encoded.status.ok()) << encoded.status;
  return encoded.ids;
}

json Metaspace(const char* scheme, bool splits = true) {
  return {{"type", "Metaspace"},
          {"replacement", "\u2581"},
          {"prepend_scheme", scheme},
          {"split", splits}};
}

TEST(TokenizerJson, UnigramTakesTheBestPathAndFusesWhatIsUnknown) {
  const json file = Unigram({{"<unk>", 0.0},
                             {"a", 0.0},
                             {"b", 0.0},
                             {"c", 0.0},
                             {"d", 0.0},
                             {"cd", 1.0},
                             {"ab", 2.0},
                             {"abc", 5.0},
                             {"abcd", 10.0}});
  EXPECT_THAT(Ids(file, "abcdacdxx"), ElementsAre(8, 1, 5, 0));
  EXPECT_THAT(Ids(file, "x<unk>xa<unk>"), ElementsAre(0, 1, 0));
  EXPECT_THAT(Ids(file, ""), IsEmpty());
  // Unknown characters cost less than the token that they make, which is found all the same.
  EXPECT_THAT(Ids(Unigram({{"<unk>", 40.0}, {"xy", 41.0}, {"z", 42.0}}), "xyzyx"),
              ElementsAre(1, 2, 0));
}

TEST(TokenizerJson, UnigramFallsBackToBytesWhereEachHasAToken) {
  const Pieces vocabulary = {{"<unk>", 0.0}, {"a", -1.0}, {"<0xC3>", 0.0}, {"<0xA9>", 0.0}};
  EXPECT_THAT(Ids(Unigram(vocabulary, 0, true), "a\u00e9\u00e9a"), ElementsAre(1, 2, 3, 2, 3, 1));
  EXPECT_THAT(Ids(Unigram(vocabulary, 0, true), "a\u00e9\u00e8a"), ElementsAre(1, 0, 1));
  EXPECT_THAT(Ids(Unigram(vocabulary, 0, false), "a\u00e9a"), ElementsAre(1, 0, 1));
}

TEST(TokenizerJson, UnigramWithoutAnUnknownTokenRefusesTheText) {
  const auto tokenizer = Make(Unigram({{"a", -1.0}, {"ab", -2.0}}, nullptr).dump());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT(Encode(**tokenizer, "aba").ids, ElementsAre(1, 0));
  const Encoded encoded = Encode(**tokenizer, "ax");
  EXPECT_TRUE(absl::IsInvalidArgument(encoded.status));
  EXPECT_THAT(std::string(encoded.status.message()), HasSubstr("a character that is in no token"));
}

TEST(TokenizerJson, BpeOfCharactersMergesByTheOrderOfTheList) {
  const json vocabulary = {{"<unk>", 0}, {"a", 1},   {"b", 2},      {"c", 3},      {"ab", 4},
                           {"bc", 5},    {"abc", 6}, {"<0xC3>", 7}, {"<0xA9>", 8}, {"<unk>a", 9}};
  const json merges = json::array({"b c", "a b", "a bc"});
  EXPECT_THAT(Ids(Bpe(vocabulary, merges), "abcab"), ElementsAre(6, 4));
  EXPECT_THAT(Ids(Bpe(vocabulary, json::array({"a b", "b c"})), "abc"), ElementsAre(4, 3));
  EXPECT_THAT(Ids(Bpe(vocabulary, json::array(), {{"ignore_merges", true}}), "abc"),
              ElementsAre(6));
  // Without unk_token they are left out.
  EXPECT_THAT(Ids(Bpe(vocabulary, merges), "xabx"), ElementsAre(4));
  const json unknown = {{"unk_token", "<unk>"}};
  EXPECT_THAT(Ids(Bpe(vocabulary, merges, unknown), "xxab"), ElementsAre(0, 0, 4));
  const json fused = {{"unk_token", "<unk>"}, {"fuse_unk", true}};
  EXPECT_THAT(Ids(Bpe(vocabulary, merges, fused), "xxabx"), ElementsAre(0, 4, 0));
  EXPECT_THAT(Ids(Bpe(vocabulary, json::array({"<unk> a"}), fused), "xxab"), ElementsAre(9, 2));
  // What is unknown before them waits for the next token.
  const json bytes = {{"unk_token", "<unk>"}, {"fuse_unk", true}, {"byte_fallback", true}};
  EXPECT_THAT(Ids(Bpe(vocabulary, merges, bytes), "x\u00e9a"), ElementsAre(7, 8, 0, 1));
}

TEST(TokenizerJson, MetaspacePrefixesWordsAsItsSchemeSays) {
  json file = Unigram({{"<unk>", 0.0}, {"\u2581", -1.0}, {"a", -1.0}, {"\u2581a", -1.5}});
  file["added_tokens"] = {{{"id", 4}, {"content", "<s>"}, {"special", true}}};
  file["pre_tokenizer"] = Metaspace("always");
  EXPECT_THAT(Ids(file, "a a<s>a"), ElementsAre(3, 3, 4, 3));
  EXPECT_THAT(Ids(file, "  a"), ElementsAre(1, 3));
  file["pre_tokenizer"] = Metaspace("first");
  EXPECT_THAT(Ids(file, "a<s>a a"), ElementsAre(3, 4, 2, 3));
  EXPECT_THAT(Ids(file, "<s>a"), ElementsAre(4, 2));
  file["pre_tokenizer"] = Metaspace("never", false);
  EXPECT_THAT(Ids(file, "a a"), ElementsAre(2, 3));
  // A word that begins at a later character is no first one, nor is what Strip has left.
  file["pre_tokenizer"] = {{"type", "Sequence"},
                           {"pretokenizers", {{{"type", "WhitespaceSplit"}}, Metaspace("first")}}};
  EXPECT_THAT(Ids(file, "a a"), ElementsAre(3, 2));
  EXPECT_THAT(Ids(file, " a"), ElementsAre(2));
  file["pre_tokenizer"] = Metaspace("first");
  file["normalizer"] = {{"type", "Strip"}, {"strip_left", true}, {"strip_right", false}};
  EXPECT_THAT(Ids(file, " a"), ElementsAre(2));
  file["pre_tokenizer"] = Metaspace("always");
  file["pre_tokenizer"].erase("prepend_scheme");
  file["pre_tokenizer"]["add_prefix_space"] = true;
  file["pre_tokenizer"]["str_rep"] = "_";
  EXPECT_THAT(Ids(file, "a a"), ElementsAre(3, 3));
}

TEST(TokenizerJson, MatchesOfASplitJoinWhatStandsBesideThem) {
  json file = {{"model",
                {{"type", "WordLevel"},
                 {"unk_token", "<unk>"},
                 {"vocab", {{"<unk>", 0}, {"-", 1}, {"a-", 2}, {"-b", 3}, {"b", 4}, {"a", 5}}}}}};
  const auto split = [&](const char* behavior) {
    file["pre_tokenizer"] = {
        {"type", "Split"}, {"behavior", behavior}, {"pattern", {{"String", "-"}}}};
    return Ids(file, "a--b");
  };
  EXPECT_THAT(split("MergedWithPrevious"), ElementsAre(2, 1, 4));
  EXPECT_THAT(split("MergedWithNext"), ElementsAre(5, 1, 3));
  EXPECT_THAT(split("Isolated"), ElementsAre(5, 1, 1, 4));
}

TEST(TokenizerJson, AddedTokensAreLookedForAsTheNormalizerLeavesThem) {
  json file = Unigram({{"<unk>", 0.0}, {"\u2581", -1.0}, {"x", -1.0}});
  file["normalizer"] = {
      {"type", "Sequence"},
      {"normalizers",
       {{{"type", "Lowercase"}},
        {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}}}}};
  file["added_tokens"] = {{{"id", 3}, {"content", "A B"}, {"normalized", true}},
                          {{"id", 4}, {"content", "C D"}, {"normalized", false}}};
  EXPECT_THAT(Ids(file, "xa bx"), ElementsAre(2, 3, 2));
  EXPECT_THAT(Ids(file, "xA Bx"), ElementsAre(2, 3, 2));
  EXPECT_THAT(Ids(file, "xC Dx"), ElementsAre(2, 4, 2));
  EXPECT_THAT(Ids(file, "xc dx"), ElementsAre(2, 0, 1, 0, 2));
}

TEST(TokenizerJson, WhatIsNotDoneIsRefusedByName) {
  const json unigram = Unigram({{"<unk>", 0.0}, {"a", -1.0}});
  const auto with = [&](const char* path, const json& value) {
    json file = unigram;
    file[json::json_pointer(path)] = value;
    return file.dump();
  };
  const json first = Metaspace("first");
  json odd = first, behind = unigram;
  odd["prepend_scheme"] = "second";
  behind["pre_tokenizer"] = first;
  behind["normalizer"] = {{"type", "NFKC"}};
  json old = first;
  old.erase("prepend_scheme");
  old["add_prefix_space"] = false;
  json long_mark = first;
  long_mark["replacement"] = "__";
  const auto replace = [&](const json& pattern, const std::string& content) {
    return with("/normalizer", {{"type", "Replace"}, {"pattern", pattern}, {"content", content}});
  };
  const auto map = [&](const std::string& bytes) {
    return with("/normalizer",
                {{"type", "Precompiled"}, {"precompiled_charsmap", absl::Base64Escape(bytes)}});
  };
  json grown = unigram;
  for (int i = 0; i < 3; ++i) {
    grown["normalizer"]["normalizers"].push_back(
        {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(256, 'a')}});
  }
  grown["normalizer"]["type"] = "Sequence";
  grown["added_tokens"] = {{{"id", 2}, {"content", "aaaa"}, {"normalized", true}}};
  const std::pair<std::string, const char*> cases[] = {
      {with("/model/unk_id", 2), "unk_id that is no number from 0 to 1"},
      {with("/model/unk_id", -1), "unk_id"},
      {with("/model/alpha", 0.1), "'alpha'"},
      {with("/model/vocab/1/1", "x"), "model.vocab[1] is a text"},
      {with("/model/vocab/1", json::array({"a"})), "model.vocab[1] is not a text and a number"},
      {with("/model/vocab/1", json::array({"a", 1, 2})), "is a number in place of"},
      {with("/model/vocab/1", json::array({"<unk>", 1})), "'<unk>' stands there a second time"},
      {with("/model/vocab/1/0", std::string(1025, 'a')), "has 1025 bytes; at most 1024"},
      {with("/pre_tokenizer", {{"type", "ByteLevel"}}), "done for BPE alone, not for Unigram"},
      {with("/pre_tokenizer", odd), "'second', which is none of always, first and never"},
      {with("/pre_tokenizer", old), "add_prefix_space"},
      {with("/pre_tokenizer", long_mark), "'replacement', one character"},
      {with("/pre_tokenizer",
            {{"type", "Split"}, {"behavior", "Contiguous"}, {"pattern", {{"String", "a"}}}}),
       "behavior 'Contiguous'"},
      {behind.dump(), "where the normalizer has NFC, NFD, NFKC, NFKD"},
      {replace({{"Regex", "\\s+"}}, " "), "the regular expression '\\s+'"},
      {replace({{"String", ""}}, " "), "an empty 'pattern'"},
      {replace({{"String", "a"}}, std::string(257, 'a')), "'content' of 257 bytes"},
      {with("/normalizer", {{"type", "Prepend"}, {"prepend", ""}}), "'prepend'"},
      {map(""), "'precompiled_charsmap'"},
      {grown.dump(), "'aaaa' becomes too long where it is normalized"},
      {map("abcdefgh"), "character map is damaged"},
      {Bpe({{"a", 0}}, json::array(), {{"unk_token", "<unk>"}}).dump(),
       "unk_token '<unk>', which model.vocab does not have"},
      {Bpe({{"a", 0}}, json::array(), {{"unk_token", ""}}).dump(), "an empty unk_token"},
      {R"({"model": {"type": "Unigram", "vocab": {"x": 5}, "vocab": [["a", 0]]}})",
       "model.vocab stands there a second time"},
      {R"({"model": {"type": "BPE", "vocab": {"x": 0}, "merges": [], "merges": []}})",
       "model.merges stands there a second time"},
      {Bpe({{"a", 0}, {"", 1}}, json::array({"a "})).dump(), "has an empty part"},
  };
  for (const auto& [file, name] : cases) EXPECT_THAT(Refused(file), HasSubstr(name)) << file;
}

// The last bit is serde_json's, which tokenizers reads a file with.
TEST(TokenizerJson, ScoresAreThoseThatTokenizersReads) {
  EXPECT_EQ(NumberOfSerde("-2.5"), -2.5);
  EXPECT_EQ(NumberOfSerde("1e3"), 1000);
  EXPECT_EQ(NumberOfSerde("12345678901234567890123"), 12345678901234567890123.0);
  EXPECT_EQ(NumberOfSerde("1e-400"), 0);
  EXPECT_EQ(NumberOfSerde("0e999999999999999999999"), 0);
  EXPECT_EQ(NumberOfSerde("1e999999999999999999999"), std::numeric_limits<double>::infinity());
  EXPECT_EQ(NumberOfSerde("-0.43561181362301915"),
            -0x1.be1105f50c67bp-2);  // one off -0x1.be1105f50c67cp-2
  EXPECT_EQ(NumberOfSerde("-12.563669634938593"),
            -0x1.920994e6f9e78p+3);  // one off -0x1.920994e6f9e79p+3
  EXPECT_EQ(NumberOfSerde("-9.634415443986683"),
            -0x1.344d219e00011p+3);  // one off -0x1.344d219e00010p+3
}

TEST(TokenizerJson, ClustersAreThoseOfTheLibrary) {
  const auto clusters = [](const std::string& text) {
    std::vector<std::string> found;
    GraphemeBreaker breaker;
    for (size_t at = 0; at < text.size();) {
      const size_t from = at;
      if (breaker.BreaksBefore(NextCharacter(text, &at))) found.emplace_back();
      found.back() += text.substr(from, at - from);
    }
    return found;
  };
  EXPECT_THAT(clusters("e\u0301a\r\n\n"), ElementsAre("e\u0301", "a", "\r\n", "\n"));
  EXPECT_THAT(clusters("\u1112\u1161\u11ab\uac00"), ElementsAre("\u1112\u1161\u11ab", "\uac00"));
  EXPECT_THAT(clusters("\U0001f468\u200d\U0001f469x"),
              ElementsAre("\U0001f468\u200d\U0001f469", "x"));
  EXPECT_THAT(clusters("\U0001f1e9\U0001f1ea\U0001f1e9"),
              ElementsAre("\U0001f1e9\U0001f1ea", "\U0001f1e9"));
  EXPECT_THAT(clusters("\u0915\u094d\u0937\u0915"), ElementsAre("\u0915\u094d\u0937", "\u0915"));
  EXPECT_THAT(clusters("\u0600a\u200db"), ElementsAre("\u0600a\u200d", "b"));
}

// The text as one word: neither may take more than n log n, and both end with their time.
TEST(TokenizerJson, AWordMayBeTheWholeText) {
  for (const char* name : {"mistral.json", "unigram-bytes.json", "llama2.json", "t5-later.json"}) {
    const auto tokenizer = Make(ReadFile(absl::StrCat("tokenizers/", name)));
    ASSERT_TRUE(tokenizer.ok()) << name << ": " << tokenizer.status();
    for (const char* piece : {"a", " ", "the water ", "\u6c34", "\u0301", "\u2581", "ing"}) {
      std::string text;
      while (text.size() < (1 << 20)) text += piece;
      const Encoded encoded = Encode(**tokenizer, text);
      EXPECT_TRUE(encoded.status.ok()) << name << ", " << piece << ": " << encoded.status;
    }
    std::string text;  // far more than is done before the clock's first look
    while (text.size() < (8 << 20)) text += "the water ";
    const Encoded late = Encode(**tokenizer, text, 1 << 23, Truncation::kNone, /*limit_ms=*/1);
    EXPECT_TRUE(absl::IsInvalidArgument(late.status)) << name << ": " << late.status;
  }
}

}  // namespace
}  // namespace feedwater::server
