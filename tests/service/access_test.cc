// Who gets in: users against both sockets, decided by the kernel's word and not by file modes; and
// the limits on connections.
#include <grp.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "proto/shm/wire.h"
#include "tests/service/daemon_fixture.h"
#include "tests/testing/other_users.h"

namespace feedwater::server {
namespace {

using ::testing::HasSubstr;

constexpr uid_t kListed = 52001, kStranger = 52002;
constexpr gid_t kListedGroup = 52003, kOtherGroup = 52004;

enum Answer { kServed = 0, kRefused = 1, kCannotConnect = 2, kBroken = 3 };

// Only system calls: also runs in a child of a process with many threads.
int ConnectTo(const char* path, int type) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  strncpy(address.sun_path, path, sizeof(address.sun_path) - 1);
  int fd = socket(AF_UNIX, type, 0);
  if (fd >= 0 && connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0)
    return fd;
  if (fd >= 0) close(fd);
  return -1;
}

// The first bytes that the daemon sends after a greeting; -1 for an answer that does not come.
ssize_t Greet(int fd, const void* greeting, size_t size, char* answer, size_t room) {
  if (send(fd, greeting, size, MSG_NOSIGNAL) < 0 && errno != EPIPE && errno != ECONNRESET)
    return -1;
  pollfd readable{fd, POLLIN, 0};
  if (poll(&readable, 1, 10'000) != 1) return -1;
  ssize_t got = recv(fd, answer, room, 0);
  return got < 0 && errno == ECONNRESET ? 0 : got;
}

Answer AskControl(const char* path) {
  int fd = ConnectTo(path, SOCK_STREAM);
  if (fd < 0) return kCannotConnect;
  constexpr char kPreface[] =
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";  // and an empty SETTINGS
  char answer[64];
  ssize_t got = Greet(fd, kPreface, sizeof(kPreface) - 1, answer, sizeof(answer));
  close(fd);
  return got > 0 ? kServed : got == 0 ? kRefused : kBroken;
}

Answer AskData(const char* path) {
  int fd = ConnectTo(path, SOCK_SEQPACKET);
  if (fd < 0) return kCannotConnect;
  wire::Hello hello{wire::MakeHeader<wire::Hello>(wire::Type::kHello),
                    wire::kMagic,
                    wire::kMajor,
                    wire::kMinor,
                    0,
                    0};
  char answer[wire::kMaxMessage];
  ssize_t got = Greet(fd, &hello, sizeof(hello), answer, sizeof(answer));
  close(fd);
  if (got < 0) return kBroken;
  uint16_t type = 0;
  if (got >= 2) memcpy(&type, answer, sizeof(type));
  return type == static_cast<uint16_t>(wire::Type::kWelcome) ? kServed : kRefused;
}

class AccessMatrix : public DaemonTest {
 protected:
  void SetUp() override {
    if (!::feedwater::testing::CanBe(kStranger))
      GTEST_SKIP() << ::feedwater::testing::kNoOtherUsers;
  }
  static Answer As(uid_t uid, gid_t gid, Answer (*ask)(const char*), const std::string& path) {
    pid_t child = fork();
    if (child == 0) {
      if (setgroups(0, nullptr) != 0 || setgid(gid) != 0 || setuid(uid) != 0) _exit(kBroken);
      _exit(ask(path.c_str()));
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? static_cast<Answer>(WEXITSTATUS(status)) : kBroken;
  }
  std::string control() const { return address() + "/control.sock"; }
  std::string data() const { return address() + "/data.sock"; }
  void ExpectBoth(uid_t uid, gid_t gid, Answer answer) const {
    EXPECT_EQ(As(uid, gid, AskControl, control()), answer)
        << "control.sock, user " << uid << ", group " << gid;
    EXPECT_EQ(As(uid, gid, AskData, data()), answer)
        << "data.sock, user " << uid << ", group " << gid;
  }
};

TEST_F(AccessMatrix, WithoutAListOnlyTheDaemonsUserAndRootMayEvenConnect) {
  Start();
  ExpectBoth(0, 0, kServed);
  ExpectBoth(kStranger, kOtherGroup, kCannotConnect);
  // Were the modes wide open, the kernel's word on who connects would still decide.
  for (const std::string& path : {address(), control(), data()})
    std::filesystem::permissions(path, std::filesystem::perms(0777));
  ExpectBoth(kStranger, kOtherGroup, kRefused);
  EXPECT_GE(Status().counters().at("control_refused_access"), 1u);
  EXPECT_GE(Status().counters().at("refused_access"), 1u);
}

TEST_F(AccessMatrix, ListedUsersAndGroupsAreServedAndOthersAreNot) {
  Start({absl::StrCat("access.users=[", kListed, "]"),
         absl::StrCat("access.groups=[", kListedGroup, "]")});
  ExpectBoth(0, 0, kServed);
  ExpectBoth(kListed, kOtherGroup, kServed);
  ExpectBoth(kStranger, kListedGroup, kServed);
  ExpectBoth(kStranger, kOtherGroup, kRefused);
}

TEST_F(AccessMatrix, OneGroupGetsTheFolderAndTheSockets) {
  Start({absl::StrCat("access.groups=[", kListedGroup, "]")});
  ExpectBoth(kStranger, kListedGroup, kServed);
  ExpectBoth(kStranger, kOtherGroup, kCannotConnect);
}

TEST_F(AccessMatrix, AReloadChangesWhoMayConnect) {
  Start();
  ExpectBoth(kListed, kOtherGroup, kCannotConnect);
  daemon_->Reload(*Configure({absl::StrCat("access.users=[", kListed, "]")}));
  ExpectBoth(kListed, kOtherGroup, kServed);
  daemon_->Reload(*Configure());
  ExpectBoth(kListed, kOtherGroup, kCannotConnect);
}

TEST_F(DaemonTest, ConnectionsAboveTheLimitsAreClosedAndComeBackWhenOthersGo) {
  Start({"limits.connections_per_uid=3"});
  const std::string path = address() + "/control.sock";
  Status();  // the stub's connection is one of the three
  std::vector<int> fds;
  for (int i = 0; i < 2; ++i) fds.push_back(ConnectTo(path.c_str(), SOCK_STREAM));
  EXPECT_TRUE(Eventually([&] { return Status().counters().at("control_accepted") == 3; }));
  EXPECT_EQ(AskControl(path.c_str()), kRefused);
  EXPECT_EQ(Status().counters().at("control_refused_connections_per_uid"), 1u);
  for (int fd : fds) close(fd);
  EXPECT_TRUE(Eventually([&] { return AskControl(path.c_str()) == kServed; }));
}

TEST_F(DaemonTest, AConnectionThatSaysNothingIsClosedAfterTheHandshakeTime) {
  Start({"limits.handshake_timeout=1s"});
  for (int type : {SOCK_STREAM, SOCK_SEQPACKET}) {
    int fd = ConnectTo((address() + (type == SOCK_STREAM ? "/control.sock" : "/data.sock")).c_str(),
                       type);
    ASSERT_GE(fd, 0);
    pollfd hang_up{fd, POLLRDHUP, 0};
    EXPECT_EQ(poll(&hang_up, 1, 10'000), 1) << type;
    close(fd);
  }
  Client client = Connect();
  EXPECT_TRUE(Open(&client, Request()).ok());
}

// A slow loris: each byte comes in time, the greeting as a whole does not.
TEST_F(DaemonTest, AGreetingThatDripsInIsClosedAfterTheHandshakeTime) {
  Start({"limits.handshake_timeout=1s"});
  constexpr char kGreeting[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0";
  const int fd = ConnectTo((address() + "/control.sock").c_str(), SOCK_STREAM);
  ASSERT_GE(fd, 0);
  bool closed = false;
  for (size_t i = 0; i < 200 && !closed; ++i) {
    const char* byte = &kGreeting[std::min(i, sizeof(kGreeting) - 2)];
    if (i < sizeof(kGreeting) - 1) closed = send(fd, byte, 1, MSG_NOSIGNAL) < 0;
    pollfd hang_up{fd, POLLRDHUP, 0};
    closed |= poll(&hang_up, 1, 100) == 1;
  }
  EXPECT_TRUE(closed);
  close(fd);
  EXPECT_EQ(Status().pid(), getpid());
}

class Handshake : public ::testing::Test {
 protected:
  Handshake() {
    char folder[] = "/tmp/feedwater-handshake-XXXXXX";
    folder_ = mkdtemp(folder);
    options_.socket_path = absl::StrCat(folder_, "/data.sock");
    options_.limits.handshake_seconds = 0.5;
  }
  ~Handshake() override {
    server_.reset();
    std::filesystem::remove_all(folder_);
  }
  void Start() {
    auto server = DataServer::Create(options_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  std::string folder_;
  DataServer::Options options_;
  std::unique_ptr<DataServer> server_;
};

// A dataset that is being indexed may take minutes, with the client's connection waiting for its
// stream.
TEST_F(Handshake, ItsTimeStandsStillWhileACallIsWorkedOn) {
  Start();
  FakeTrainer waiting(options_.socket_path), forgotten(options_.socket_path);
  const auto ticket = waiting.Hello();
  ASSERT_TRUE(ticket.has_value());
  std::shared_ptr<void> hold = server_->HoldHandshake(*ticket), another = hold;
  ASSERT_TRUE(forgotten.Hello().has_value());
  EXPECT_TRUE(forgotten.HasInput(10'000));  // has been closed for its silence
  another = server_->HoldHandshake(*ticket);
  hold = nullptr;
  FakeTrainer later(options_.socket_path);
  ASSERT_TRUE(later.Hello().has_value());
  EXPECT_TRUE(later.HasInput(10'000));
  EXPECT_FALSE(waiting.HasInput(0));
  EXPECT_TRUE(server_->Identify(*ticket).ok());
  another = nullptr;
  EXPECT_TRUE(waiting.HasInput(10'000)) << "the rest of its time is over, too";
  EXPECT_FALSE(server_->Identify(*ticket).ok());
}

TEST_F(Handshake, NoNumberOfCallsMakesItsTimeLonger) {
  Start();
  FakeTrainer trainer(options_.socket_path);
  const auto ticket = trainer.Hello();
  ASSERT_TRUE(ticket.has_value());
  ArenaOptions too_large;
  too_large.layout.slot_bytes = int64_t{1} << 40;
  too_large.budget = MemoryBudget::Create(1 << 20);
  EXPECT_TRUE(Eventually([&] {
    (void)server_->Identify(*ticket);
    (void)server_->HoldHandshake(*ticket);
    (void)server_->OpenSession(*ticket, too_large, {});
    return trainer.HasInput(10);
  }));
  const auto closing = trainer.Closing();
  ASSERT_TRUE(closing.has_value());
  EXPECT_EQ(closing->code, static_cast<uint32_t>(absl::StatusCode::kDeadlineExceeded));
}

TEST_F(Handshake, WhoIsTakenOffTheListIsFoundByTheTicket) {
  std::atomic<bool> listed = true;
  options_.account_of = [](uid_t) { return uid_t{77}; };
  options_.access = [&](const PeerIdentity& peer) -> std::optional<absl::Status> {
    EXPECT_EQ(peer.uid, getuid()) << "not its account";
    return listed ? absl::OkStatus() : absl::PermissionDeniedError("not listed");
  };
  Start();
  FakeTrainer trainer(options_.socket_path);
  const auto ticket = trainer.Hello();
  ASSERT_TRUE(ticket.has_value());
  EXPECT_EQ(server_->Identify(*ticket)->uid, 77u);
  EXPECT_EQ(server_->CheckAccess(*ticket), absl::OkStatus());
  listed = false;
  EXPECT_EQ(server_->CheckAccess(*ticket), absl::PermissionDeniedError("not listed"));
  SessionTicket wrong = *ticket;
  wrong[0] ^= 1;
  EXPECT_TRUE(absl::IsUnavailable(*server_->CheckAccess(wrong)));
}

TEST_F(DaemonTest, AnOversizedRequestIsRefused) {
  Start();
  Client client = Connect();
  v1::OpenStreamRequest request = Request();
  request.mutable_pipeline()->mutable_text()->set_yaml(std::string(2 << 20, ' '));
  EXPECT_EQ(Open(&client, request).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Status().pid(), getpid());
}

TEST_F(DaemonTest, GarbageOnTheControlSocketHarmsNobody) {
  Start({"limits.connections_per_uid=200"});
  const std::string path = address() + "/control.sock";
  for (int i = 0; i < 100; ++i) {
    int fd = ConnectTo(path.c_str(), SOCK_STREAM);
    ASSERT_GE(fd, 0);
    std::string garbage(static_cast<size_t>(i) * 7, static_cast<char>(i));
    (void)send(fd, garbage.data(), garbage.size(), MSG_NOSIGNAL);
    close(fd);
  }
  EXPECT_EQ(Status().pid(), getpid());
}

}  // namespace
}  // namespace feedwater::server
