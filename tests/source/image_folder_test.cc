// Goal: image_folder's records and labels are torchvision's, and whatever lies in the folders gives
// a clear answer.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "tests/source/dataset_reader.h"

namespace feedwater::server {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kYaml[] = "{format: image_folder, root: root, path: data}";

class ImageFolderTest : public ::testing::Test {
 protected:
  ImageFolderTest() : opener_(folder_.path()) {}
  absl::Status OpenError() { return opener_.Open(kYaml).status(); }

  TempFolder folder_;
  Opener opener_;
};

TEST_F(ImageFolderTest, WhatIsFoundIsCountedWhileItIsListed) {
  for (int i = 0; i < 3000; ++i)
    folder_.Write(absl::StrCat("data/cat/a-name-that-is-not-kept-within-a-string-", i, ".jpg"),
                  "x");
  opener_.budget = MemoryBudget::Create(200'000);
  const absl::Status status = OpenError();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_EQ(opener_.budget->planned_bytes(), 0);
  EXPECT_EQ(opener_.builds, 0) << "the listing itself was over";
  opener_.budget = MemoryBudget::Create(2'000'000);
  EXPECT_TRUE(OpenError().ok());
}

// Lists until it is stopped: nothing else ends it in time.
TEST_F(ImageFolderTest, AListingThatIsGivenUpEndsSoon) {
  for (int level = 0; level < 30; ++level) {  // each with two links to the next one: 2^30 folders
    const std::string of_level = absl::StrCat("data/c", level + 10);
    folder_.Write(of_level + "/1.jpg", "x");
    for (const char* name : {"x", "y"}) {
      const std::string link = absl::StrCat(folder_.path(), "/", of_level, "/", name);
      if (level + 1 < 30) {
        ASSERT_EQ(symlink(absl::StrCat("../c", level + 11).c_str(), link.c_str()), 0);
      }
    }
  }
  std::atomic<int> asked{0};
  opener_.given_up = [&] { return ++asked > 2; };
  EXPECT_EQ(OpenError().code(), absl::StatusCode::kCancelled);
}

std::vector<std::string> Paths(const Dataset& dataset) {
  std::vector<std::string> paths;
  for (int64_t i = 0; i < dataset.size(); ++i)
    paths.push_back(dataset.ObjectPath(static_cast<uint32_t>(i)));
  return paths;
}

// "label path" of every record.
std::vector<std::string> LabelsAndPaths(const Dataset& dataset) {
  std::vector<std::string> lines;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    lines.push_back(
        absl::StrCat(LabelOf(dataset, i), " ", dataset.ObjectPath(static_cast<uint32_t>(i))));
  }
  return lines;
}

// torchvision.datasets.folder.make_dataset, and the product's rule for hidden names.
constexpr char kTorchvision[] = R"(
import os, sys
os.chdir(sys.argv[1])
top = sys.argv[2]
ext = ('.jpg', '.jpeg', '.png', '.ppm', '.bmp', '.pgm', '.tif', '.tiff', '.webp')
classes = sorted(e.name for e in os.scandir(top) if e.is_dir() and not e.name.startswith('.'))
for label, name in enumerate(classes):
    for root, _, fnames in sorted(os.walk(os.path.join(top, name), followlinks=True)):
        if any(part.startswith('.') for part in root.split('/')): continue
        for fname in sorted(fnames):
            if fname.lower().endswith(ext) and not fname.startswith('.'):
                print(label, os.path.join(root, fname))
)";

std::vector<std::string> TorchvisionOrder(const std::string& root, const std::string& top) {
  TempFolder scripts;
  scripts.Write("order.py", kTorchvision);
  const std::string command =
      absl::StrCat("python3 ", scripts / "order.py", " '", root, "' '", top, "'");
  std::string output;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return {};
  char buffer[4096];
  while (size_t got = fread(buffer, 1, sizeof(buffer), pipe)) output.append(buffer, got);
  if (pclose(pipe) != 0) return {};
  return absl::StrSplit(output, '\n', absl::SkipEmpty());
}

