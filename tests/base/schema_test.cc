// Declared parameters: what is read, what is refused with which words, and what documentation
// learns.
#include "server/base/schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace feedwater::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Inner {
  int64_t depth = 3;
};
struct Params {
  bool flag = true;
  int64_t count = 5;
  uint64_t seed = 7;
  double p = 0.5;
  std::string mode = "full";
  ByteCount size{512 << 20};
  Seconds wait{0.5};
  std::vector<int64_t> ints = {1, 2};
  std::vector<double> mean = {0.5, 1};
  std::vector<std::string> names = {"a", "b c"};
  StringMap roots;
  std::optional<int64_t> rank;
  Inner inner;
};

Schema<Params> TestSchema() {
  return Schema<Params>()
      .Param("flag", &Params::flag, "A flag.")
      .Param("count", &Params::count, "A count.", AtLeast(1))
      .Param("seed", &Params::seed, "A seed.")
      .Param("p", &Params::p, "A probability.", Range(0, 1))
      .Param("mode", &Params::mode, "A mode.", OneOf({"none", "full", "block"}))
      .Param("size", &Params::size, "A size.", AtLeast(4096))
      .Param("wait", &Params::wait, "A time.", Range(0, 3600))
      .Param("ints", &Params::ints, "Integers.", Range(0, 9))
      .Param("mean", &Params::mean, "Means.", Range(0, 255))
      .Param("names", &Params::names, "Names.")
      .Param("roots", &Params::roots, "Roots.")
      .Param("rank", &Params::rank, "A rank.", AtLeast(0))
      .Nested("inner", &Params::inner,
              Schema<Inner>().Param("depth", &Inner::depth, "A depth.", Range(1, 4)), "Inner.");
}

