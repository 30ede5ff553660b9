// A mix as a dataset: concatenation, dataset_id, what its sources must have in common, and what its
// digest and key are made of. The order of its epochs: tests/sampler/mix_test.cc.
#include "server/source/mix.h"

#include "tests/source/column_testing.h"

namespace feedwater::server {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Int64s = std::vector<int64_t>;

class MixTest : public ColumnTest {
 protected:
  MixTest() {
    folder_.Write("a/0.csv", "id,word\n1,one\n2,two\n3,three\n");
    folder_.Write("a/1.csv", "id,word\n4,four\n");
    // The same fields, in another order.
    folder_.Write("b/0.jsonl",
                  "{\"word\": \"ten\", \"id\": 10}\n{\"word\": \"twenty\", \"id\": 20}\n");
  }

  static std::string Mix(const std::string& sources, const std::string& more = "") {
    return absl::StrCat("{mix: [", sources, "]", more, "}");
  }
  std::shared_ptr<const Dataset> MustOpenBoth(const std::string& more = "") {
    return opener_.MustOpen(Mix(kBoth, more));
  }

  static constexpr char kBoth[] =
      "{format: csv, root: root, path: a, weight: 3}, {format: jsonl, root: root, path: b}";
};

TEST_F(MixTest, IsItsSourcesOneAfterTheOther) {
  const auto dataset = MustOpenBoth();
  ASSERT_NE(dataset, nullptr);
  EXPECT_EQ(dataset->size(), 6);
  EXPECT_EQ(Fields(*dataset), "id int64[], word uint8[?], dataset_id int64[]");
  std::vector<std::string> words;
  Int64s ids, sources;
  for (int64_t record = 0; record < dataset->size(); ++record) {
    words.push_back(FieldOf(*dataset, record, "word"));
    ids.push_back(Numbers<int64_t>(*dataset, record, "id").at(0));
    sources.push_back(Numbers<int64_t>(*dataset, record, "dataset_id").at(0));
  }
  EXPECT_THAT(words, ElementsAre("one", "two", "three", "four", "ten", "twenty"));
  EXPECT_THAT(ids, ElementsAre(1, 2, 3, 4, 10, 20));
  EXPECT_THAT(sources, ElementsAre(0, 0, 0, 0, 1, 1));

  const DatasetMix* mix = dataset->mix();
  ASSERT_NE(mix, nullptr);
  ASSERT_EQ(mix->sources.size(), 2u);
  EXPECT_EQ(mix->sources[0].name, "source 0 (csv in root/a)");
  EXPECT_EQ(mix->sources[0].weight, 3);
  EXPECT_EQ(mix->sources[1].weight, 1);
  EXPECT_EQ(mix->sources[1].first, 4);
  EXPECT_EQ(mix->sources[1].records, 2);
  EXPECT_THAT(*mix->sources[0].shard_starts, ElementsAre(0, 3));
  EXPECT_THAT(dataset->shard_starts(), ElementsAre(0, 3, 4));
  EXPECT_EQ(mix->SourceOf(3), 0u);
  EXPECT_EQ(mix->SourceOf(4), 1u);
}

TEST_F(MixTest, FilesCountThroughTheSources) {
  const auto dataset = MustOpenBoth();
  ASSERT_NE(dataset, nullptr);
  ASSERT_EQ(dataset->objects(), 3);
  EXPECT_EQ(dataset->ObjectPath(1), "a/1.csv");
  EXPECT_EQ(dataset->ObjectPath(2), "b/0.jsonl");
  EXPECT_EQ(dataset->PathText(2), "root/b/0.jsonl");
  EXPECT_EQ(dataset->ObjectBytes(1), 15);
  // Both have opened their root as it was then.
  EXPECT_GE(dataset->roots().size(), 1u);
  std::vector<Extent> extents;
  dataset->Extents(4, &extents);
  ASSERT_EQ(extents.size(), 1u);
  EXPECT_EQ(extents[0].object, 2u);
}

TEST_F(MixTest, OpensAgainFromTheIndexesOfItsSources) {
  TempFolder state;
  opener_.state_dir = state.path();
  ASSERT_NE(MustOpenBoth(), nullptr);
  const int builds = opener_.builds;
  EXPECT_GE(builds, 1);
  ASSERT_NE(MustOpenBoth(), nullptr);
  ASSERT_NE(opener_.MustOpen("{format: jsonl, root: root, path: b}"), nullptr);
  EXPECT_EQ(opener_.builds, builds);
}

TEST_F(MixTest, TheMemoryOfEachIndexIsCounted) {
  opener_.budget = MemoryBudget::Create(1 << 20);
  const auto dataset = MustOpenBoth();
  ASSERT_NE(dataset, nullptr);
  EXPECT_GT(dataset->memory_bytes(), 0);
  EXPECT_GT(opener_.budget->planned_bytes(), 0);
  opener_.budget = MemoryBudget::Create(100);
  ExpectRefused(Mix(kBoth), {"source 0 (csv in root/a)", "indexes"},
                absl::StatusCode::kResourceExhausted);
}

TEST_F(MixTest, ItsDigestAndKeyAreMadeOfAll) {
  const auto both = MustOpenBoth();
  ASSERT_NE(both, nullptr);
  const auto key = [](const std::string& yaml) { return DatasetKey(ParseNode(yaml)).value(); };
  EXPECT_EQ(MustOpenBoth()->digest(), both->digest());
  EXPECT_EQ(MustOpenBoth(", stop: all")->digest(), both->digest());
  EXPECT_EQ(key(Mix(kBoth, ", stop: all")), key(Mix(kBoth)));
  const std::string others[] = {
      Mix(kBoth, ", stop: first"),
      Mix(kBoth, ", stop: 10"),
      Mix("{format: csv, root: root, path: a, weight: 2}, {format: jsonl, root: root, path: b}"),
      Mix("{format: jsonl, root: root, path: b}, {format: csv, root: root, path: a, weight: 3}"),
      Mix("{format: csv, root: root, path: a, weight: 3}"),
  };
  for (const std::string& other : others) {
    const auto dataset = opener_.MustOpen(other);
    ASSERT_NE(dataset, nullptr);
    EXPECT_NE(dataset->digest(), both->digest()) << other;
    EXPECT_NE(key(other), key(Mix(kBoth))) << other;
  }
  // The same shares in other numbers.
  const std::string scaled =
      Mix("{format: csv, root: root, path: a, weight: 0.75}, {format: jsonl, root: root, path: b, "
          "weight: 0.25}");
  EXPECT_EQ(opener_.MustOpen(scaled)->digest(), both->digest());
  EXPECT_EQ(key(scaled), key(Mix(kBoth)));
  // Another file of one source.
  folder_.Write("b/0.jsonl",
                "{\"word\": \"ten\", \"id\": 11}\n{\"word\": \"twenty\", \"id\": 20}\n");
  EXPECT_NE(MustOpenBoth()->digest(), both->digest());
}

TEST_F(MixTest, NoticesChangesInEachSource) {
  TempFolder state;
  opener_.state_dir = state.path();
  const auto before = MustOpenBoth();
  ASSERT_NE(before, nullptr);
  EXPECT_TRUE(before->LookAgain(Reach::kAnywhere).ok());
  const Dependencies dependencies = before->dependencies(0);
  EXPECT_FALSE(dependencies.identity.empty());
  EXPECT_GE(dependencies.later_ns.size(), 3u);
  before->MarkOutOfDate(2);
  EXPECT_THAT(std::string(before->LookAgain(Reach::kAnywhere).message()),
              HasSubstr("source 1 (jsonl in root/b)"));
  const auto again = MustOpenBoth();
  EXPECT_TRUE(again->LookAgain(Reach::kAnywhere).ok());
  EXPECT_EQ(again->dependencies(0).identity, dependencies.identity);
  folder_.Write("a/1.csv", "id,word\n4,four\n5,five\n");
  const absl::Status changed = again->LookAgain(Reach::kAnywhere);
  EXPECT_TRUE(absl::IsFailedPrecondition(changed));
  EXPECT_THAT(std::string(changed.message()),
              AllOf(HasSubstr("source 0 (csv in root/a)"), HasSubstr("has changed")));
  EXPECT_EQ(MustOpenBoth()->size(), 7);
}

TEST_F(MixTest, ASourceThatCannotBeLookedAtDoesNotHideThatAnotherOneHasChanged) {
  const auto dataset = MustOpenBoth();
  ASSERT_NE(dataset, nullptr);
  const std::string a = folder_.path() + "/a";
  std::filesystem::rename(a, folder_.path() + "/elsewhere");
  std::filesystem::create_symlink("a", a);  // a link to itself
  const absl::Status not_told = dataset->LookAgain(Reach::kAnywhere);
  EXPECT_FALSE(not_told.ok());
  EXPECT_FALSE(absl::IsFailedPrecondition(not_told)) << not_told;
  EXPECT_THAT(std::string(not_told.message()), HasSubstr("source 0 (csv in root/a)"));
  folder_.Write("b/0.jsonl", "{}");
  const absl::Status changed = dataset->LookAgain(Reach::kAnywhere);
  EXPECT_TRUE(absl::IsFailedPrecondition(changed)) << changed;
  EXPECT_THAT(std::string(changed.message()), HasSubstr("source 1 (jsonl in root/b)"));
}

TEST_F(MixTest, RefusesSourcesWithOtherFields) {
  folder_.Write("more/0.csv", "id,word,more\n1,one,x\n");
  folder_.Write("real/0.csv", "id,word\n0.5,one\n");
  folder_.Write("own/0.csv", "id,dataset_id\n1,1\n");
  const std::string first = "{format: csv, root: root, path: a}, ";
  ExpectRefused(Mix(first + "{format: csv, root: root, path: more}"),
                {"test.yaml:1:44: ", "source 1 (csv in root/more) has 'more'",
                 "source 0 (csv in root/a) has not", "`fields:`"});
  ExpectRefused(Mix("{format: csv, root: root, path: more}, {format: csv, root: root, path: a}"),
                {"source 0 (csv in root/more) has 'more'", "source 1 (csv in root/a) has not"});
  ExpectRefused(
      Mix(first + "{format: csv, root: root, path: real}"),
      {"'id' is int64[] in source 0 (csv in root/a)", "float64[] in source 1 (csv in root/real)"});
  // A cure that can be followed: not every format has `fields`.
  folder_.Write("pictures/cat/0.png", "c");
  const std::string pictures = "{format: image_folder, root: root, path: pictures}";
  ExpectRefused(Mix(pictures + ", {format: images, root: root, path: pictures}"),
                {"Cure: one format for both, or write the sources as shards"});
  ExpectRefused(Mix(first + pictures), {"Cure: `fields:` of source 0 (csv in root/a) chooses",
                                        "those of source 1 (image_folder in root/pictures)"});
  ExpectRefused(Mix("{format: csv, root: root, path: own}"),
                {"source 0 (csv in root/own) has a field 'dataset_id'"});
  // `fields:` makes them equal.
  const auto equal = opener_.MustOpen(
      Mix("{format: csv, root: root, path: a, fields: {id: {from: id, dtype: float64}}}, {format: "
          "csv, root: root, path: real, fields: {id: id}}"));
  ASSERT_NE(equal, nullptr);
  EXPECT_EQ(equal->size(), 5);
}

TEST_F(MixTest, RefusesSourcesWithOtherClasses) {
  folder_.Write("x/cat/0.png", "c");
  folder_.Write("x/dog/0.png", "d");
  folder_.Write("y/cat/0.png", "c");
  folder_.Write("y/fox/0.png", "f");
  folder_.Write("z/cat/0.png", "c");
  const auto of = [](const std::string& path) {
    return "{format: image_folder, root: root, path: " + path + "}";
  };
  ExpectRefused(Mix(of("x") + ", " + of("y")),
                {"class 1 is 'dog' in source 0 (image_folder in root/x), and 'fox' in source 1 "
                 "(image_folder in root/y)"});
  ExpectRefused(Mix(of("x") + ", " + of("z")), {"has 2 classes", "has 1 class"});
  // The cure, followed to the letter.
  const std::string message(opener_.Open(Mix(of("x") + ", " + of("y"))).status().message());
  const size_t begin = message.find("Cure: `") + 7;
  const std::string classes = ", " + message.substr(begin, message.find('`', begin) - begin) + "}";
  EXPECT_EQ(classes, ", classes: [cat, dog, fox]}");
  const auto cured = [&](const std::string& path) {
    const std::string source = of(path);
    return source.substr(0, source.size() - 1) + classes;
  };
  const auto both = opener_.MustOpen(Mix(cured("x") + ", " + cured("y")));
  ASSERT_NE(both, nullptr);
  EXPECT_THAT(both->classes(), ElementsAre("cat", "dog", "fox"));
  EXPECT_THAT((std::vector<int64_t>{both->LabelOf(1), both->LabelOf(3)}), ElementsAre(1, 2));
  const auto same = opener_.MustOpen(Mix(of("x") + ", " + of("x")));
  ASSERT_NE(same, nullptr);
  EXPECT_THAT(same->classes(), ElementsAre("cat", "dog"));
  EXPECT_EQ(same->LabelOf(3), 1);
}

TEST_F(MixTest, RefusesSourcesWhoseOtherFieldsNumberOtherClasses) {
  folder_.Write("x/0.csv", "label,color\ncat,red\ndog,green\n");
  folder_.Write("y/0.csv", "label,color\ncat,red\ndog,blue\n");
  folder_.Write("z/0.csv", "label,color\ndog,green\ncat,red\n");
  const auto of = [](const std::string& path) {
    return "{format: csv, root: root, path: " + path +
           ", fields: {label: {from: label, classes: auto}, color: {from: color, classes: auto}}}";
  };
  ExpectRefused(Mix(of("x") + ", " + of("y")),
                {"of field 'color' class 0 is 'green' in source 0 (csv in root/x), and 'blue' in "
                 "source 1 (csv in root/y)",
                 "Cure: "});
  EXPECT_NE(opener_.MustOpen(Mix(of("x") + ", " + of("z"))), nullptr);
}

TEST_F(MixTest, RefusesWithThePlaceWhatIsNoMix) {
  const std::string a = "{format: csv, root: root, path: a";
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {"{mix: []}", {"test.yaml:1:7: ", "a list of 1 to 64 datasets", "not one of 0"}},
      {"{mix: 3}", {"test.yaml:1:7: ", "not '3'"}},
      {"{mix: [3]}", {"test.yaml:1:8: ", "must be a map"}},
      {"{mix: [{root: root}]}", {"test.yaml:1:8: ", "needs 'format'"}},
      {"{mix: [{format: nope, root: root}]}", {"test.yaml:1:17: ", "nope"}},
      {"{mix: [" + a + ", weihgt: 1}]}", {"test.yaml:1:43: ", "did you mean 'weight'"}},
      {"{mix: [" + a + "}], stopp: all}", {"did you mean 'stop'"}},
      {"{mix: [" + a + "}], format: csv}", {"either 'format' or 'mix'"}},
      {"{mix: [{mix: [" + a + "}]}]}", {"test.yaml:1:14: ", "a mix inside a mix"}},
      {"{mix: [" + a + "}], stop: never}", {"'stop' must be all, first, or a number", "'never'"}},
      {"{mix: [" + a + "}], stop: 0}", {"'stop' must be"}},
      {"{mix: [" + a + "}], stop: 9999999999999999999}", {"'stop' must be"}},
  };
  for (const auto& [yaml, words] : cases) {
    ExpectRefused(yaml, words);
    for (const absl::Status& status :
         {DescribeDataset(ParseNode(yaml)).status(), DatasetKey(ParseNode(yaml)).status()})
      EXPECT_TRUE(absl::IsInvalidArgument(status)) << yaml << ": " << status;
  }
  for (const char* weight : {"0", "-1", "0.0", "1e3", ".5", "1.", "x", "[1]", "1234567890",
                             "0.1234567891", "nan", "+1", "''", "1.2.3"}) {
    ExpectRefused("{mix: [" + a + ", weight: " + weight + "}]}",
                  {"'weight' must be a positive number"});
  }
  std::string many = a + "}";
  for (int i = 0; i < 64; ++i) many += ", " + a + "}";
  ExpectRefused(Mix(many), {"not one of 65"});
  ExpectRefused(Mix(a + "}, {format: csv, root: root, path: nowhere}"),
                {"test.yaml:1:76: 'nowhere' of root 'root'", "there is 'a'"},
                absl::StatusCode::kNotFound);
  ExpectRefused(Mix(a + "}, {format: csv, root: unknown, path: a}"),
                {"test.yaml:1:", "unknown root 'unknown'"}, absl::StatusCode::kNotFound);
}

