// Where the client finds a daemon among the places where one may be.
#include "client/cpp/address.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/testing/other_users.h"

namespace feedwater {
namespace {

class Address : public ::testing::Test {
 protected:
  Address() {
    char folder[] = "/tmp/feedwater-address-XXXXXX";
    folder_ = mkdtemp(folder);
    for (const char* name : {"0", "1", "2"}) {
      folders_.push_back(folder_ + "/" + name);
      std::filesystem::create_directory(folders_.back());
    }
  }
  ~Address() override {
    for (int fd : open_) close(fd);
    std::filesystem::remove_all(folder_);
  }
  // The sockets of a daemon; one that does not listen has been killed.
  void Put(const std::string& folder, bool listens) {
    for (const auto& [name, type] :
         {std::pair{"/control.sock", SOCK_STREAM}, std::pair{"/data.sock", SOCK_SEQPACKET}}) {
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      (folder + name).copy(address.sun_path, sizeof(address.sun_path) - 1);
      const int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
      ASSERT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
      if (listens) {
        ASSERT_EQ(listen(fd, 8), 0);
      }
      open_.push_back(fd);
    }
  }

  std::string folder_;
  std::vector<std::string> folders_;
  std::vector<int> open_;
};

TEST_F(Address, ASocketThatAKilledDaemonHasLeftDoesNotHideOneThatListens) {
  EXPECT_TRUE(absl::IsUnavailable(FindAmong(folders_, false).status()));
  Put(folders_[0], false);
  EXPECT_EQ(*FindAmong(folders_, false), folders_[0]) << "it may come back";
  Put(folders_[1], false);
  EXPECT_EQ(*FindAmong(folders_, false), folders_[0]);
  Put(folders_[2], true);
  EXPECT_EQ(*FindAmong(folders_, false), folders_[2]);
}

// The program may change its folder before it connects again.
TEST_F(Address, ARelativeOneIsMadeAbsolute) {
  Put(folders_[0], true);
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder_);
  for (const char* given : {"0", "./0", ".//0/", "0/control.sock"})
    EXPECT_EQ(FindAddress(given).value_or(""), folders_[0]) << given;
  std::filesystem::current_path(folders_[0]);
  EXPECT_EQ(FindAddress("data.sock").value_or(""), folders_[0]);
  std::filesystem::current_path(before);
}

TEST_F(Address, BehindALinkIsTheFolderThatTheSystemFinds) {
  Put(folders_[0], true);
  const std::filesystem::path folder = folder_, deep = folder / "deep/er";
  std::filesystem::create_directories(deep);
  std::filesystem::create_directory_symlink(folders_[0], deep / "link");
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(deep);
  const std::string found = (deep / "link/../0").string();
  for (const std::string& given :
       {std::string("link/../0"), std::string("link/../0/data.sock"), found})
    EXPECT_EQ(FindAddress(given).value_or(""), found) << given;
  std::filesystem::current_path(before);
}

// As `FEEDWATER_ADDRESS= command` gives it, and a unit's empty Environment=. Another user has put a
// daemon of their own where this one's would be.
TEST_F(Address, AnEmptyVariableNamesNoPlaceAndTrustsNobodyMore) {
  constexpr uid_t kUser = 3'000'017, kOther = 3'000'018;
  if (!testing::CanBe(kUser)) GTEST_SKIP() << testing::kNoOtherUsers;
  const std::string planted = "/tmp/feedwater-" + std::to_string(kUser);
  std::filesystem::create_directories(planted + "/0");
  Put(planted + "/0", true);
  ASSERT_EQ(chown(planted.c_str(), kOther, kOther), 0);
  ASSERT_EQ(chown((planted + "/0").c_str(), kOther, kOther), 0);
  const pid_t child = fork();
  if (child == 0) {
    unsetenv("XDG_RUNTIME_DIR");
    if (setuid(kUser) != 0) _exit(9);
    setenv("FEEDWATER_ADDRESS", "", 1);
    const bool finds_it = FindAddress("").value_or("") == planted + "/0";
    setenv("FEEDWATER_ADDRESS", (planted + "/0").c_str(), 1);
    const bool takes_it_when_named = FindAddress("").value_or("") == planted + "/0";
    _exit((finds_it ? 1 : 0) + (takes_it_when_named ? 0 : 2));
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  std::filesystem::remove_all(planted);
  EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0)
      << "1: it was found unasked, 2: it was not taken when a person named it";
}

}  // namespace
}  // namespace feedwater
