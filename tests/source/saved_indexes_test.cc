#include "server/source/saved_indexes.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "server/base/key.h"
#include "tests/storage/temp_folder.h"

namespace feedwater::server {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;

class SavedIndexes : public ::testing::Test {
 protected:
  void SetUp() override {
    IndexWriter writer;
    TextList texts;
    texts.Add(std::string(1000, 'x'));
    writer.Add(MakeIndexTag("TEST"), texts);
    auto finished = writer.Finish(nullptr);
    ASSERT_TRUE(finished.ok()) << finished.status();
    index_ = *finished;
  }
  // Saves it; used `age` hours ago.
  void Save(const std::string& name, int age) {
    SaveIndexInFolder(*index_, Path(name), limits_);
    const timespec used[2] = {{1'700'000'000 - age * 3600, 0}, {1'700'000'000 - age * 3600, 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, Path(name).c_str(), used, 0), 0);
  }
  // "a.index" stands for one that is named after a key.
  std::string Path(const std::string& name) const {
    const bool is_short = name.find('.') == 1;
    return temp_.path() + "/indexes/" + (is_short ? std::string(31, name[0]) : "") + name;
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(temp_.path() + "/indexes")) {
      const std::string name = entry.path().filename();
      names.push_back(IsKeyName(entry.path().stem().native()) ? name.substr(31) : name);
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  TempFolder temp_;
  std::shared_ptr<const Index> index_;
  SavedIndexLimits limits_;
};

TEST_F(SavedIndexes, TheLongestUnusedGoFirst) {
  limits_.files = 3;
  Save("a.index", 1);
  Save("b.index", 9);
  std::ofstream(Path("b.seek")) << "not an index";
  Save("c.index", 5);
  Save("d.index", 7);  // in place of b
  EXPECT_THAT(Names(), ElementsAre("a.index", "b.seek", "c.index", "d.index"));
  TouchSavedIndex(Path("d.index"));
  Save("e.index", 2);  // in place of c
  EXPECT_THAT(Names(), ElementsAre("a.index", "b.seek", "d.index", "e.index"));
}

// The state folder may be one where others keep files.
TEST_F(SavedIndexes, FilesOfOthersStayAndDoNotCount) {
  Save("a.index", 9);
  limits_.files = 2;
  limits_.bytes = 3 * static_cast<int64_t>(fs::file_size(Path("a.index")));
  const std::string large(1 << 20, 'x');
  std::ofstream(Path("faiss.index")) << large;
  std::ofstream(Path("f.index")) << large;  // with such a name, and something else in it
  fs::create_symlink("faiss.index", Path("0.index"));
  Save("b.index", 8);
  EXPECT_THAT(Names(), ElementsAre("0.index", "a.index", "b.index", "f.index", "faiss.index"));
  Save("c.index", 7);
  EXPECT_THAT(Names(), ElementsAre("0.index", "b.index", "c.index", "f.index", "faiss.index"));
  EXPECT_EQ(fs::file_size(Path("faiss.index")), large.size());
}

TEST_F(SavedIndexes, BytesAreBounded) {
  Save("a.index", 3);
  limits_.bytes = 2 * static_cast<int64_t>(fs::file_size(Path("a.index"))) + 10;
  Save("b.index", 2);
  EXPECT_EQ(Names().size(), 2u);
  Save("c.index", 1);
  EXPECT_THAT(Names(), ElementsAre("b.index", "c.index"));
  limits_.bytes = 10;
  Save("d.index", 0);  // what was just made is kept
  EXPECT_THAT(Names(), ElementsAre("d.index"));
}

}  // namespace
}  // namespace feedwater::server