absl::StatusOr<Params> Read(absl::string_view yaml) {
  auto node = ParseYaml(yaml, "f");
  EXPECT_TRUE(node.ok()) << node.status();
  if (!node.ok()) return node.status();
  return TestSchema().Read(*node, "op 'x'");
}
std::string Refusal(absl::string_view yaml) {
  auto params = Read(yaml);
  if (params.ok()) return "was accepted";
  EXPECT_EQ(params.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(params.status().message());
}

TEST(Schema, ReadsEveryType) {
  auto params = Read(
      "{flag: false, count: 9, seed: 18446744073709551615, p: 1e-1, mode: block, size: 8GiB, wait: "
      "20ms,"
      " ints: [3], mean: [1.5, -0.0], names: [x], roots: {photos: /data}, rank: 2, inner: {depth: "
      "4}}");
  ASSERT_TRUE(params.ok()) << params.status();
  EXPECT_FALSE(params->flag);
  EXPECT_EQ(params->count, 9);
  EXPECT_EQ(params->seed, UINT64_MAX);
  EXPECT_EQ(params->p, 0.1);
  EXPECT_EQ(params->mode, "block");
  EXPECT_EQ(params->size.bytes, int64_t{8} << 30);
  EXPECT_EQ(params->wait.seconds, 0.02);
  EXPECT_THAT(params->ints, ElementsAre(3));
  EXPECT_THAT(params->mean, ElementsAre(1.5, 0));
  EXPECT_THAT(params->names, ElementsAre("x"));
  EXPECT_EQ(params->roots, (StringMap{{"photos", "/data"}}));
  EXPECT_EQ(params->rank, 2);
  EXPECT_EQ(params->inner.depth, 4);
}

TEST(Schema, WhatIsNotGivenKeepsItsDefault) {
  for (absl::string_view yaml : {"{}", "", "{inner: {}}", "{inner: }"}) {
    auto params = Read(yaml);
    ASSERT_TRUE(params.ok()) << params.status();
    EXPECT_EQ(params->count, 5);
    EXPECT_EQ(params->inner.depth, 3);
    EXPECT_EQ(params->rank, std::nullopt);
  }
}

TEST(Schema, ARefusalNamesPlaceParameterAndRange) {
  EXPECT_EQ(Refusal("count: 2\np:     1.5\n"), "f:2:8: 'p' must be between 0 and 1, not 1.5");
  EXPECT_EQ(Refusal("count: 0"), "f:1:8: 'count' must be at least 1, not 0");
  EXPECT_EQ(Refusal("size: 4095"), "f:1:7: 'size' must be at least 4KiB, not 4095");
  EXPECT_EQ(Refusal("ints: [1, 10]"), "f:1:7: 'ints' item 2 must be between 0 and 9, not 10");
  EXPECT_EQ(Refusal("mean: [1, 2, 256]"),
            "f:1:7: 'mean' item 3 must be between 0 and 255, not 256");
  EXPECT_EQ(Refusal("inner: {depth: 5}"), "f:1:16: 'depth' must be between 1 and 4, not 5");
  EXPECT_EQ(Refusal("mode: blok"),
            "f:1:7: 'mode' must be none, full or block, not 'blok', did you mean 'block'?");
  EXPECT_EQ(Refusal("mode: random"), "f:1:7: 'mode' must be none, full or block, not 'random'");
  EXPECT_EQ(Refusal("rank: -1"), "f:1:7: 'rank' must be at least 0, not -1");
}

TEST(Schema, ARefusalNamesPlaceParameterAndType) {
  EXPECT_EQ(Refusal("count: [1]"), "f:1:8: 'count' must be an integer, not a list");
  EXPECT_EQ(Refusal("count: "), "f:1:1: 'count' must be an integer, not nothing");
  EXPECT_EQ(Refusal("flag: yes"), "f:1:7: 'flag' must be true or false, not 'yes'");
  EXPECT_EQ(Refusal("p: x"), "f:1:4: 'p' must be a finite number, not 'x'");
  EXPECT_EQ(Refusal("ints: 3"), "f:1:7: 'ints' must be a list of integers such as [3], not '3'");
  EXPECT_EQ(Refusal("ints: [1, a]"), "f:1:11: 'ints' must be an integer, not 'a'");
  EXPECT_EQ(Refusal("roots: {a: [1]}"), "f:1:12: 'roots' must be a word, not a list");
  EXPECT_EQ(Refusal("roots: /data"),
            "f:1:8: 'roots' must be a map of words such as {NAME: /data}, not '/data'");
  EXPECT_THAT(Refusal("size: big"), HasSubstr("f:1:7: 'size' must be a size such as 512MiB"));
  EXPECT_THAT(Refusal("wait: 5"), HasSubstr("f:1:7: 'wait' must be a time such as 500ms"));
}

TEST(Schema, AValueInPlaceOfAMapIsAnsweredWithTheMapThatWasMeant) {
  const std::string takes = "f:1:1: op 'x' takes a map such as ";
  // A word that one parameter knows, before parameters that take any word.
  EXPECT_EQ(Refusal("block"), takes + "{mode: block}, not 'block'");
  EXPECT_EQ(Refusal("8GiB"), takes + "{size: 8GiB}, not '8GiB'");
  EXPECT_EQ(Refusal("[0, 10]"), takes + "{mean: [0, 10]}, not a list");  // 10 is no `ints`
  EXPECT_EQ(Refusal("what"), takes + "{flag: true}, not 'what'");        // fits nothing
  EXPECT_EQ(Refusal("inner: 3"), "f:1:8: 'inner' takes a map such as {depth: 3}, not '3'");

  struct Sized {
    std::string name;
    int64_t stride = 1, size = 0;
  };
  const auto sized = Schema<Sized>()
                         .Param("name", &Sized::name, "A name.")
                         .Param("stride", &Sized::stride, "A stride.")
                         .Required("size", &Sized::size, "A size.");
  EXPECT_EQ(sized.Read(*ParseYaml("256", "f"), "op 'y'").status().message(),
            "f:1:1: op 'y' takes a map such as {size: 256}, not '256'");  // required before others
  EXPECT_EQ(sized.Read(*ParseYaml("word", "f"), "op 'y'").status().message(),
            "f:1:1: op 'y' takes a map such as {name: word}, not 'word'");

  struct None {};
  EXPECT_EQ(Schema<None>().Read(*ParseYaml("3", "f"), "op 'z'").status().message(),
            "f:1:1: op 'z' takes no parameters");
}

TEST(Schema, NumbersAreReadStrictly) {
  for (absl::string_view bad : {"1e3", "1.0", "0x10", "1_000", "' 1'", "'1 '", "--1", "+",
                                "9223372036854775808", "-9223372036854775809", "true", "1,000"}) {
    EXPECT_THAT(Refusal(absl::StrCat("count: ", bad == "1,000" ? "'1,000'" : bad)),
                HasSubstr("'count' must be an"))
        << bad;
  }
  for (absl::string_view bad :
       {".nan", "nan", "inf", "-.inf", "infinity", "1e999", "0x1p3", "1f", "1e", "''"}) {
    EXPECT_THAT(Refusal(absl::StrCat("p: ", bad)), HasSubstr("'p' must be a finite number")) << bad;
  }
  for (absl::string_view bad : {"-1", "-0", "18446744073709551616", "1.5"}) {
    EXPECT_THAT(Refusal(absl::StrCat("seed: ", bad)), HasSubstr("'seed' must be an integer from 0"))
        << bad;
  }
  EXPECT_EQ(Read("count: 9223372036854775807")->count, INT64_MAX);
  EXPECT_EQ(Read("p: .5")->p, 0.5);
  EXPECT_EQ(Read("p: 1")->p, 1.0);
}

TEST(Schema, UnknownAndMissingKeysAreErrorsWithTheNearestName) {
  EXPECT_THAT(Refusal("p: 0\ncuont: 3\n"),
              HasSubstr("f:2:1: op 'x' has no parameter 'cuont', did you mean 'count'?"));
  EXPECT_THAT(Refusal("inner: {dept: 3}"),
              HasSubstr("'inner' has no parameter 'dept', did you mean 'depth'?"));

  struct Needs {
    std::vector<int64_t> size;
  };
  const auto schema = Schema<Needs>().Required("size", &Needs::size, "Height and width.");
  for (absl::string_view yaml : {"{}", ""}) {
    EXPECT_EQ(schema.Read(*ParseYaml(yaml, "f"), "op 'resize'").status().message(),
              "f:1:1: op 'resize' needs 'size' (list of integers): Height and width.");
  }
}

TEST(Schema, TellsDocumentationEverything) {
  const std::vector<ParamInfo> params = TestSchema().params();
  ASSERT_EQ(params.size(), 13u);
  const auto find = [&](absl::string_view name) {
    for (const ParamInfo& info : params) {
      if (info.name == name) return info;
    }
    return ParamInfo{};
  };
  EXPECT_EQ(find("flag").default_text, "true");
  EXPECT_EQ(find("seed").default_text, "7");
  EXPECT_EQ(find("p").default_text, "0.5");
  EXPECT_EQ(find("p").low, 0);
  EXPECT_EQ(find("p").high, 1);
  EXPECT_EQ(find("mode").default_text, "full");
  EXPECT_THAT(find("mode").choices, ElementsAre("none", "full", "block"));
  EXPECT_EQ(find("size").default_text, "512MiB");
  EXPECT_EQ(find("wait").default_text, "500ms");
  EXPECT_EQ(find("ints").default_text, "[1, 2]");
  EXPECT_EQ(find("mean").default_text, "[0.5, 1.0]");
  EXPECT_EQ(find("names").default_text, "[a, \"b c\"]");
  EXPECT_EQ(find("roots").default_text, "{}");
  EXPECT_EQ(find("rank").default_text, "");
  ASSERT_EQ(find("inner").nested.size(), 1u);
  EXPECT_EQ(find("inner").nested[0].default_text, "3");
  for (const ParamInfo& info : params) {
    EXPECT_NE(info.doc, "") << info.name;
    EXPECT_TRUE(!info.nested.empty() || nlohmann::json::accept(info.json_type)) << info.name;
  }
}

TEST(Schema, FixedDifferencesNamesWhatAReloadDoesNotChange) {
  const Schema<Params> schema =
      Schema<Params>()
          .Param("count", &Params::count, "How many.")
          .Param("size", &Params::size, "How large.")
          .Param("roots", &Params::roots, "Folders.")
          .Reloadable()
          .Nested("inner", &Params::inner, Schema<Inner>().Param("depth", &Inner::depth, "Deep."),
                  "Inside.");
  Params changed;
  EXPECT_THAT(schema.FixedDifferences(Params(), changed), ElementsAre());
  changed.count = 6;
  changed.size.bytes += 1;
  changed.roots["a"] = "/a";
  changed.inner.depth = 4;
  EXPECT_THAT(schema.FixedDifferences(Params(), changed),
              ElementsAre("count", "size", "inner.depth"));
  EXPECT_THAT(schema.FixedDifferences(changed, changed), ElementsAre());
  EXPECT_EQ(schema.params()[2].doc, "Folders. Read again on reload.");
}

TEST(Schema, BoundsAreWrittenInTheUnitOfTheParameter) {
  struct Bounds {
    int64_t count = 1;
    double share = 1;
    std::optional<ByteCount> bytes;
    Seconds wait{1};
  };
  const std::vector<ParamInfo> params =
      Schema<Bounds>()
          .Param("count", &Bounds::count, "A count.", Range(1, 1 << 24))
          .Param("share", &Bounds::share, "A share.", Range(-0.5, 0.001))
          .Param("bytes", &Bounds::bytes, "A size.", Range(4096, 1 << 20))
          .Param("wait", &Bounds::wait, "A time.", Range(0.001, 3600))
          .params();
  std::vector<std::string> texts;
  for (const ParamInfo& info : params)
    texts.push_back(absl::StrCat(info.low_text, " ", info.high_text));
  EXPECT_THAT(texts, ElementsAre("1 16777216", "-0.5 0.001", "4KiB 1MiB", "1ms 1h"));
}

TEST(Schema, AParameterMayHaveACloserFormThanItsField) {
  struct Loose {
    std::string memory = "auto";
  };
  const auto schema = Schema<Loose>().Param("memory", &Loose::memory, "Memory.",
                                            As("auto or a size", R"({"const":"auto"})"));
  EXPECT_EQ(schema.params()[0].type, "auto or a size");
  EXPECT_EQ(schema.params()[0].json_type, R"({"const":"auto"})");
}

TEST(Schema, EveryDefaultTextReadsBackAsTheDefault) {
  // The sample configuration is made of these texts.
  const std::vector<ParamInfo> infos = TestSchema().params();
  for (const ParamInfo& info : infos) {
    if (info.default_text.empty()) continue;
    auto params = Read(absl::StrCat(info.name, ": ", info.default_text));
    ASSERT_TRUE(params.ok()) << params.status();
    const Params defaults;
    EXPECT_EQ(params->names, defaults.names);
    EXPECT_EQ(params->size.bytes, defaults.size.bytes);
    EXPECT_EQ(params->wait.seconds, defaults.wait.seconds);
    EXPECT_EQ(params->mean, defaults.mean);
  }
}

TEST(ParamText, ReadsBackForAwkwardValues) {
  for (absl::string_view word : {"", "null", "true", "1", "a: b", "#x", "quo\"te", "back\\slash",
                                 "line\nbreak", "~", "\xe2\x82\xac", "- a", "12:30", "word"}) {
    const std::string text = ParamType<std::string>::Text(std::string(word));
    auto node = ParseYaml(absl::StrCat("[", text, "]"), "f");
    ASSERT_TRUE(node.ok()) << text << node.status();
    std::string back;
    ASSERT_TRUE(ParamType<std::string>::Read(node->items[0], &back).ok()) << text;
    EXPECT_EQ(back, word);
  }
  for (double value : {0.1, 1.0 / 3, 1e-300, 1e300, -0.5, 123.675, 4096.0, 1e15}) {
    auto node = ParseYaml(ParamType<double>::Text(value), "f");
    double back = 0;
    ASSERT_TRUE(ParamType<double>::Read(*node, &back).ok());
    EXPECT_EQ(back, value);
  }
}

}  // namespace
}  // namespace feedwater::server
