// Where the client finds a daemon among the places where one may be.
#include "client/cpp/address.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

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

}  // namespace
}  // namespace feedwater
