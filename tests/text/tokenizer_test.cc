// Tokenizers against the ids that the libraries gave (golden/ids.json, written by
// make_tokenizers.py), and against files that are wrong or made to be slow.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <numeric>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "nlohmann/json.hpp"
#include "server/base/sanitized.h"
#include "tests/text/tokenizer_testing.h"

namespace feedwater::server {
namespace {

using namespace text_testing;  // NOLINT: the tests' own words
using nlohmann::json;
using ::testing::HasSubstr;

// The most that making the tokenizer takes at once, with the file. In a process of its own, whose
// peak is of nothing else. `*is_ok`: whether one was made.
int64_t PeakBytes(const std::string& bytes, VocabularyKind of_lines, bool* is_ok) {
  const auto now = [] {
    struct rusage usage = {};
    getrusage(RUSAGE_SELF, &usage);
    return int64_t{1024} * usage.ru_maxrss;
  };
  int ends[2];
  if (pipe(ends) != 0) return -1;
  const pid_t child = fork();
  if (child == 0) {
    const int64_t before = now();
    const bool is_made = Make(bytes, {}, of_lines).ok();
    const int64_t answer[2] = {now() - before, is_made};
    _exit(write(ends[1], answer, sizeof(answer)) == sizeof(answer) ? 0 : 1);
  }
  int64_t answer[2] = {-1, 0};
  if (read(ends[0], answer, sizeof(answer)) != sizeof(answer)) answer[0] = -1;
  waitpid(child, nullptr, 0);
  close(ends[0]);
  close(ends[1]);
  *is_ok = answer[1] != 0;
  return answer[0] + static_cast<int64_t>(bytes.size());
}

TEST(Tokenizer, GivesTheIdsOfTheLibraries) {
  const json golden = json::parse(ReadFile("golden/ids.json"));
  ASSERT_GE(golden["tokenizers"].size(), 10U);
  for (const auto& [name, expected] : golden["tokenizers"].items()) {
    SCOPED_TRACE(name);
    LineRules rules;
    rules.lowercase = expected.value("lowercase", false);
    const auto tokenizer = Make(ReadFile("tokenizers/" + name), rules);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    std::vector<int32_t> around = (*tokenizer)->special_before();
    around.insert(around.end(), (*tokenizer)->special_after().begin(),
                  (*tokenizer)->special_after().end());
    EXPECT_EQ(around, expected["around"].get<std::vector<int32_t>>());
    ASSERT_EQ(expected["ids"].size(), golden["texts"].size());
    for (size_t i = 0; i < golden["texts"].size(); ++i) {
      const auto piece = golden["texts"][i][0].get<std::string>();
      std::string text;
      for (int n = golden["texts"][i][1]; n > 0; --n) text += piece;
      std::vector<int32_t> ids;
      for (const json& run : expected["ids"][i]) {
        if (run.is_array()) {
          ids.insert(ids.end(), run[1].get<size_t>(), run[0].get<int32_t>());
        } else {
          ids.push_back(run.get<int32_t>());
        }
      }
      const Encoded encoded = Encode(**tokenizer, text, 1 << 22, Truncation::kNone, 60'000,
                                     (*tokenizer)->Find("[UNK]"));
      ASSERT_TRUE(encoded.status.ok()) << encoded.status;
      EXPECT_EQ(encoded.ids, ids) << i << ": " << piece;
    }
  }
}

// Each step takes the room of the one before.
TEST(Tokenizer, ATextOfSomeKilobytesPassesAnyNumberOfNormalizers) {
  json file = json::parse(ReadFile("tokenizers/gpt2.json"));
  const auto plain = Make(file.dump());
  ASSERT_TRUE(plain.ok()) << plain.status();
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "the water feeds the boiler ";
  const std::vector<int32_t> ids = Encode(**plain, text).ids;
  json steps;
  for (const char* type : {"NFD", "Lowercase", "NFC", "StripAccents", "NFKD", "NFKC", "Lowercase",
                           "NFD", "NFC", "Lowercase"}) {
    steps.push_back({{"type", type}});
    file["normalizer"] = {{"type", "Sequence"}, {"normalizers", steps}};
    const auto tokenizer = Make(file.dump());
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    const Encoded encoded = Encode(**tokenizer, text);
    ASSERT_TRUE(encoded.status.ok()) << steps.size() << ": " << encoded.status;
    EXPECT_EQ(encoded.ids, ids) << steps.size();
  }
}

TEST(Tokenizer, TruncationKeepsTheFirstOrTheLastIds) {
  const auto tokenizer = Make(ReadFile("tokenizers/gpt2.json"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const std::string text = "the water feeds the boiler, and the boiler feeds the pump";
  const std::vector<int32_t> all = Encode(**tokenizer, text).ids;
  ASSERT_GT(all.size(), 12U);
  const Encoded right = Encode(**tokenizer, text, 7, Truncation::kRight),
                left = Encode(**tokenizer, text, 7, Truncation::kLeft),
                none = Encode(**tokenizer, text, 7, Truncation::kNone);
  EXPECT_EQ(right.ids, std::vector<int32_t>(all.begin(), all.begin() + 7));
  EXPECT_EQ(left.ids, std::vector<int32_t>(all.end() - 7, all.end()));
  EXPECT_TRUE(right.status.ok() && left.status.ok());
  EXPECT_TRUE(absl::IsOutOfRange(none.status)) << none.status;
  EXPECT_TRUE(Encode(**tokenizer, text, static_cast<int64_t>(all.size())).status.ok());
}

TEST(Tokenizer, WordsAreSplitAtWhiteSpaceAndUnknownOnesNeedAToken) {
  const std::string list = "<unk>\nboiler\nwater\nWater\n";
  const auto tokenizer = Make(list, {}, VocabularyKind::kWords);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT(Encode(**tokenizer, " water\tWater\u00a0boiler  steam\n", 10, Truncation::kNone,
                     60'000, /*unknown=*/0)
                  .ids,
              ::testing::ElementsAre(2, 3, 1, 0));
  const Encoded encoded = Encode(**tokenizer, "water steam");
  EXPECT_TRUE(absl::IsInvalidArgument(encoded.status));
  EXPECT_THAT(std::string(encoded.status.message()), HasSubstr("the word 'steam'"));
}

TEST(Tokenizer, ListsWithMistakesAreRefusedWithTheLine) {
  const std::string bert = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n";
  EXPECT_THAT(Refused(bert + "a\n\nb\n"), HasSubstr("line 6 is empty"));
  EXPECT_THAT(Refused(bert + "a\nb\na\n"),
              HasSubstr("line 7: token 'a' stands there a second time"));
  EXPECT_THAT(Refused(bert + "a\n\xff\n"), HasSubstr("line 6 is not UTF-8"));
  EXPECT_THAT(Refused("\xef\xbb\xbf[UNK]\n"), HasSubstr("byte order mark"));
  EXPECT_THAT(Refused("[UNK]\n[SEP]\na\n"), HasSubstr("no token [CLS]"));
  EXPECT_THAT(Refused(""), HasSubstr("no line"));
}

// Each change of a good file, and what the message names.
TEST(Tokenizer, WhatATokenizerJsonAsksForAndIsNotDoneIsRefusedByName) {
  const std::string gpt2 = ReadFile("tokenizers/gpt2.json"),
                    bert = ReadFile("tokenizers/bert-uncased.json");
  const auto with = [](const std::string& file, const char* path, const json& value) {
    json document = json::parse(file);
    document[json::json_pointer(path)] = value;
    return document.dump();
  };
  const auto added = [](const char* content, int id) {
    return json({{"id", id}, {"content", content}, {"special", true}});
  };
  const json split = {{"type", "Split"}, {"behavior", "Isolated"}, {"invert", false}};
  const auto pattern = [&](const char* expression) {
    json step = split;
    step["pattern"] = {{"Regex", expression}};
    return with(gpt2, "/pre_tokenizer",
                {{"type", "Sequence"},
                 {"pretokenizers", {step, {{"type", "ByteLevel"}, {"use_regex", false}}}}});
  };
  const std::pair<std::string, const char*> cases[] = {
      {with(gpt2, "/truncation", {{"max_length", 3}}), "no_truncation()"},
      {with(gpt2, "/padding", {{"pad_id", 3}}), "no_padding()"},
      {with(gpt2, "/surprise", 1), "'surprise'"},
      {with(gpt2, "/model/surprise", 1), "'surprise'"},
      {with(gpt2, "/model/dropout", 0.1), "dropout"},
      {with(gpt2, "/model/type", "Unigram"), "is of type 'Unigram', and its vocab a map"},
      {with(gpt2, "/model/vocab", json::array({json::array({"a", -1.5})})),
       "is of type 'BPE', and its vocab a list"},
      {with(gpt2, "/model/end_of_word_suffix", "</w>"), "end_of_word_suffix '</w>'"},
      {with(gpt2, "/normalizer", {{"type", "Nmt"}}), "'Nmt'"},
      {with(gpt2, "/pre_tokenizer", {{"type", "UnicodeScripts"}}), "'UnicodeScripts'"},
      {with(gpt2, "/post_processor", {{"type", "Odd"}}), "'Odd'"},
      {with(gpt2, "/added_tokens/0/single_word", true), "single_word"},
      {with(gpt2, "/added_tokens/0/id", 99), "has the id 99, and 0 in model.vocab"},
      {with(with(gpt2, "/added_tokens/0/id", 99), "/added_tokens/0/content", "<new>"),
       "has the id 99, which another token of model.vocab has"},
      {with(gpt2, "/added_tokens/0/id", 1 << 24), "needs an 'id'"},
      {with(gpt2, "/added_tokens/1", added("<a>", 600)),
       "has the id 600, and would get 480 from tokenizers"},
      {with(with(gpt2, "/added_tokens/1", added("<b>", 481)), "/added_tokens/2", added("<a>", 480)),
       "has the id 481, and would get 480"},
      {with(with(gpt2, "/added_tokens/1", added("<a>", 480)), "/added_tokens/2", added("<b>", 482)),
       "has the id 482, and would get 481"},
      {with(with(gpt2, "/model/vocab/zz", 482), "/added_tokens/1", added("<a>", 480)),
       "has the id 480, and would get 481"},
      {with(gpt2, "/model/vocab/zz", (1 << 24) - 1), "the id 16777215 is too large for 481 tokens"},
      {with(gpt2, "/model/merges/0", "a b c"), "model.merges[0]"},
      {with(gpt2, "/model/merges/0", {"zzz", "b"}), "model.merges[0] 'zzz b'"},
      {with(gpt2, "/model/vocab/zz", -1), "has the id -1"},
      {with(gpt2, "/model/vocab/zz", 1LL << 40), "which must be from 0"},
      {with(gpt2, "/model/vocab/zz", 5), "an id belongs to one token"},
      {with(gpt2, "/model/vocab/zz", "text"), "model.vocab 'zz' is a text"},
      {with(bert, "/model/max_input_chars_per_word", 1 << 20), "max_input_chars_per_word"},
      {with(bert, "/model/unk_token", "[NONE]"), "'[NONE]'"},
      {with(bert, "/model/unk_token", nullptr), "has no unk_token"},
      {with(bert, "/post_processor/special_tokens/[CLS]/ids", {100'000}), "beyond the vocabulary"},
      {pattern("\\p{L}+\\p{N}"), "'\\p{L}+\\p{N}' is not done here; those of GPT-2, cl100k"},
      {pattern("x{3}?"), "'x{3}?' is not done here"},
      {pattern(""), "'' is not done here"},
      {with(gpt2, "/pre_tokenizer",
            {{"type", "Split"}, {"behavior", "Removed"}, {"pattern", {{"String", ""}}}}),
       "has 0 bytes"},
  };
  for (const auto& [file, name] : cases) EXPECT_THAT(Refused(file), HasSubstr(name));
  // A vocabulary without one of the bytes cannot encode every text.
  json document = json::parse(gpt2);
  document["model"]["vocab"].erase("!");
  document["model"]["merges"] = json::array();
  EXPECT_THAT(Refused(document.dump()), HasSubstr("no token for byte 33"));
}

// A tokenizer whose words are these, in the order of their ids from 1 on.
std::string TokenizerOfWords(const json& pre_tokenizer, const std::vector<std::string>& words) {
  json vocabulary = {{"<unk>", 0}};
  for (const std::string& word : words) vocabulary.emplace(word, vocabulary.size());
  return json({{"pre_tokenizer", pre_tokenizer},
               {"model", {{"type", "WordLevel"}, {"unk_token", "<unk>"}, {"vocab", vocabulary}}}})
      .dump();
}

// Regular expressions as the files of these tokenizers have them; the words are the library's.
TEST(Tokenizer, TheExpressionsOfKnownTokenizersSplitAsTheLibraryDoes) {
  const std::string contractions = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
  const std::string rest = R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const std::string letters =
      contractions + R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*)" + rest;
  const std::string upper = R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])",
                    lower = R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])", before = R"([^\r\n\p{L}\p{N}]?)";
  const std::string o200k = before + upper + "*" + lower + "+" + contractions + "?|" + before +
                            upper + "+" + lower + "*" + contractions + "?" +
                            R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*)" + rest;
  const std::string text = "FooBAR'S x12345/\n\n  it's\u0085";
  const std::pair<std::string, std::vector<std::string>> cases[] = {
      {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
       {"FooBAR", "'", "S", " x", "12345", "/", "\n\n ", " it", "'s", "\u0085"}},
      {absl::StrReplaceAll(letters, {{"DIGITS", "{1,3}"}}),
       {"FooBAR", "'S", " x", "123", "45", "/\n\n", " ", " it", "'s", "\u0085"}},
      {absl::StrReplaceAll(letters, {{"DIGITS", ""}}),
       {"FooBAR", "'S", " x", "1", "2", "3", "4", "5", "/\n\n", " ", " it", "'s", "\u0085"}},
      {o200k, {"Foo", "BAR'S", " x", "123", "45", "/\n\n", " ", " it's", "\u0085"}},
  };
  for (const auto& [expression, words] : cases) {
    SCOPED_TRACE(expression);
    const auto tokenizer = Make(TokenizerOfWords(
        {{"type", "Split"}, {"behavior", "Isolated"}, {"pattern", {{"Regex", expression}}}},
        words));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    std::vector<int32_t> expected(words.size());
    std::iota(expected.begin(), expected.end(), 1);
    EXPECT_EQ(Encode(**tokenizer, text).ids, expected);
    // Long runs, which a search from place to place would walk through again and again.
    for (const char* piece :
         {"A", "\u01c5", "\u0301", "\u00aaA", "1", " ", "\n ", "'", "/", "a1"}) {
      std::string longer;
      while (longer.size() < (1 << 20)) longer += piece;
      const Encoded encoded = Encode(**tokenizer, longer, 1 << 22, Truncation::kNone, 10'000);
      EXPECT_TRUE(encoded.status.ok()) << piece << ": " << encoded.status;
    }
  }
}

TEST(Tokenizer, AStringSplitsWhereverItStands) {
  const auto tokenizer = Make(TokenizerOfWords(
      {{"type", "Split"}, {"behavior", "Removed"}, {"pattern", {{"String", ".*"}}}}, {"a", "."}));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT(Encode(**tokenizer, ".*a..*a.*.").ids, ::testing::ElementsAre(0, 1, 2));
  const std::string far = std::string(64 << 10, 'x');
  for (size_t at = far.size() - 3; at <= far.size(); ++at)
    EXPECT_THAT(Encode(**tokenizer, far.substr(0, at) + ".*a").ids, ::testing::ElementsAre(0, 1));
}

// As tokenizers gives them: what a token takes of the white space behind it is looked through for
// the next one nonetheless.
TEST(Tokenizer, WhiteSpaceThatATokenTakesMayHoldAnotherToken) {
  json document = json::parse(ReadFile("tokenizers/gpt2.json"));
  document["added_tokens"].push_back(
      {{"id", 480}, {"content", "<r>"}, {"special", true}, {"rstrip", true}});
  document["added_tokens"].push_back({{"id", 481}, {"content", "  "}, {"special", true}});
  document["added_tokens"].push_back(
      {{"id", 482}, {"content", "<l>"}, {"special", true}, {"lstrip", true}});
  const auto tokenizer = Make(document.dump());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const std::pair<const char*, std::vector<int32_t>> cases[] = {
      {"<r>     a", {480, 481, 481, 221, 65}},
      {"<r>   <l>", {480, 481, 482}},
      {"a   <l>", {65, 481, 482}},
      {"<r>  <r> <l>", {480, 481, 480, 482}},
      {"<l>  <l>a", {482, 481, 482, 65}},
  };
  for (const auto& [text, ids] : cases) EXPECT_EQ(Encode(**tokenizer, text).ids, ids) << text;
}

// Files with as many tokens, pieces, merges or values as their bytes have room for.
TEST(Tokenizer, NoFileTakesMoreMemoryThanIsReservedForIt) {
  const auto word = [](uint32_t i, size_t bytes) {  // of bytes that are text, and of JSON
    std::string text;
    for (; bytes > 0; --bytes, i /= 64) text.push_back(static_cast<char>('>' + i % 64));
    return absl::StrReplaceAll(text, {{"\\", "!"}, {"\x7f", "~"}, {"}", "$"}});
  };
  constexpr uint32_t kWords = 1 << 18;
  std::string words, word_pieces = "[UNK]\n[CLS]\n[SEP]\n", pieces = Piece("<unk>", kUnknownPiece),
                     merges, values = "{\"model\": 1, \"x\": [[]";
  std::string scored = R"({"model":{"type":"Unigram","unk_id":0,"vocab":[["<unk>",0])";
  for (uint32_t i = 0; i < kWords; ++i) {
    absl::StrAppend(&scored, ",[\"", word(i, 3), "\",0]");
    absl::StrAppend(&words, word(i, 3), "\n");
    absl::StrAppend(&word_pieces, "##", word(i, 3), "\n");
    pieces += Field(1, Field(1, word(i, 3)));
  }
  for (int i = 0; i < 190'000; ++i) absl::StrAppend(&values, ",[]");
  json gpt2 = json::parse(ReadFile("tokenizers/gpt2.json"));
  gpt2["added_tokens"] = json::array();
  gpt2["model"]["vocab"].erase("<|endoftext|>");
  scored += "]}}";
  json all = json::object();
  int next = 0;
  for (const auto& [token, id] : gpt2["model"]["vocab"].items()) all[token] = next++;
  std::vector<std::string> merged;
  for (uint32_t i = 0; i < 64 * 64; ++i) {
    if (all.emplace(word(i, 2), next).second) ++next;
  }
  for (uint32_t i = 0; i < kWords / 4; ++i) {
    if (all.emplace(word(i, 3), next).second) ++next;
    merged.push_back(absl::StrCat(word(i, 3).substr(0, 1), " ", word(i, 3).substr(1)));
    merged.push_back(absl::StrCat(word(i, 3).substr(0, 2), " ", word(i, 3).substr(2)));
  }
  gpt2["model"]["vocab"] = all;
  gpt2["model"]["merges"] = merged;
  json characters = gpt2;
  characters["pre_tokenizer"] = nullptr;
  const struct {
    const char* what;
    const std::string& file;
    VocabularyKind kind;
    bool is_taken;
  } cases[] = {{"words", words, VocabularyKind::kWords, true},
               {"pieces of words", word_pieces, VocabularyKind::kWordPiece, true},
               {"pieces", pieces, VocabularyKind::kWords, true},
               {"scored pieces", scored, VocabularyKind::kWords, true},
               {"merges", gpt2.dump(), VocabularyKind::kWords, true},
               {"merges of characters", characters.dump(), VocabularyKind::kWords, true},
               {"other values", values + "]}", VocabularyKind::kWords, false}};
  for (const auto& one : cases) {
    bool is_ok = false;
    const int64_t peak = PeakBytes(one.file, one.kind, &is_ok);
    EXPECT_EQ(is_ok, one.is_taken) << one.what << Make(one.file, {}, one.kind).status();
    if (kSanitized) continue;
    const auto bytes = static_cast<int64_t>(one.file.size());
    EXPECT_LE(peak, kTokenizerBytesPerByte * bytes + kTokenizerFixedBytes) << one.what;
  }
}

TEST(Tokenizer, LongPiecesAreRefusedAndManyTakeLittleMemoryAndTime) {
  EXPECT_THAT(
      Refused(Piece("<unk>", kUnknownPiece) + Piece(std::string(1025, 'a'), kUserDefinedPiece)),
      HasSubstr("has 1025 bytes; at most 1024 are read"));
  std::string file = Piece("<unk>", kUnknownPiece) + Piece("a", kNormalPiece);
  for (int i = 0; i < 17'000; ++i) {
    std::string text = absl::StrCat(i, ":");
    text.resize(1000, 'a');
    file += Piece(text, kUserDefinedPiece);
  }
  const auto tokenizer = Make(file);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT(Encode(**tokenizer, "7:" + std::string(998, 'a') + "a").ids,
              ::testing::ElementsAre(0, 9, 1));
  const Encoded late = Encode(**tokenizer, std::string(1 << 22, '7'), 1 << 22, Truncation::kNone,
                              /*limit_ms=*/1);
  EXPECT_TRUE(absl::IsInvalidArgument(late.status)) << late.status;
}

// As sentencepiece gives them: U+2581 of the text is a space at its end.
TEST(Tokenizer, SpacesAtTheEndAreCutOffHoweverTheyAreWritten) {
  const auto unigram = Make(ReadFile("tokenizers/unigram.model")),
             bpe = Make(ReadFile("tokenizers/bpe.model"));
  ASSERT_TRUE(unigram.ok() && bpe.ok());
  for (const char* text : {"\u2581", " \u2581", " ", "\u2581 \u2581"}) {
    EXPECT_THAT(Encode(**unigram, text).ids, ::testing::IsEmpty()) << text;
    EXPECT_THAT(Encode(**bpe, text).ids, ::testing::IsEmpty()) << text;
  }
  for (const char* text : {"a\u2581", "a \u2581 "}) {
    EXPECT_THAT(Encode(**unigram, text).ids, ::testing::ElementsAre(4, 397)) << text;
    EXPECT_THAT(Encode(**bpe, text).ids, ::testing::ElementsAre(341, 344)) << text;
  }
}

TEST(Tokenizer, DamagedFilesAreRefused) {
  EXPECT_THAT(Refused("{\n\"model\":\n}"), HasSubstr("line 3: it is no JSON"));
  EXPECT_THAT(Refused("{\"a\":" + std::string(100, '[')), HasSubstr("nested deeper than"));
  EXPECT_THAT(Refused("{}"), HasSubstr("no 'model'"));
  EXPECT_THAT(Refused(R"({"model": {"type": "BPE", "vocab": {"a": 0, "a": 1}, "merges": []},
                          "pre_tokenizer": {"type": "ByteLevel"}})"),
              HasSubstr("'a' stands there a second time"));
  const std::string model = ReadFile("tokenizers/bpe.model");
  int refused = 0;
  for (size_t bytes = 5; bytes + 1 < model.size(); bytes += 7)
    refused += Make(model.substr(0, bytes)).ok() ? 0 : 1;
  EXPECT_GT(refused, 0);
}

// Each takes some seconds at the most, where a quadratic one would take hours.
TEST(Tokenizer, LongTextsOfOneKindTakeNoMoreThanOthers) {
  for (const char* name : {"gpt2.json", "llama3.json", "roberta.json", "bert-uncased.json",
                           "words.json", "unigram.model", "bpe.model", "llama2.json", "gemma.json",
                           "t5.json", "unigram-bytes.json"}) {
    SCOPED_TRACE(name);
    const auto tokenizer = Make(ReadFile(absl::StrCat("tokenizers/", name)));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    for (const char* piece : {"a", " ", "\n", "\u0301\u0323", "'", "<", "水", "an", "ﷺ"}) {
      std::string text;
      while (text.size() < (1 << 18)) text += piece;
      const Encoded encoded = Encode(**tokenizer, text);
      EXPECT_TRUE(encoded.status.ok() || absl::IsInvalidArgument(encoded.status))
          << piece << ": " << encoded.status;
    }
  }
}

TEST(Tokenizer, ALongTextEndsWithItsTime) {
  const auto tokenizer = Make(ReadFile("tokenizers/gpt2.json"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  std::string text;  // far more than is done before the clock's first look
  while (text.size() < (16 << 20)) text += "the water ";
  const Encoded encoded = Encode(**tokenizer, text, 1 << 24, Truncation::kNone, /*limit_ms=*/1);
  EXPECT_TRUE(absl::IsInvalidArgument(encoded.status)) << encoded.status;
}

}  // namespace
}  // namespace feedwater::server
