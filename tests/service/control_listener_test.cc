// Who connects to control.sock is handed on when it is known that they may; nobody waits for that
// but they.
#include "server/service/control_listener.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>
#include <vector>

#include "tests/testing/declared_count.h"
#include "tests/testing/eventually.h"

namespace feedwater::server {
namespace {

using ::feedwater::testing::Eventually;

class ControlListenerTest : public ::testing::Test {
 protected:
  ControlListenerTest() {
    char folder[] = "/tmp/feedwater-control-XXXXXX";
    folder_ = mkdtemp(folder);
  }
  ~ControlListenerTest() override {
    listener_.reset();
    std::filesystem::remove_all(folder_);
  }
  void Start(const std::function<void(ControlListener::Options*)>& change = {}) {
    ControlListener::Options options;
    options.socket_path = folder_ + "/control.sock";
    options.access = [](const PeerIdentity&) { return absl::OkStatus(); };
    options.admit = [this](Fd connection, const PeerIdentity&, uid_t) -> absl::Status {
      MutexLock lock(&mu_);
      if (served_.size() >= 2) return absl::ResourceExhaustedError("two are enough");
      served_.push_back(std::move(connection));
      return absl::OkStatus();
    };
    options.limits.connections_per_uid = 2;
    if (change) change(&options);
    auto listener = ControlListener::Create(options);
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
    ASSERT_TRUE(listener_->Start().ok());
  }
  Fd Connect() const {
    Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    (folder_ + "/control.sock").copy(address.sun_path, sizeof(address.sun_path) - 1);
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    return fd;
  }
  size_t Served() {
    MutexLock lock(&mu_);
    return served_.size();
  }
  static bool IsHungUp(const Fd& fd, int timeout_ms = 10'000) {
    pollfd event{fd.get(), POLLIN, 0};
    return poll(&event, 1, timeout_ms) == 1 && (event.revents & POLLHUP) != 0;
  }
  uint64_t Count(const char* name) const {
    return feedwater::testing::DeclaredCount(listener_->counters(), name);
  }

  std::string folder_;
  Mutex mu_;
  std::vector<Fd> served_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<ControlListener> listener_;
};

TEST_F(ControlListenerTest, WhoIsNotAdmittedIsClosed) {
  Start();
  const Fd first = Connect(), second = Connect();
  ASSERT_TRUE(Eventually([&] { return Served() == 2; }));
  EXPECT_TRUE(IsHungUp(Connect()));
  EXPECT_FALSE(IsHungUp(first, 0));
}

TEST_F(ControlListenerTest, NoMoreOfAUserWaitThanItMayHave) {
  Start([](ControlListener::Options* options) {
    options->access = [](const PeerIdentity&) { return std::nullopt; };
  });
  const Fd first = Connect(), second = Connect();
  EXPECT_TRUE(IsHungUp(Connect()));
  EXPECT_EQ(Count("control_refused_connections_per_uid"), 1u);
  EXPECT_FALSE(IsHungUp(first, 0));
}

TEST_F(ControlListenerTest, WhoseAccessIsBeingLookedUpWaits) {
  std::atomic<bool> known = false;
  std::atomic<int> asked = 0;
  Start([&](ControlListener::Options* options) {
    options->access = [&](const PeerIdentity&) -> std::optional<absl::Status> {
      ++asked;
      if (!known) return std::nullopt;
      return absl::OkStatus();
    };
  });
  const Fd client = Connect();
  ASSERT_TRUE(Eventually([&] { return asked == 1; }));
  EXPECT_EQ(Served(), 0u);
  known = true;
  listener_->Reconsider();
  EXPECT_TRUE(Eventually([&] { return Served() == 1; }));
}

TEST_F(ControlListenerTest, AUserDatabaseThatNeverAnswersEndsTheConnectionInTime) {
  Start([](ControlListener::Options* options) {
    options->access = [](const PeerIdentity&) { return std::nullopt; };
    options->limits.handshake_seconds = 0.05;
  });
  const Fd client = Connect();
  EXPECT_TRUE(IsHungUp(client));
  EXPECT_EQ(Count("control_refused_unknown"), 1u);
}

}  // namespace
}  // namespace feedwater::server
