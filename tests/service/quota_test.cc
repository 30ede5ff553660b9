// What one user can take, and that it is one user's: sessions, shared memory, and what the others
// get meanwhile. (Connections: access_test.cc; reads in flight: pipeline/scheduler_test.cc; the
// size of a pipeline's text: catalogue tests of daemon_test.cc.)
#include <grp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "tests/service/daemon_fixture.h"
#include "tests/testing/other_users.h"

namespace feedwater::server {
namespace {

constexpr uid_t kSecondUser = 52001;

// A client of another user: a child process that says HELLO, tells its ticket, and keeps the
// connection until it is let go. The test speaks gRPC for it: a call belongs to the ticket's user.
// In the child only system calls: the daemon in this process has threads.
class OtherUsersClient {
 public:
  OtherUsersClient(const std::string& address, uid_t uid) {
    int tell[2], keep[2];
    EXPECT_EQ(pipe(tell), 0);
    EXPECT_EQ(pipe(keep), 0);
    const std::string path = address + "/data.sock";
    child_ = fork();
    if (child_ == 0) {
      close(keep[1]);
      if (setgroups(0, nullptr) != 0 || setgid(uid) != 0 || setuid(uid) != 0) _exit(1);
      sockaddr_un to{};
      to.sun_family = AF_UNIX;
      strncpy(to.sun_path, path.c_str(), sizeof(to.sun_path) - 1);
      const int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
      if (connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) != 0) _exit(2);
      wire::Hello hello{};
      hello.header = wire::MakeHeader<wire::Hello>(wire::Type::kHello);
      hello.magic = wire::kMagic;
      hello.major = wire::kMajor;
      hello.minor = wire::kMinor;
      wire::Welcome welcome{};
      if (send(fd, &hello, sizeof(hello), MSG_NOSIGNAL) != sizeof(hello) ||
          recv(fd, &welcome, sizeof(welcome), 0) != sizeof(welcome))
        _exit(3);
      if (write(tell[1], welcome.ticket, sizeof(welcome.ticket)) < 0) _exit(4);
      char end;
      (void)!read(keep[0], &end, 1);
      _exit(0);
    }
    close(tell[1]);
    close(keep[0]);
    keep_ = keep[1];
    char ticket[16];
    if (read(tell[0], ticket, sizeof(ticket)) == sizeof(ticket)) ticket_.assign(ticket, 16);
    close(tell[0]);
  }
  ~OtherUsersClient() {
    close(keep_);
    waitpid(child_, nullptr, 0);
  }
  const std::string& ticket() const { return ticket_; }

 private:
  pid_t child_ = -1;
  int keep_ = -1;
  std::string ticket_;
};

v1::OpenStreamRequest Numbered(v1::OpenStreamRequest request, int number) {
  request.set_job(absl::StrCat("job", number));
  return request;
}

TEST_F(DaemonTest, AsManySessionsAsTheLimitSaysAreGrantedAndASecondUserIsServed) {
  // A session is a job here, and each has decoders where a second user is admitted.
  std::vector<std::string> overrides = {"limits.connections_per_uid=200", "memory=4GiB"};
  if (geteuid() == 0) overrides.push_back(absl::StrCat("access.users=[", kSecondUser, "]"));
  Start(overrides);
  std::vector<Client> clients;
  int granted = 0, refused = 0;
  for (int i = 0; i < 100; ++i) {
    clients.push_back(Connect());
    const grpc::Status status = Open(&clients.back(), Numbered(Request(), i));
    granted += status.ok();
    if (status.ok()) continue;
    refused += status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED;
    EXPECT_THAT(status.error_message(), ::testing::HasSubstr("limits.sessions_per_uid = 32"));
  }
  EXPECT_EQ(granted, 32);
  EXPECT_EQ(refused, 68);
  EXPECT_EQ(Status().counters().at("streams_refused_sessions_per_uid"), 68u);

  if (!::feedwater::testing::CanBe(kSecondUser))
    GTEST_SKIP() << ::feedwater::testing::kNoOtherUsers;
  OtherUsersClient second(address(), kSecondUser);
  ASSERT_EQ(second.ticket().size(), 16u);
  v1::OpenStreamRequest request = Request();
  request.set_ticket(second.ticket());
  Client unused{FakeTrainer(""), {}, {}};
  const grpc::Status status = Open(&unused, request);
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(DaemonTest, SharedMemoryOfOneUserIsBoundedAndTheSecondUsersIsItsOwn) {
  std::vector<std::string> overrides = {"limits.arena_bytes_per_uid=100KiB"};
  if (geteuid() == 0) overrides.push_back(absl::StrCat("access.users=[", kSecondUser, "]"));
  Start(overrides);
  v1::OpenStreamRequest request = Request();
  request.set_slots(4);
  Client first = Connect();
  ASSERT_TRUE(Open(&first, Numbered(request, 1)).ok());
  const uint64_t bytes = first.opened.slots() * first.opened.slot_bytes();
  ASSERT_GT(2 * bytes, 100u << 10) << "the test wants a limit that holds one and a half of them";
  ASSERT_LT(bytes, 100u << 10);

  ExpectRefused(Numbered(request, 2), grpc::StatusCode::RESOURCE_EXHAUSTED,
                "limits.arena_bytes_per_uid");
  EXPECT_EQ(Status().counters().at("streams_refused_arena_bytes_per_uid"), 1u);
  if (::feedwater::testing::CanBe(kSecondUser)) {
    OtherUsersClient second(address(), kSecondUser);
    v1::OpenStreamRequest others = Numbered(request, 2);
    others.set_ticket(second.ticket());
    Client unused{FakeTrainer(""), {}, {}};
    const grpc::Status status = Open(&unused, others);
    EXPECT_TRUE(status.ok()) << status.error_message();
  }

  // Hanging up does not help as long as the memory is kept.
  ASSERT_TRUE(first.trainer.ReceiveArena());
  first.trainer.Close();
  ASSERT_TRUE(Eventually([&] {
    const auto jobs = Status().jobs();
    return std::none_of(jobs.begin(), jobs.end(), [](const auto& j) { return j.job() == "job1"; });
  }));
  ExpectRefused(Numbered(request, 3), grpc::StatusCode::RESOURCE_EXHAUSTED,
                "limits.arena_bytes_per_uid");
  first.trainer.DropArena();
  EXPECT_TRUE(Eventually([&] {
    Client client = Connect();
    return Open(&client, Numbered(request, 4)).ok();
  }));
}

TEST_F(DaemonTest, ATicketIsWorthNothingOnceItsConnectionIsGone) {
  Start();
  Client client = Connect();
  ASSERT_TRUE(Open(&client, Request()).ok());
  const std::string ticket = client.ticket;
  client.trainer.Close();
  ASSERT_TRUE(Eventually([&] { return Status().jobs().empty(); }));
  v1::OpenStreamRequest replayed = Request();
  replayed.set_ticket(ticket);
  EXPECT_EQ(Open(&client, replayed).error_code(), grpc::StatusCode::UNAVAILABLE);
  grpc::ClientContext context;
  v1::CloseStreamRequest close;
  close.set_ticket(ticket);
  v1::CloseStreamResponse response;
  EXPECT_EQ(stub_->CloseStream(&context, close, &response).error_code(),
            grpc::StatusCode::NOT_FOUND);
}

}  // namespace
}  // namespace feedwater::server
