// tokenize: text becomes ids, by files that the op was made from.
#include <gmock/gmock.h>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TestRecord Text(const std::string& text) {
  TestRecord record;
  const TensorSpec spec{DType::kUInt8, Layout::kPlain, {-1}};
  return record.Add("text", spec, spec.WithRows(static_cast<int64_t>(text.size())),
                    Bytes(text.begin(), text.end()));
}

std::string Op(const std::string& file, const std::string& more) {
  return absl::StrCat("- tokenize: {tokenizer: ", file, ", ", more, "}");
}
constexpr char kBert[] = "kind: wordpiece, lowercase: true, max_length: 8";
constexpr char kPadded[] = "[tokens, mask]";
constexpr char kRagged[] = "[{tokens: {max_rows: 100}}, tokens_length]";

absl::StatusOr<std::vector<Bytes>> Ids(const std::string& graph, const std::string& text,
                                       const std::string& outputs = kPadded) {
  TestRecord record = Text(text);
  return RunGraph(graph, record, outputs);
}

std::string Refused(const std::string& graph) {
  const auto result = Ids(graph, "text", kRagged);
  EXPECT_TRUE(absl::IsInvalidArgument(result.status())) << result.status();
  return std::string(result.status().message());
}

// vocab.txt: [PAD] 0, [UNK] 1, [CLS] 2, [SEP] 3, [MASK] 4, then '!' and so on.
TEST(Tokenize, AShortTextStandsBetweenItsTokensAndIsPadded) {
  const auto result = Ids(Op("vocab.txt", absl::StrCat(kBert, ", pad_token: \"[PAD]\"")), "!!");
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(As<int64_t>((*result)[0]), ElementsAre(2, 5, 5, 3, 0, 0, 0, 0));
  EXPECT_THAT(As<uint8_t>((*result)[1]), ElementsAre(1, 1, 1, 1, 0, 0, 0, 0));
}

TEST(Tokenize, ALongTextIsABadSampleOrIsCut) {
  const auto with = [](const char* truncation) {
    return Op("vocab.txt", absl::StrCat("kind: wordpiece, lowercase: false, max_length: 5, dtype: "
                                        "int32, pad_token: \"[MASK]\", truncation: ",
                                        truncation));
  };
  const std::string text = "! [MASK] ! ! [UNK]";
  const auto right = Ids(with("right"), text), left = Ids(with("left"), text);
  ASSERT_TRUE(right.ok() && left.ok()) << right.status() << left.status();
  EXPECT_THAT(As<int32_t>((*right)[0]), ElementsAre(2, 5, 4, 5, 3));
  EXPECT_THAT(As<int32_t>((*left)[0]), ElementsAre(2, 5, 5, 1, 3));
  const auto none = Ids(with("none"), text);
  EXPECT_TRUE(absl::IsInvalidArgument(none.status()));
  EXPECT_THAT(std::string(none.status().message()),
              HasSubstr("more than max_length = 5 tokens; raise it, or cut texts"));
}

TEST(Tokenize, TokensOfOnesOwnStandBesideThoseOfTheFile) {
  const auto result =
      Ids(Op("vocab.txt",
             "kind: wordpiece, lowercase: false, max_length: 6, add_special_tokens: "
             "false, before: [\"[MASK]\"], after: [\"[SEP]\", \"[SEP]\"], pad_token: "
             "\"[PAD]\""),
          "!");
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(As<int64_t>((*result)[0]), ElementsAre(4, 5, 3, 3, 0, 0));
}

TEST(Tokenize, UnknownWordsBecomeTheTokenThatIsNamed) {
  const auto ids = [](const std::string& more) {
    return Ids(Op("vocab.txt", absl::StrCat(kBert, ", pad_token: \"[PAD]\"", more)), "\u2603");
  };
  const auto named = ids(", unknown_token: \"[MASK]\""), unnamed = ids("");
  ASSERT_TRUE(named.ok() && unnamed.ok()) << named.status() << unnamed.status();
  EXPECT_THAT(As<int64_t>((*named)[0]), ElementsAre(2, 4, 3, 0, 0, 0, 0, 0));
  EXPECT_THAT(As<int64_t>((*unnamed)[0]), ElementsAre(2, 1, 3, 0, 0, 0, 0, 0));
}