TEST_F(ImageFolderTest, NestedFoldersStandInTheOrderOfSortedOsWalk) {
  for (const char* name :
       {"b/z.jpg",       "b/a.jpg",         "b/sub/a.jpg",    "b/sub/deeper/0.jpg", "b/sub-1/a.jpg",
        "b/sub.x/a.jpg", "b/sub0/a.jpg",    "b/Sub/a.jpg",    "b/a/only.png",       "B/1.jpg",
        "a-b/1.jpg",     "a/1.jpg",         "a/b/1.jpg",      "a b/ü.jpg",          "a b/z.JPG",
        "a b/Z.Jpeg",    "a b/.hidden.jpg", "a b/.dir/x.jpg", "10/1.jpg",           "9/10.jpg",
        "9/9.jpg",       "9/1.jpg",         "é/1.jpg",        "a/notes.txt",        "a/x.jpg.txt",
        "a/jpg"}) {
    folder_.Write(absl::StrCat("data/", name), "bytes");
  }
  std::filesystem::create_directory_symlink("../a", folder_ / "data/b/link");
  std::filesystem::create_symlink("../a/1.jpg", folder_ / "data/9/5.jpg");
  auto dataset = opener_.MustOpen(kYaml);
  ASSERT_NE(dataset, nullptr);
  EXPECT_THAT(dataset->classes(), ElementsAre("10", "9", "B", "a", "a b", "a-b", "b", "é"));
  const std::vector<std::string> expected = TorchvisionOrder(folder_.path(), "data");
  if (expected.empty()) GTEST_SKIP() << "python3 is not installed";
  EXPECT_EQ(LabelsAndPaths(*dataset), expected);
}

TEST_F(ImageFolderTest, ARandomTreeStandsInThatOrderToo) {
  constexpr uint64_t kSeed = 4;
  SCOPED_TRACE(absl::StrCat("seed ", kSeed));
  std::mt19937_64 random(kSeed);
  const std::string letters = "aAb-_.0 Z~";
  auto name = [&] {
    std::string text(1, "abXY09"[random() % 6]);
    for (size_t i = random() % 4; i > 0; --i) text += letters[random() % letters.size()];
    return text;
  };
  for (int i = 0; i < 600; ++i) {
    std::string path = "data/" + name();
    for (size_t depth = random() % 4; depth > 0; --depth) path += "/" + name();
    std::error_code blocked;
    std::filesystem::create_directories(folder_ / path, blocked);
    if (!blocked) folder_.Write(path + "/" + name() + ".jpg", "x");
  }
  auto dataset = opener_.Open(kYaml);
  if (!dataset.ok()) FAIL() << dataset.status();
  const std::vector<std::string> expected = TorchvisionOrder(folder_.path(), "data");
  if (expected.empty()) GTEST_SKIP() << "python3 is not installed";
  EXPECT_EQ(LabelsAndPaths(**dataset), expected);
}

TEST_F(ImageFolderTest, WhatIsLeftOutIsCounted) {
  for (const char* name : {"cat/1.jpg", "cat/.2.jpg", "cat/readme.txt", "cat/b.gif", "dog/1.PNG",
                           ".git/x.jpg", "list.txt", "stray.jpg"}) {
    folder_.Write(absl::StrCat("data/", name), "bytes");
  }
  ASSERT_EQ(mkfifo((folder_ / "data/cat/fifo.jpg").c_str(), 0600), 0);
  auto dataset = opener_.MustOpen(kYaml);
  ASSERT_NE(dataset, nullptr);
  EXPECT_THAT(Paths(*dataset), ElementsAre("data/cat/1.jpg", "data/dog/1.PNG"));
  EXPECT_EQ(
      dataset->notes(),
      "left out: 2 files without an image's extension (cat/b.gif, cat/readme.txt), 2 hidden files "
      "or folders (.git, cat/.2.jpg), 2 files beside the class folders (list.txt, stray.jpg), "
      "1 image that is not a regular file (cat/fifo.jpg)");
  EXPECT_TRUE(dataset->shard_starts().empty());
}

TEST_F(ImageFolderTest, AClassWithoutImagesIsAnErrorThatNamesIt) {
  folder_.Write("data/cat/1.jpg", "x");
  folder_.Write("data/dog/notes.txt", "x");
  std::filesystem::create_directories(folder_ / "data/bird/deep");
  absl::Status status = OpenError();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("'bird', 'dog'"), HasSubstr("'data' of root 'root'"), HasSubstr("cure:")));
}

