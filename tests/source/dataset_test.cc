// What every `dataset:` has, whatever its format: format, root and path, and keys and digests that
// are of one dataset only.
#include "server/source/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "server/source/contents.h"
#include "tests/source/dataset_reader.h"
#include "tests/source/small_datasets.h"

namespace feedwater::server {
namespace {

using ::testing::HasSubstr;

TEST(OpenDataset, BadMapsAreRefusedWithTheirPlace) {
  struct Case {
    const char *yaml, *message;
  };
  for (const Case& c : {Case{"{root: r}", "needs 'format'"}, Case{"[1, 2]", "takes a map"},
                        Case{"{format: [a], root: r}", "must be a name"},
                        Case{"{format: image_folderr, root: r}", "did you mean 'image_folder'?"},
                        Case{"{format: image_folder}", "needs 'root'"},
                        Case{"{format: image_folder, root: r, path: /etc}", "relative to the root"},
                        Case{"{format: image_folder, root: r, path: a/../../b}", "'..'"},
                        Case{"{format: image_folder, root: r, path: [x]}", "'path'"},
                        Case{"{format: cifar10, root: r, split: trainn}", "'split'"},
                        Case{"{format: mnist, root: r, height: 0}", "'height'"},
                        Case{"{format: mnist, root: r, width: 99999999999999999999}", "'width'"}}) {
    auto fields = DescribeDataset(ParseNode(c.yaml));
    EXPECT_EQ(fields.status().code(), absl::StatusCode::kInvalidArgument) << c.yaml;
    EXPECT_THAT(std::string(fields.status().message()),
                ::testing::AllOf(HasSubstr("test.yaml:1:"), HasSubstr(c.message)));
  }
  EXPECT_TRUE(DescribeDataset(ParseNode("{format: image_folder, root: r, path: ./a//b/./}")).ok());
}

// What one user's parameters put into an index must not be what another user's open.
TEST(OpenDataset, NoParameterCanPretendToBeOthers) {
  TempFolder folder, state;
  SmallDatasets().at("mnist").make(folder);
  Opener opener(folder.path());
  opener.state_dir = state.path();
  const std::string start = "{format: mnist, root: root, path: raw, height: 2, width: 3, classes: ";
  const std::vector<std::string> lists = {R"(["0\n1", "2"]})",
                                          R"(["0", "1", "2"]})",
                                          R"(["0", "1\n2"]})",
                                          R"(["0\n- 1:1", "2"]})",
                                          R"(["0, 1", "2"]})",
                                          R"(["0\", \"1", "2"]})",
                                          R"(["0"], labels: "1", split: train})"};
  std::set<std::string> keys;
  for (const std::string& list : lists) {
    const auto key = DatasetKey(ParseNode(start + list));
    ASSERT_TRUE(key.ok()) << key.status();
    EXPECT_TRUE(keys.insert(*key).second) << list;
  }
  opener.MustOpen(start + lists[0]);
  EXPECT_EQ(opener.MustOpen(start + lists[1])->classes(),
            (std::vector<std::string>{"0", "1", "2"}));
  EXPECT_EQ(opener.builds, 2);
}

TEST(OpenDataset, NamesOfFilesHaveOneSpellingAndStayInTheDataset) {
  const std::string start = "{format: cifar10, root: r, files: ";
  EXPECT_EQ(*DatasetKey(ParseNode(start + "[a/b.bin]}")),
            *DatasetKey(ParseNode(start + "[./a//b.bin]}")));
  for (const char* files : {"[../a]", "[a/../../b]", "[/etc/passwd]", "['.']"}) {
    const auto key = DatasetKey(ParseNode(start + files + "}"));
    EXPECT_EQ(key.status().code(), absl::StatusCode::kInvalidArgument) << files;
    EXPECT_THAT(std::string(key.status().message()),
                ::testing::AllOf(HasSubstr("test.yaml:1:"), HasSubstr("'files'")));
  }
}

TEST(OpenDataset, ALargeDatasetsDigestIsOfPiecesAllOverIt) {
  TempFolder folder;
  constexpr int kFiles = kWholeFiles + 100;
  const auto name = [](int i) { return absl::StrCat("t/c/", i, ".jpg"); };
  for (int i = 0; i < kFiles; ++i) folder.Write(name(i), RandomBytes(20, i));
  Opener opener(folder.path());
  const std::string yaml = "{format: image_folder, root: root, path: t}";
  const std::string first = opener.MustOpen(yaml)->digest();
  EXPECT_EQ(opener.MustOpen(yaml)->digest(), first);
  int noticed = 0;
  for (int i = 7; i < kFiles; i += 400) {
    folder.Write(name(i), RandomBytes(20, 100'000));
    noticed += opener.MustOpen(yaml)->digest() != first;
    folder.Write(name(i), RandomBytes(20, i));
  }
  EXPECT_GE(noticed, 1);
  EXPECT_EQ(opener.MustOpen(yaml)->digest(), first);
}

TEST(OpenDataset, AnUnknownRootIsNotFoundAndNamesTheNearest) {
  TempFolder folder;
  Opener opener(folder.path());
  auto dataset = opener.Open("{format: image_folder, root: rot}");
  EXPECT_EQ(dataset.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(dataset.status().message()), HasSubstr("did you mean 'root'?"));
}

TEST(OpenDataset, AMissingPathIsToldWithItsPlaceAndTheNearestNames) {
  TempFolder folder;
  for (const char* name : {"data/training/a.txt", "data/val/a.txt", "data/other/a.txt",
                           "data/.hidden/a.txt", "data/Train2017/a.txt"})
    folder.Write(name, "");
  Opener opener(folder.path());
  const auto told = [&](const std::string& path) {
    const auto dataset =
        opener.Open(absl::StrCat("{format: image_folder, root: root, path: ", path, "}"));
    EXPECT_EQ(dataset.status().code(), absl::StatusCode::kNotFound) << path;
    return std::string(dataset.status().message());
  };
  const std::string of_train = told("data/train");
  EXPECT_THAT(of_train, HasSubstr("test.yaml:1:42: 'data/train' of root"));
  EXPECT_THAT(of_train, HasSubstr("there is 'Train2017', 'training', "));
  EXPECT_THAT(of_train, ::testing::Not(HasSubstr("hidden")));
  EXPECT_THAT(told("dta/train/deep"), HasSubstr("there is 'data'"));
}

TEST(OpenDataset, ThePicklesOfCifarAreToldWhereTheBinaryVersionIsMissing) {
  TempFolder folder;
  folder.Write("cifar-10-batches-py/data_batch_1", "");
  Opener opener(folder.path());
  const auto dataset = opener.Open("{format: cifar10, root: root, path: cifar-10-batches-bin}");
  EXPECT_THAT(std::string(dataset.status().message()),
              ::testing::AllOf(HasSubstr("test.yaml:1:"), HasSubstr("'cifar-10-batches-py'"),
                               HasSubstr("unpack the binary version (cifar-10-binary.tar.gz)")));
}

}  // namespace
}  // namespace feedwater::server