TEST(Tokenize, WithoutPaddingTheIdsAreAsManyAsThereAre) {
  for (const auto& [text, count] : std::vector<std::pair<std::string, int64_t>>{
           {"", 0}, {"\n", 1}, {std::string(90, '!'), 90}}) {
    const auto result = Ids(Op("gpt2.json", "max_length: 90"), text, kRagged);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_THAT(As<int64_t>((*result)[1]), ElementsAre(count)) << text;
  }
}

TEST(Tokenize, TextThatIsNotUtf8IsABadSampleOrIsReplaced) {
  const std::string text = "ab\xff!\xe6\xb0";
  const auto fails = Ids(Op("gpt2.json", "max_length: 90"), text, kRagged);
  EXPECT_TRUE(absl::IsInvalidArgument(fails.status()));
  EXPECT_THAT(std::string(fails.status().message()), HasSubstr("not UTF-8 at byte 2 of 6"));
  const std::string op = Op("gpt2.json",
                            "max_length: 20, errors: replace, pad_token: "
                            "\"<|endoftext|>\"");
  const auto replaced = Ids(op, text), written = Ids(op, "ab\ufffd!\ufffd\ufffd");
  ASSERT_TRUE(replaced.ok() && written.ok()) << replaced.status();
  EXPECT_EQ(*replaced, *written);
}

TEST(Tokenize, ATextOverMaxBytesIsABadSample) {
  const auto result = Ids(Op("gpt2.json", "max_length: 90, max_bytes: 3"), "four", kRagged);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("max_bytes = 3"));
}

TEST(Tokenize, MistakesAreFoundBeforeTheFirstSample) {
  const std::pair<std::string, const char*> cases[] = {
      {Op("vocab.txt", "max_length: 8"), "kind: wordpiece (a vocab.txt of BERT) or kind: words"},
      {Op("vocab.txt", "kind: wordpiece, max_length: 8"), "lowercase: true"},
      {Op("gpt2.json", "lowercase: true, max_length: 8"), "lowercase is for kind: wordpiece alone"},
      {Op("gpt2.json", "unknown_token: x, max_length: 8"), "unknown_token is for"},
      {Op("gpt2.json", "pad_token: none, max_length: 8"), "no token 'none', which pad_token names"},
      {Op("gpt2.json", "after: [none], max_length: 8"), "no token 'none', which after names"},
      {Op("vocab.txt", "kind: words, unknown_token: none, max_length: 8"),
       "no token 'none', which unknown_token names"},
      {Op("gpt2.json", "before: [none, none], after: [none], max_length: 3"),
       "max_length is 3, and 3 of that are for tokens around the text"},
      {Op("vocab.txt", "kind: wordpiece, lowercase: true, max_length: 2"),
       "max_length is 2, and 2"},
      {Op("vocab.txt", "kind: tokenizer_json, max_length: 8"), "line 1: it is no JSON"},
      {Op("{path: /a.json}", "max_length: 8"), "does not begin with '/'"},
      {Op("{rot: a, path: b}", "max_length: 8"), "must be the path of a file"},
      {Op("a/", "max_length: 8"), "must be a file's path"},
  };
  for (const auto& [graph, message] : cases) EXPECT_THAT(Refused(graph), HasSubstr(message));
  const auto missing = Ids(Op("missing.json", "max_length: 8"), "text", kRagged);
  EXPECT_TRUE(absl::IsNotFound(missing.status())) << missing.status();
  EXPECT_THAT(std::string(missing.status().message()),
              HasSubstr("test.yaml:4:25: op 'tokenize': 'tokenizer': "));
}

TEST(Tokenize, WithoutItsFileItCanBePlannedAndNotRun) {
  const std::string text = PipelineText(Op("gpt2.json", "max_length: 8"), "[tokens]");
  const auto spec = ParsePipeline(text, "test.yaml");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->digest, "");
  TestRecord record = Text("text");
  const auto plan = Plan::Create(*spec, record.fields(), 0);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(absl::IsFailedPrecondition(RunPlan(**plan, record).status()));
}

}  // namespace
}  // namespace feedwater::server