TEST_F(ImageFolderTest, ClassesMayBeNumberedOtherwiseAndLackTheirFolder) {
  for (const char* name : {"cat/1.jpg", "cat/deep/2.jpg", "dog/3.jpg", "owl/4.jpg"})
    folder_.Write(absl::StrCat("data/", name), name);
  const auto plain = opener_.MustOpen(kYaml);
  const auto open = [&](const std::string& classes) {
    return opener_.Open("{format: image_folder, root: root, path: data, classes: " + classes + "}");
  };
  const auto named = open("[bird, owl, cat, dog, fox]");
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_THAT((*named)->classes(), ElementsAre("bird", "owl", "cat", "dog", "fox"));
  EXPECT_THAT(Paths(**named), ElementsAre("data/owl/4.jpg", "data/cat/1.jpg", "data/cat/deep/2.jpg",
                                          "data/dog/3.jpg"));
  std::vector<int64_t> labels;
  for (int64_t record = 0; record < 4; ++record) labels.push_back((*named)->LabelOf(record));
  EXPECT_THAT(labels, ElementsAre(1, 2, 2, 3));
  EXPECT_NE((*named)->digest(), plain->digest());
  const auto message = [&](const std::string& classes) {
    return std::string(open(classes).status().message());
  };
  EXPECT_THAT(message("[cat, owl]"), AllOf(HasSubstr("'dog', which 'classes' does not name"),
                                           HasSubstr("cure: add it there")));
  EXPECT_THAT(message("[cat, owl, dog, cat]"), HasSubstr("'cat' twice"));
  // No label shifts where a folder that `classes` names is emptied.
  folder_.Write("data/fox/notes.txt", "x");
  EXPECT_TRUE(open("[bird, owl, cat, dog, fox]").ok());
}

TEST_F(ImageFolderTest, AFolderWithoutClassesIsAnError) {
  folder_.Write("data/1.jpg", "x");
  absl::Status status = OpenError();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("has no class folders, only 1 files"));
  EXPECT_EQ(opener_.Open("{format: image_folder, root: root, path: data/1.jpg}").status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(ImageFolderTest, TheRootItselfCanBeTheDataset) {
  folder_.Write("cat/1.jpg", "x");
  EXPECT_THAT(Paths(*opener_.MustOpen("{format: image_folder, root: root}")),
              ElementsAre("cat/1.jpg"));
}

TEST_F(ImageFolderTest, AZeroByteFileIsARecordAndABadSample) {
  folder_.Write("data/cat/0.jpg", "");
  folder_.Write("data/cat/1.jpg", "x");
  auto dataset = opener_.MustOpen(kYaml);
  ASSERT_EQ(dataset->size(), 2);
  Record record;
  absl::Status status = ParseBytes(*dataset, 0, {""}, &record);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("data/cat/0.jpg"));
}

TEST_F(ImageFolderTest, LinksOutOfTheRootAreRefusedByName) {
  TempFolder outside;
  outside.Write("1.jpg", "x");
  folder_.Write("data/cat/1.jpg", "x");
  for (const auto& [link, target] :
       std::map<std::string, std::string>{{"data/cat/file.jpg", outside / "1.jpg"},
                                          {"data/cat/folder", outside.path()},
                                          {"data/dog", outside.path()}}) {
    ASSERT_EQ(symlink(target.c_str(), (folder_ / link).c_str()), 0);
    absl::Status status = OpenError();
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(link), HasSubstr("cure:"), HasSubstr("outside the root")));
    unlink((folder_ / link).c_str());
  }
  EXPECT_TRUE(OpenError().ok());
}

TEST_F(ImageFolderTest, TheCureOfAnAbsoluteLinkCanBeRunAsItIsPrinted) {
  folder_.Write("store/1.jpg", "x");
  folder_.Write("data/cat/1.jpg", "x");
  const std::string target = folder_ / "store";
  for (const auto& [link, path] :
       std::map<std::string, std::string>{{"data/cat/2.jpg", target + "/1.jpg"},
                                          {"data/cat/more", target},
                                          {"data/dog", target}}) {
    ASSERT_EQ(symlink(path.c_str(), (folder_ / link).c_str()), 0);
    const std::string message(OpenError().message());
    const size_t begin = message.find("(ln "), end = message.find(')', begin);
    ASSERT_NE(end, std::string::npos) << message;
    const std::string command = absl::StrReplaceAll(message.substr(begin + 1, end - begin - 1),
                                                    {{"TARGET", path}, {"LINK", folder_ / link}});
    ASSERT_EQ(std::system(command.c_str()), 0) << command;  // NOLINT(cert-env33-c)
    EXPECT_TRUE(OpenError().ok()) << OpenError();
  }
  auto dataset = opener_.MustOpen(kYaml);
  EXPECT_THAT(Paths(*dataset), ElementsAre("data/cat/1.jpg", "data/cat/2.jpg",
                                           "data/cat/more/1.jpg", "data/dog/1.jpg"));
}

