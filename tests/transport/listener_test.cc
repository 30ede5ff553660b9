// The socket file: its mode, whom it replaces, what it refuses to replace, and sockets that systemd
// hands over.
#include "server/transport/listener.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "tests/testing/fake_trainer.h"

namespace feedwater::server {
namespace {

class ListenerTest : public ::testing::Test {
 protected:
  ListenerTest() {
    char folder[] = "/tmp/feedwater-listener-XXXXXX";
    folder_ = mkdtemp(folder);
    path_ = folder_ + "/data.sock";
  }
  ~ListenerTest() override { std::filesystem::remove_all(folder_); }

  static bool Serves(Listener* listener, const std::string& path) {
    testing::FakeTrainer trainer(path);
    if (!trainer.connected()) return false;
    const auto accepted = listener->Accept();
    return accepted.ok() && accepted->has_value();
  }

  std::string folder_, path_;
};

TEST_F(ListenerTest, TheSocketIsForItsUserAndGroupWhateverTheUmask) {
  for (const mode_t mask : {mode_t{0}, mode_t{022}, mode_t{077}}) {
    const mode_t old_mask = umask(mask);
    const auto listener = Listener::Bind(path_);
    umask(old_mask);
    ASSERT_TRUE(listener.ok()) << listener.status();
    struct stat file;
    ASSERT_EQ(lstat(path_.c_str(), &file), 0);
    EXPECT_EQ(file.st_mode & 07777, 0660u) << "umask " << mask;
  }
}

TEST_F(ListenerTest, ASocketFileThatADeadDaemonLeftIsReplaced) {
  {
    auto first = Listener::Bind(path_);
    ASSERT_TRUE(first.ok());
    std::filesystem::rename(path_, folder_ + "/kept");  // so that the listener does not remove it
  }
  std::filesystem::rename(folder_ + "/kept", path_);
  EXPECT_FALSE(testing::FakeTrainer(path_).connected());
  auto second = Listener::Bind(path_);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_TRUE(Serves(&*second, path_));
}

TEST_F(ListenerTest, AFileThatIsNoSocketIsLeftAlone) {
  std::ofstream(path_) << "precious";
  const auto listener = Listener::Bind(path_);
  EXPECT_EQ(listener.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(listener.status().message().find(path_), absl::string_view::npos) << listener.status();
  EXPECT_EQ(std::filesystem::file_size(path_), 8u);
  std::filesystem::remove(path_);
  std::filesystem::create_symlink(folder_ + "/elsewhere", path_);
  EXPECT_EQ(Listener::Bind(path_).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ListenerTest, AListenerRemovesItsOwnFileAndNoOther) {
  {
    auto listener = Listener::Bind(path_);
    ASSERT_TRUE(listener.ok());
    Listener moved = *std::move(listener);
    EXPECT_TRUE(std::filesystem::exists(path_));
  }
  EXPECT_FALSE(std::filesystem::exists(path_));

  auto first = std::make_unique<Listener>(*Listener::Bind(path_));
  auto second = Listener::Bind(path_);
  ASSERT_TRUE(second.ok());
  first.reset();
  EXPECT_TRUE(std::filesystem::exists(path_));
  EXPECT_TRUE(Serves(&*second, path_));
}

TEST_F(ListenerTest, APathThatIsTooLongIsRefusedWithItsLength) {
  const std::string path = folder_ + "/" + std::string(108, 'x');
  const auto listener = Listener::Bind(path);
  EXPECT_EQ(listener.status().code(), absl::StatusCode::kInvalidArgument);
  for (const std::string& part :
       {std::to_string(path.size()), std::string("107"), std::string("runtime_dir")}) {
    EXPECT_NE(listener.status().message().find(part), absl::string_view::npos) << listener.status();
  }
  const std::string longest = folder_ + "/" + std::string(107 - folder_.size() - 1, 'x');
  EXPECT_TRUE(Listener::Bind(longest).ok());
}

TEST_F(ListenerTest, AFolderThatIsMissingIsNamed) {
  const auto listener = Listener::Bind(folder_ + "/none/data.sock");
  EXPECT_EQ(listener.status().code(), absl::StatusCode::kNotFound) << listener.status();
  EXPECT_NE(listener.status().message().find("none/data.sock"), absl::string_view::npos);
}

TEST_F(ListenerTest, ASocketHandedOverServesAndItsFileStays) {
  auto systemd = Listener::Bind(path_);
  ASSERT_TRUE(systemd.ok());
  {
    auto listener = Listener::Adopt(dup(systemd->fd()));
    ASSERT_TRUE(listener.ok()) << listener.status();
    EXPECT_NE(fcntl(listener->fd(), F_GETFD) & FD_CLOEXEC, 0);
    EXPECT_TRUE(Serves(&*listener, path_));
  }
  EXPECT_TRUE(std::filesystem::exists(path_));
  EXPECT_TRUE(Serves(&*systemd, path_));
}

TEST_F(ListenerTest, WhatIsNoListeningPacketSocketIsNotAdopted) {
  EXPECT_EQ(Listener::Adopt(socket(AF_UNIX, SOCK_SEQPACKET, 0)).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Listener::Adopt(socket(AF_UNIX, SOCK_STREAM, 0)).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(Listener::Adopt(open("/dev/null", O_RDONLY)).ok());
}

TEST_F(ListenerTest, AnAcceptedClientIsKnownByUserProcessAndItsLife) {
  auto listener = Listener::Bind(path_);
  ASSERT_TRUE(listener.ok());
  const auto nobody = listener->Accept();
  ASSERT_TRUE(nobody.ok());
  EXPECT_FALSE(nobody->has_value());
  testing::FakeTrainer trainer(path_);
  const auto accepted = listener->Accept();
  ASSERT_TRUE(accepted.ok() && accepted->has_value());
  EXPECT_EQ((*accepted)->peer.pid, getpid());
  EXPECT_EQ((*accepted)->peer.uid, getuid());
  EXPECT_FALSE((*accepted)->peer_is_dead);
  ASSERT_TRUE((*accepted)->pidfd);
  pollfd alive{(*accepted)->pidfd.get(), POLLIN, 0};
  EXPECT_EQ(poll(&alive, 1, 0), 0);
  EXPECT_NE(fcntl((*accepted)->pidfd.get(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_NE(fcntl((*accepted)->socket.get(), F_GETFL) & O_NONBLOCK, 0);
}

}  // namespace
}  // namespace feedwater::server
