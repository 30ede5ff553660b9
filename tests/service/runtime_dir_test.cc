// The daemon's folder: one daemon at a time, safe below /tmp, open to whom the access list names.
// And the list itself.
#include "server/service/runtime_dir.h"

#include <grp.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace feedwater::server {
namespace {

namespace fs = std::filesystem;

class RuntimeFolder : public ::testing::Test {
 protected:
  RuntimeFolder() {
    char folder[] = "/tmp/feedwater-dir-XXXXXX";
    folder_ = mkdtemp(folder);
  }
  ~RuntimeFolder() override { fs::remove_all(folder_); }
  static mode_t Mode(const std::string& path) {
    struct stat info {};
    EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
    return info.st_mode & 07777;
  }
  std::string folder_;
};

TEST_F(RuntimeFolder, ASecondDaemonIsRefusedWithThePidOfTheFirst) {
  auto first = RuntimeDir::Claim(folder_ + "/a/run");
  ASSERT_TRUE(first.ok()) << first.status();
  absl::Status second = RuntimeDir::Claim(folder_ + "/a/run").status();
  EXPECT_TRUE(absl::IsAlreadyExists(second)) << second;
  EXPECT_TRUE(absl::StrContains(second.message(), absl::StrCat("pid ", getpid()))) << second;
  first->reset();
  EXPECT_TRUE(RuntimeDir::Claim(folder_ + "/a/run").ok());
}

TEST_F(RuntimeFolder, IsRemovedAtTheEndWhereItWasMadeForOneDaemon) {
  for (const bool has_more : {false, true}) {
    const std::string path = folder_ + "/above/run";
    auto dir = RuntimeDir::Claim(path);
    ASSERT_TRUE(dir.ok()) << dir.status();
    std::ofstream((*dir)->control_socket()) << "";
    std::ofstream(path + "/config") << "";
    if (has_more) std::ofstream(path + "/somebody's") << "";
    (*dir)->RemoveAtEnd({path + "/config", path + "/not there"});
    EXPECT_TRUE(absl::IsAlreadyExists(RuntimeDir::Claim(path).status()));
    dir->reset();
    EXPECT_FALSE(fs::exists(path + "/config"));
    EXPECT_FALSE(fs::exists(path + "/control.sock"));
    EXPECT_EQ(fs::exists(folder_ + "/above"), has_more);
  }
}

TEST_F(RuntimeFolder, IsLeftAloneAtTheEndWhereAnotherDaemonHasItMeanwhile) {
  const std::string path = folder_ + "/above/run";
  auto dir = RuntimeDir::Claim(path);
  ASSERT_TRUE(dir.ok()) << dir.status();
  (*dir)->RemoveAtEnd({path + "/config"});
  fs::remove_all(path);  // a cleaner of /tmp, and then somebody who starts a daemon
  fs::create_directory(path);
  for (const char* name : {"config", "control.sock", "data.sock"})
    std::ofstream(path + "/" + name) << "";
  std::ofstream(path + "/feedwaterd.lock") << getppid() << " 1 1\n";
  dir->reset();
  for (const char* name : {"config", "control.sock", "data.sock", "feedwaterd.lock"})
    EXPECT_TRUE(fs::exists(path + "/" + name)) << name;
}

TEST_F(RuntimeFolder, ItsModesFollowTheAccessList) {
  const std::string path = folder_ + "/run";
  auto dir = RuntimeDir::Claim(path);
  ASSERT_TRUE(dir.ok()) << dir.status();
  std::ofstream((*dir)->control_socket()) << "";
  (*dir)->Admit({});
  EXPECT_EQ(Mode(path), 0750u);
  EXPECT_EQ(Mode((*dir)->control_socket()), 0660u);
  (*dir)->Admit({{12345}, {}});
  EXPECT_EQ(Mode(path), 0755u);
  EXPECT_EQ(Mode((*dir)->control_socket()), 0666u);
  (*dir)->Admit({{}, {getegid()}});
  EXPECT_EQ(Mode(path), 0750u);
  EXPECT_EQ(Mode((*dir)->control_socket()), 0660u);
}

TEST_F(RuntimeFolder, AFolderThatWasThereKeepsItsMode) {
  ASSERT_EQ(chmod(folder_.c_str(), 0711), 0);
  auto dir = RuntimeDir::Claim(folder_);
  ASSERT_TRUE(dir.ok()) << dir.status();
  (*dir)->Admit({{12345}, {}});
  EXPECT_EQ(Mode(folder_), 0711u);
}

TEST_F(RuntimeFolder, InAPublicFolderOnlyAFolderOfOnesOwnWillDo) {
  ASSERT_EQ(chmod(folder_.c_str(), 01777), 0);
  EXPECT_TRUE(MakeFolder(folder_ + "/mine/run").ok());
  EXPECT_EQ(Mode(folder_ + "/mine"), 0700u);

  fs::create_directory(folder_ + "/open");
  ASSERT_EQ(chmod((folder_ + "/open").c_str(), 0777), 0);
  EXPECT_TRUE(absl::IsPermissionDenied(MakeFolder(folder_ + "/open/run")));

  fs::create_directory_symlink(folder_ + "/mine", folder_ + "/link");
  EXPECT_FALSE(MakeFolder(folder_ + "/link/run").ok());

  if (geteuid() != 0) GTEST_SKIP() << "only root can make a folder of somebody else";
  fs::create_directory(folder_ + "/theirs");
  ASSERT_EQ(chown((folder_ + "/theirs").c_str(), 12345, 12345), 0);
  EXPECT_TRUE(absl::IsPermissionDenied(MakeFolder(folder_ + "/theirs/run")));
}

TEST(Access, NamesAndNumbersAreFoundAndOthersAreNot) {
  EXPECT_EQ(*FindUser("root"), 0u);
  EXPECT_EQ(*FindUser("4242"), 4242u);
  EXPECT_EQ(*FindGroup("root"), 0u);
  EXPECT_TRUE(absl::IsNotFound(FindUser("no-such-user-here").status()));
  EXPECT_TRUE(absl::IsNotFound(FindGroup("no-such-group-here").status()));
  EXPECT_TRUE(absl::IsNotFound(FindUser("").status()));
  EXPECT_TRUE(absl::IsNotFound(FindUser("-1").status()));
}

}  // namespace
}  // namespace feedwater::server