TEST_F(ImageFolderTest, LinksInLoopsEndAndAreCounted) {
  folder_.Write("data/cat/1.jpg", "x");
  std::filesystem::create_directory_symlink(".", folder_ / "data/cat/self");
  std::filesystem::create_directory_symlink("..", folder_ / "data/cat/up");
  folder_.Write("data/dog/a/1.jpg", "x");
  std::filesystem::create_directory_symlink("../a", folder_ / "data/dog/a/again");
  auto dataset = opener_.MustOpen(kYaml);
  ASSERT_NE(dataset, nullptr);
  EXPECT_THAT(Paths(*dataset), ElementsAre("data/cat/1.jpg", "data/dog/a/1.jpg"));
  EXPECT_EQ(dataset->notes(),
            "left out: 3 links to a folder above them (cat/self, cat/up, dog/a/again)");
}

TEST_F(ImageFolderTest, OfManyThatAreLeftOutTheFirstFewAreNamed) {
  // The folders are listed by several threads; which names are told must not depend on them.
  folder_.Write("data/cat/1.jpg", "bytes");
  for (char name = 'z'; name >= 'a'; --name)
    folder_.Write(absl::StrCat("data/", std::string(1, name), "/x.txt"), "no image");
  for (char name = 'a'; name <= 'z'; ++name)
    folder_.Write(absl::StrCat("data/", std::string(1, name), "/x.jpg"), "bytes");
  auto dataset = opener_.MustOpen(kYaml);
  ASSERT_NE(dataset, nullptr);
  EXPECT_EQ(dataset->notes(),
            "left out: 26 files without an image's extension (a/x.txt, b/x.txt, c/x.txt, ...)");
}

TEST_F(ImageFolderTest, AnEmptyImageIsKeptAsTorchvisionDoesAndNamed) {
  folder_.Write("data/cat/1.jpg", "x");
  folder_.Write("data/cat/2.jpg", "");
  auto dataset = opener_.MustOpen(kYaml);
  ASSERT_NE(dataset, nullptr);
  EXPECT_EQ(dataset->size(), 2);
  EXPECT_EQ(dataset->notes(), "kept, but bad: 1 empty image (cat/2.jpg)");
}

TEST_F(ImageFolderTest, ALinkToNothingIsKeptAsTorchvisionDoes) {
  folder_.Write("data/cat/1.jpg", "x");
  std::filesystem::create_symlink("gone.jpg", folder_ / "data/cat/0.jpg");
  auto dataset = opener_.MustOpen(kYaml);
  ASSERT_NE(dataset, nullptr);
  EXPECT_THAT(Paths(*dataset), ElementsAre("data/cat/0.jpg", "data/cat/1.jpg"));
  EXPECT_THAT(dataset->notes(),
              HasSubstr("kept, but bad: 1 link to an image that does not exist (cat/0.jpg)"));
}

TEST_F(ImageFolderTest, AClassBehindALinkToNothingIsNoticedWhenItComes) {
  TempFolder state;
  opener_.state_dir = state.path();
  folder_.Write("data/cat/1.jpg", "x");
  folder_.Write("data/eel/1.jpg", "x");
  std::filesystem::create_symlink("../later/dog", folder_ / "data/dog");
  std::filesystem::create_symlink("../../later/more", folder_ / "data/cat/more");
  EXPECT_THAT(opener_.MustOpen(kYaml)->classes(), ElementsAre("cat", "eel"));
  folder_.Write("later/dog/1.jpg", "x");
  EXPECT_THAT(opener_.MustOpen(kYaml)->classes(), ElementsAre("cat", "dog", "eel"));
  EXPECT_EQ(opener_.MustOpen(kYaml)->size(), 3);
  folder_.Write("later/more/1.jpg", "x");
  EXPECT_EQ(opener_.MustOpen(kYaml)->size(), 4);
}