TEST_F(MixTest, WeightsAreExactOrRefusedWithTheCure) {
  const auto weights = [&](const std::vector<std::string>& given) {
    std::string sources;
    for (const std::string& weight : given)
      absl::StrAppend(&sources, sources.empty() ? "" : ", ",
                      "{format: csv, root: root, weight: ", weight, "}");
    Int64s weights;
    const auto spec = ReadMix(ParseNode(Mix(sources)));
    EXPECT_TRUE(spec.ok()) << spec.status();
    if (spec.ok()) {
      for (const MixSpec::Source& source : spec->sources) weights.push_back(source.weight);
    }
    return weights;
  };
  EXPECT_THAT(weights({"3", "1"}), ElementsAre(3, 1));
  EXPECT_THAT(weights({"0.7", "0.2", "0.1"}), ElementsAre(7, 2, 1));
  EXPECT_THAT(weights({"0.5", "1.25"}), ElementsAre(2, 5));
  EXPECT_THAT(weights({"999999999.000000000", "999999999"}), ElementsAre(1, 1));
  EXPECT_THAT(weights({"0.000000001", "0.000000002"}), ElementsAre(1, 2));
  EXPECT_THAT(weights({"65535", "1"}), ElementsAre(65535, 1));
  ExpectRefused(Mix("{format: csv, root: root, weight: 0.123457}, {format: csv, root: root, "
                    "weight: 0.876543}"),
                {"test.yaml:1:7: ", "the weights are 123457 : 876543 in whole numbers",
                 "more than 65536", "Cure: round them, for example to 123 : 877"});
}

TEST_F(MixTest, TellsItsFieldsWithoutFilesWhereASourceDoes) {
  const std::string cifar = "{format: cifar10, root: root, path: c}";
  const auto fields = DescribeDataset(ParseNode(Mix(cifar + ", {format: csv, root: root}")));
  ASSERT_TRUE(fields.ok()) << fields.status();
  ASSERT_TRUE(fields->has_value());
  EXPECT_EQ((*fields)->back().name, "dataset_id");
  EXPECT_EQ((*fields)->front().name, "image");
  const auto unknown = DescribeDataset(ParseNode(Mix("{format: csv, root: root}")));
  ASSERT_TRUE(unknown.ok());
  EXPECT_FALSE(unknown->has_value());
  // Those that differ are refused before anything is looked at.
  ExpectRefused(Mix(cifar + ", {format: cifar100, root: root, path: d}"),
                {"source 1 (cifar100 in root/d) has 'coarse_label'"});
}

}  // namespace
}  // namespace feedwater::server
