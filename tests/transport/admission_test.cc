// Who is let in to the data socket, how many, and for how long before a stream is opened. Those who
// are not are told why, and a bystander's batches go on.
#include "server/transport/admission.h"

#include <sys/resource.h>

#include <atomic>
#include <vector>

#include "server/base/log_limiter.h"
#include "tests/transport/data_server_fixture.h"

namespace feedwater::server {
namespace {

class AdmissionTest : public DataServerTest {};

TEST_F(AdmissionTest, AThousandHalfOpenConnectionsEndAfterTheHandshakesTime) {
  rlimit limit;
  getrlimit(RLIMIT_NOFILE, &limit);
  constexpr int kConnections = 1000;
  if (limit.rlim_max < 4 * kConnections) GTEST_SKIP() << "too few descriptors here";
  limit.rlim_cur = limit.rlim_max;  // both ends and the pidfds are this process's
  setrlimit(RLIMIT_NOFILE, &limit);
  Start([](DataServer::Options* options) {
    options->limits.handshake_seconds = 2;
    options->limits.max_connections = options->limits.connections_per_uid = kConnections + 1;
  });
  auto session = Open();
  ASSERT_TRUE(session);
  std::vector<FakeTrainer> trainers;
  for (int i = 0; i < kConnections; ++i) {
    trainers.emplace_back(path_);
    ASSERT_TRUE(trainers.back().connected());
    if (i % 2 == 0) trainers.back().Hello();  // says hello, never opens a stream
  }
  for (FakeTrainer& trainer : trainers) {
    const auto closing = trainer.Closing();
    ASSERT_TRUE(closing);
    EXPECT_EQ(closing->code, static_cast<uint32_t>(absl::StatusCode::kDeadlineExceeded))
        << closing->message;
  }
  EXPECT_TRUE(CountBecomes("handshake_timeout", kConnections));
  EXPECT_TRUE(Works(&*session));
}

TEST_F(AdmissionTest, AnOpenSessionHasNoTimeLimit) {
  Start([](DataServer::Options* options) { options->limits.handshake_seconds = 0.05; });
  auto session = Open();
  ASSERT_TRUE(session);
  FakeTrainer half_open(path_);
  ASSERT_TRUE(half_open.Closing());  // by now the limit has passed for the open one as well
  EXPECT_TRUE(Works(&*session));
  EXPECT_TRUE(CountBecomes("handshake_timeout", 1));
}

TEST_F(AdmissionTest, ConnectionsOverTheLimitsAreTurnedAwayWithTheLimitsName) {
  Start([](DataServer::Options* options) { options->limits.max_connections = 3; });
  {
    auto a = Open(), b = Open(), c = Open();
    ASSERT_TRUE(a && b && c);
    FakeTrainer fourth(path_);
    const auto closing = fourth.Closing();
    ASSERT_TRUE(closing);
    EXPECT_EQ(closing->code, static_cast<uint32_t>(absl::StatusCode::kResourceExhausted));
    EXPECT_NE(std::string(closing->message).find("max_connections: 3"), std::string::npos)
        << closing->message;
    EXPECT_EQ(Count("refused_connections"), 1u);
    EXPECT_TRUE(Works(&*a));
  }
  ASSERT_TRUE(CountBecomes("reclaimed_hangup", 3));
  EXPECT_TRUE(Open());
}

TEST_F(AdmissionTest, OneUserCannotTakeAllConnections) {
  Start([](DataServer::Options* options) { options->limits.connections_per_uid = 2; });
  {
    auto a = Open(), b = Open();
    ASSERT_TRUE(a && b);
    FakeTrainer third(path_);
    const auto closing = third.Closing();
    ASSERT_TRUE(closing);
    EXPECT_EQ(closing->code, static_cast<uint32_t>(absl::StatusCode::kResourceExhausted));
    EXPECT_NE(std::string(closing->message).find("max_connections_per_uid"), std::string::npos);
    EXPECT_EQ(Count("refused_connections_per_uid"), 1u);
  }
  ASSERT_TRUE(CountBecomes("reclaimed_hangup", 2));
  EXPECT_TRUE(Open());
}

TEST_F(AdmissionTest, WhoMayNotConnectIsToldSo) {
  std::atomic<bool> allow = false;
  Start([&](DataServer::Options* options) {
    options->access = [&](const PeerIdentity& peer) {
      return allow ? absl::OkStatus()
                   : absl::PermissionDeniedError("user " + std::to_string(peer.uid));
    };
  });
  FakeTrainer trainer(path_);
  const auto closing = trainer.Closing();
  ASSERT_TRUE(closing);
  EXPECT_EQ(closing->code, static_cast<uint32_t>(absl::StatusCode::kPermissionDenied));
  EXPECT_EQ(std::string(closing->message), "user " + std::to_string(getuid()));
  EXPECT_EQ(Count("refused_access"), 1u);
  EXPECT_EQ(Count("accepted"), 0u);
  allow = true;
  EXPECT_TRUE(Open());
}

// Looking up a user may take long; nobody else waits for it, and it has an end.
TEST_F(AdmissionTest, WhoseAccessIsBeingLookedUpWaitsAndNobodyElseDoes) {
  std::atomic<int> asked = 0;
  std::atomic<bool> known = false;
  std::atomic<bool> look_up = false;
  Start([&](DataServer::Options* options) {
    options->limits.connections_per_uid = 4;
    options->access = [&](const PeerIdentity&) -> std::optional<absl::Status> {
      if (!look_up) return absl::OkStatus();
      ++asked;
      if (!known) return std::nullopt;
      return absl::OkStatus();
    };
  });
  auto bystander = Open();
  ASSERT_TRUE(bystander);
  look_up = true;
  FakeTrainer waiting(path_), second(path_), third(path_);
  ASSERT_TRUE(Eventually([&] { return asked == 3; }));
  EXPECT_FALSE(waiting.HasInput(0));
  EXPECT_TRUE(Works(&*bystander));
  FakeTrainer over(path_);
  const auto closing = over.Closing();
  ASSERT_TRUE(closing) << "who waits is counted";
  EXPECT_NE(std::string(closing->message).find("max_connections_per_uid"), std::string::npos);
  known = true;
  server_->Reconsider();
  EXPECT_TRUE(waiting.Hello());
  EXPECT_TRUE(second.Hello());
}

TEST_F(AdmissionTest, AUserDatabaseThatNeverAnswersEndsTheConnectionInTime) {
  Start([](DataServer::Options* options) {
    options->limits.handshake_seconds = 0.05;
    options->access = [](const PeerIdentity&) { return std::nullopt; };
  });
  FakeTrainer trainer(path_);
  const auto closing = trainer.Closing();
  ASSERT_TRUE(closing);
  EXPECT_EQ(closing->code, static_cast<uint32_t>(absl::StatusCode::kUnavailable));
  EXPECT_NE(std::string(closing->message).find("user database"), std::string::npos);
  EXPECT_TRUE(CountBecomes("refused_unknown", 1));
}

TEST_F(AdmissionTest, NumbersOfAUserNamespaceCountAsTheirOwners) {
  std::atomic<int> asked = 0;
  Start([&](DataServer::Options* options) {
    options->access = [&](const PeerIdentity&) { return ++asked, absl::OkStatus(); };
    options->limits.connections_per_uid = 2;
    options->account_of = [](uid_t) { return uid_t{4711}; };
  });
  auto a = Open(), b = Open();
  ASSERT_TRUE(a && b);
  EXPECT_EQ(server_->sessions(4711), 2);
  FakeTrainer third(path_);
  const auto closing = third.Closing();
  ASSERT_TRUE(closing);
  EXPECT_NE(std::string(closing->message).find("user 4711 has 2 connections"), std::string::npos);
  EXPECT_EQ(asked, 2) << "a connection over the limit starts no look-up";
  for (int i = 0; i < LogLimiter::kLines; ++i) EXPECT_TRUE(FakeTrainer(path_).Closing());
  EXPECT_FALSE(ClientLog().Admits("refused_connections_per_uid", 4711)) << "the owner's lines";
}

TEST_F(AdmissionTest, DescriptorsAboveTheClientsShareAreNotGiven) {
  const int next = dup(0);
  close(next);
  Start([&](DataServer::Options* options) { options->limits.max_descriptor = next + 40; });
  std::vector<FakeTrainer> trainers;
  bool refused = false;
  for (int i = 0; i < 40 && !refused; ++i) {
    trainers.emplace_back(path_);
    ASSERT_TRUE(trainers.back().connected());
    refused = !trainers.back().Hello();
  }
  EXPECT_TRUE(refused);
  EXPECT_EQ(Count("refused_descriptors"), 1u);
  trainers.clear();
  EXPECT_TRUE(Eventually([&] { return Open().has_value(); }));
}

TEST_F(AdmissionTest, WithoutADescriptorLeftClientsAreTurnedAwayAndTheOthersGoOn) {
  Start();
  auto session = Open();
  ASSERT_TRUE(session);
  FakeTrainer waiting(path_);
  ASSERT_TRUE(waiting.Hello());
  const int before = OpenDescriptors();
  rlimit old_limit;
  getrlimit(RLIMIT_NOFILE, &old_limit);
  const int next = dup(0);
  close(next);
  // Two more, so that the client's own socket fits but neither the daemon's end nor a pidfd for it.
  rlimit limit{static_cast<rlim_t>(next) + 1, old_limit.rlim_max};
  setrlimit(RLIMIT_NOFILE, &limit);
  {
    FakeTrainer trainer(path_);
    EXPECT_TRUE(trainer.connected());
    EXPECT_FALSE(trainer.Hello());
  }
  EXPECT_TRUE(Works(&*session));
  setrlimit(RLIMIT_NOFILE, &old_limit);
  EXPECT_TRUE(Eventually([&] { return Count("accept_failed") >= 1; }));
  EXPECT_TRUE(Open());
  EXPECT_TRUE(Eventually([&] { return OpenDescriptors() == before; }));
}

}  // namespace
}  // namespace feedwater::server