TEST_F(ImageFolderTest, EveryKindOfChangeOfAFolderIsNoticed) {
  TempFolder state;
  opener_.state_dir = state.path();
  folder_.Write("data/cat/1.jpg", "x");
  folder_.Write("data/cat/sub/1.jpg", "x");
  folder_.Write("data/dog/1.jpg", "x");
  std::filesystem::create_directories(folder_ / "data/dog/empty");
  int builds = 0;
  auto expect_rebuild = [&](const char* what, int64_t records) {
    auto dataset = opener_.MustOpen(kYaml);
    ASSERT_NE(dataset, nullptr) << what;
    EXPECT_EQ(dataset->size(), records) << what;
    EXPECT_EQ(opener_.builds, ++builds) << what;
    opener_.MustOpen(kYaml);
    EXPECT_EQ(opener_.builds, builds) << what;
  };
  expect_rebuild("first", 3);
  folder_.Write("data/cat/2.jpg", "x");
  expect_rebuild("a file was added", 4);
  folder_.Write("data/cat/sub/2.jpg", "x");
  expect_rebuild("a file was added below", 5);
  folder_.Write("data/dog/empty/2.jpg", "x");
  expect_rebuild("a file was added to an empty folder", 6);
  std::filesystem::remove(folder_ / "data/cat/1.jpg");
  expect_rebuild("a file was removed", 5);
  std::filesystem::rename(folder_ / "data/cat/2.jpg", folder_ / "data/cat/3.jpg");
  expect_rebuild("a file was renamed", 5);
  folder_.Write("data/ant/1.jpg", "x");
  expect_rebuild("a class was added", 6);
  std::filesystem::remove_all(folder_ / "data/ant");
  expect_rebuild("a class was removed", 5);
  struct stat info;
  ASSERT_EQ(stat((folder_ / "data/dog").c_str(), &info), 0);
  folder_.Write("data/dog/2.jpg", "x");
  const timespec times[2] = {info.st_atim, info.st_mtim};
  ASSERT_EQ(utimensat(AT_FDCWD, (folder_ / "data/dog").c_str(), times, 0), 0);
  expect_rebuild("a file was added and the folder's time set back", 6);
}

TEST_F(ImageFolderTest, ChangesRightAfterTheScanAreNoticed) {
  // File times move with the kernel's clock tick, so a change in the tick of the scan could look
  // like no change.
  TempFolder state;
  opener_.state_dir = state.path();
  for (int round = 0; round < 20; ++round) {
    folder_.Write(absl::StrCat("data/cat/", round, ".jpg"), "x");
    auto dataset = opener_.MustOpen(kYaml);
    ASSERT_EQ(dataset->size(), round + 1);
  }
}

TEST_F(ImageFolderTest, AnIndexTakesFewBytesARecord) {
  TempFolder state;
  opener_.state_dir = state.path();
  constexpr int kRecords = 20'000;
  for (int i = 0; i < kRecords; ++i) {
    if (i % 1000 == 0)
      std::filesystem::create_directories(folder_ / absl::StrCat("data/n0144", i / 1000));
    std::ofstream(folder_ /
                  absl::StrCat("data/n0144", i / 1000, "/n01440764_", 10000 + i, ".JPEG"));
  }
  auto dataset = opener_.MustOpen(kYaml);
  ASSERT_EQ(dataset->size(), kRecords);
  EXPECT_LE(dataset->memory_bytes(), 64 * kRecords);
  for (const auto& entry : std::filesystem::directory_iterator(state / "indexes")) {
    EXPECT_LE(entry.file_size(), 64u * kRecords);
  }
}

TEST_F(ImageFolderTest, RealPhotosStandInTorchvisionsOrder) {
  const std::string data = OutsideData();
  if (data.empty()) GTEST_SKIP() << "FEEDWATER_TEST_DATA is not there";
  Opener opener(data);
  auto dataset = opener.MustOpen("{format: image_folder, root: root, path: photos}");
  ASSERT_NE(dataset, nullptr);
  EXPECT_EQ(dataset->size(), 400);
  EXPECT_EQ(dataset->classes().size(), 20u);
  Record record;
  const std::vector<std::string> fields = ReadFields(*dataset, 399, &record);
  EXPECT_EQ(fields[0].substr(0, 2), "\xff\xd8");
  EXPECT_EQ(LabelOf(*dataset, 0), 0);
  EXPECT_EQ(LabelOf(*dataset, 399), 19);
  const std::vector<std::string> expected = TorchvisionOrder(data, "photos");
  if (expected.empty()) GTEST_SKIP() << "python3 is not installed";
  EXPECT_EQ(LabelsAndPaths(*dataset), expected);
}

}  // namespace
}  // namespace feedwater::server
