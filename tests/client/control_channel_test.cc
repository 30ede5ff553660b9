// Goal: the client knows by gRPC's words that the control socket's queue was full, which is worth
// another try, and takes no other failure for it.
#include "client/cpp/control_channel.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

namespace feedwater {
namespace {

class ControlChannel : public ::testing::Test {
 protected:
  ControlChannel() {
    char folder[] = "/tmp/feedwater-channel-XXXXXX";
    folder_ = mkdtemp(folder);
    const std::string path = folder_ + "/control.sock";
    path.copy(address_.sun_path, sizeof(address_.sun_path) - 1);
  }
  ~ControlChannel() override {
    for (int fd : open_) close(fd);
    std::filesystem::remove_all(folder_);
  }
  int Socket() {
    open_.push_back(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    return open_.back();
  }
  const sockaddr* address() const { return reinterpret_cast<const sockaddr*>(&address_); }
  void Listen() {
    const int listener = Socket();
    ASSERT_EQ(bind(listener, address(), sizeof(address_)), 0);
    ASSERT_EQ(listen(listener, 0), 0);
  }
  grpc::Status Call() const {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    v1::GetStatusResponse response;
    return ConnectControl(folder_)->GetStatus(&context, {}, &response);
  }

  std::string folder_;
  sockaddr_un address_{AF_UNIX, {}};
  std::vector<int> open_;
};

TEST_F(ControlChannel, AFullQueueIsKnownByWhatGrpcSays) {
  Listen();
  while (connect(Socket(), address(), sizeof(address_)) == 0) {
  }
  ASSERT_EQ(errno, EAGAIN);
  const grpc::Status status = Call();
  EXPECT_TRUE(QueueWasFull(status)) << status.error_message();
}

TEST_F(ControlChannel, NobodyThereIsSomethingElse) {
  EXPECT_FALSE(QueueWasFull(Call()));
  Listen();
  close(open_.back());
  open_.pop_back();
  const grpc::Status refused = Call();
  EXPECT_FALSE(refused.ok());
  EXPECT_FALSE(QueueWasFull(refused)) << refused.error_message();
  EXPECT_FALSE(QueueWasFull(grpc::Status::OK));
}

}  // namespace
}  // namespace feedwater
