// The gate between clients and gRPC, with a socket pair for each client and the test in gRPC's
// place: bytes pass unchanged, and a user who floods stops itself and nobody else.
#include "server/service/control_gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/base/clock.h"
#include "tests/testing/declared_count.h"
#include "tests/testing/eventually.h"

namespace feedwater::server {
namespace {

using ::feedwater::testing::Eventually;
using ::testing::HasSubstr;

constexpr uid_t kMallory = 1001, kAlice = 1002;
constexpr uint8_t kPing = 6;

std::string Frame(uint8_t type, uint8_t flags, uint32_t stream, const std::string& payload) {
  std::string frame;
  for (int shift : {16, 8, 0}) frame.push_back(static_cast<char>(payload.size() >> shift));
  frame.push_back(static_cast<char>(type));
  frame.push_back(static_cast<char>(flags));
  for (int shift : {24, 16, 8, 0}) frame.push_back(static_cast<char>(stream >> shift));
  return frame + payload;
}
std::string Call(uint32_t stream) {
  return Frame(Http2Frame::kHeaders, Http2Frame::kEndHeaders, stream, "headers");
}
std::string Preface() { return std::string(kHttp2Preface); }

// One side of a connection, as a test holds it.
class End {
 public:
  explicit End(Fd fd) : fd_(std::move(fd)) {}
  // How many bytes were taken before nobody read any more, or all.
  size_t Send(const std::string& bytes) {
    size_t sent = 0;
    while (sent < bytes.size()) {
      const ssize_t put =
          send(fd_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (put > 0) {
        sent += static_cast<size_t>(put);
        continue;
      }
      pollfd writable{fd_.get(), POLLOUT, 0};
      if (put == 0 || errno != EAGAIN || poll(&writable, 1, 50) != 1) break;
    }
    return sent;
  }
  // Everything until `enough` bytes are there, the end, or the time is over.
  std::string Receive(size_t enough, int64_t most_ms = 10'000) {
    std::string got;
    char buffer[65536];
    const int64_t end_ns = MonotonicNs() + most_ms * 1'000'000;
    while (got.size() < enough) {
      pollfd readable{fd_.get(), POLLIN, 0};
      const int64_t left_ms = std::max<int64_t>(0, (end_ns - MonotonicNs()) / 1'000'000);
      if (poll(&readable, 1, static_cast<int>(left_ms)) != 1) break;
      const ssize_t size = recv(fd_.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
      if (size <= 0) {
        ended_ = size == 0 || errno == ECONNRESET;
        break;
      }
      got.append(buffer, static_cast<size_t>(size));
    }
    return got;
  }
  bool ended() {
    Receive(size_t{1} << 30);
    return ended_;
  }
  void HalfClose() { shutdown(fd_.get(), SHUT_WR); }
  int fd() const { return fd_.get(); }

 private:
  Fd fd_;
  bool ended_ = false;
};

class ControlGateTest : public ::testing::Test {
 protected:
  void Start(ControlGate::Options options = {}) {
    options.serve = [this](int fd) {
      std::lock_guard<std::mutex> lock(mu_);
      served_.emplace_back(Fd(fd));
    };
    auto gate = ControlGate::Create(std::move(options));
    ASSERT_TRUE(gate.ok()) << gate.status();
    gate_ = *std::move(gate);
    ASSERT_TRUE(gate_->Start().ok());
  }
  absl::StatusOr<End> Connect(uid_t uid) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    End client{Fd(ends[0])};
    absl::Status admitted = gate_->Admit(Fd(ends[1]), {uid, uid, 1}, uid);
    if (!admitted.ok()) return admitted;
    return client;
  }
  // A client that has said that it speaks HTTP/2, and gRPC's end of its connection.
  struct Pair {
    End client, grpc;
  };
  Pair Join(uid_t uid) {
    auto client = Connect(uid);
    EXPECT_TRUE(client.ok()) << client.status();
    const size_t before = served();
    client->Send(Preface());
    EXPECT_TRUE(Eventually([&] { return served() > before; }));
    std::lock_guard<std::mutex> lock(mu_);
    End grpc = std::move(served_.back());
    served_.pop_back();
    EXPECT_EQ(grpc.Receive(Preface().size()), Preface());
    return {*std::move(client), std::move(grpc)};
  }
  size_t served() {
    std::lock_guard<std::mutex> lock(mu_);
    return served_.size();
  }
  uint64_t Counted(const char* name) {
    return feedwater::testing::DeclaredCount(gate_->counters(), name);
  }

  std::mutex mu_;
  std::vector<End> served_;
  std::unique_ptr<ControlGate> gate_;
};

TEST_F(ControlGateTest, BytesPassUnchangedHoweverTheyArrive) {
  Start();
  Pair pair = Join(kAlice);
  std::string request = Frame(Http2Frame::kSettings, 0, 0, "") + Call(1) +
                        Frame(Http2Frame::kData, 0, 1, std::string(16384, 'd')) +
                        Frame(Http2Frame::kData, Http2Frame::kEndStream, 1, "");
  for (size_t i = 0; i < 64; ++i) pair.client.Send(request.substr(i, 1));
  pair.client.Send(request.substr(64));
  EXPECT_EQ(pair.grpc.Receive(request.size()), request);

  std::string answer = Frame(Http2Frame::kSettings, 0, 0, "123456") +
                       Frame(Http2Frame::kData, 0, 1, std::string(300'000, 'a'));
  size_t sent = 0;
  std::string got;
  while (got.size() < answer.size()) {
    const size_t chunk = pair.grpc.Send(answer.substr(sent, 10'000));
    sent += chunk;
    const std::string more = pair.client.Receive(chunk);
    if (more.empty()) break;
    got += more;
  }
  EXPECT_EQ(got, answer);
}

TEST_F(ControlGateTest, HeadersWithoutAnEndGoNoFurtherAndTheClientIsTold) {
  Start();
  Pair pair = Join(kMallory);
  pair.client.Send(Frame(Http2Frame::kHeaders, 0, 1, "h"));
  for (int i = 0; i < 100; ++i) {
    pair.client.Send(Frame(Http2Frame::kContinuation, 0, 1, std::string(4000, 'c')));
  }
  EXPECT_THAT(pair.client.Receive(1000), HasSubstr("headers of more than 16384 bytes"));
  EXPECT_LT(pair.grpc.Receive(1 << 20).size(), 20'000u);
  EXPECT_TRUE(pair.grpc.ended());
  EXPECT_EQ(Counted("control_refused_protocol"), 1u);
}

// Answers that nobody reads: what provokes them is no longer read either, so that neither the gate
// nor gRPC holds more than a bounded number of bytes.
TEST_F(ControlGateTest, AClientThatDoesNotReadIsNotRead) {
  Start();
  Pair pair = Join(kMallory);
  const std::string ping = Frame(kPing, 0, 0, "12345678");
  std::string pings;
  for (int i = 0; i < 100; ++i) pings += ping;
  size_t asked = 0, answered = 0;
  for (int i = 0; i < 200; ++i) {
    const size_t sent = pair.client.Send(pings);
    asked += sent;
    pair.grpc.Receive(sent, 20);
    answered += pair.grpc.Send(Frame(Http2Frame::kData, 0, 1, std::string(16384, 'x')));
    if (sent < pings.size()) break;
  }
  EXPECT_LT(asked, 400'000u);
  EXPECT_LT(answered, 1'000'000u);
  Pair other = Join(kAlice);  // and nobody else is kept from it
  other.client.Send(ping);
  EXPECT_EQ(other.grpc.Receive(ping.size()), ping);
}

// What has no room here is told as a hang-up again and again.
TEST_F(ControlGateTest, AnswersThatNobodyReadsCostNothingWhenGrpcHasEnded) {
  Start();
  Pair pair = Join(kMallory);
  const std::string data =
      Frame(Http2Frame::kData, 0, 1, std::string(16384 - kFrameHeadBytes, 'x'));
  std::string answers;
  for (;;) {
    const size_t sent = pair.grpc.Send(data);
    answers += data.substr(0, sent);
    if (sent < data.size()) break;
  }
  pair.grpc = End(Fd());
  const auto cpu_ns = [] {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec * 1'000'000'000 + now.tv_nsec;
  };
  const int64_t before_ns = cpu_ns();
  absl::SleepFor(absl::Milliseconds(200));
  EXPECT_LT(cpu_ns() - before_ns, 60'000'000);
  // They are there for who reads at last.
  EXPECT_EQ(pair.client.Receive(answers.size()).size(), answers.size());
  EXPECT_TRUE(pair.client.ended());
}

TEST_F(ControlGateTest, AClientThatShutsOneDirectionDownIsGone) {
  ControlGate::Options options;
  options.limits.connections_per_uid = 1;
  Start(options);
  Pair pair = Join(kMallory);
  EXPECT_TRUE(absl::IsResourceExhausted(Connect(kMallory).status()));
  pair.client.HalfClose();
  EXPECT_TRUE(pair.grpc.ended());
  EXPECT_TRUE(pair.client.ended());
  EXPECT_TRUE(Eventually([&] { return Connect(kMallory).ok(); }));
}

TEST_F(ControlGateTest, CallsInProgressAreCountedForEachUserUntilTheyEnd) {
  ControlGate::Options options;
  options.limits.calls_per_uid = 3;
  Start(options);
  Pair first = Join(kMallory), second = Join(kMallory), alice = Join(kAlice);
  first.client.Send(Call(1) + Call(3));
  EXPECT_EQ(first.grpc.Receive(2 * Call(1).size()).size(), 2 * Call(1).size());
  second.client.Send(Call(1));
  EXPECT_EQ(second.grpc.Receive(Call(1).size()), Call(1));

  // One ends: its place is free again.
  const std::string trailers = Frame(
      Http2Frame::kHeaders, Http2Frame::kEndStream | Http2Frame::kEndHeaders, 3, "grpc-status: 0");
  first.grpc.Send(trailers);
  EXPECT_EQ(first.client.Receive(trailers.size()), trailers);
  first.client.Send(Call(5));
  EXPECT_EQ(first.grpc.Receive(Call(5).size()), Call(5));

  alice.client.Send(Call(1));
  EXPECT_EQ(alice.grpc.Receive(Call(1).size()), Call(1));
  second.client.Send(Call(3));
  EXPECT_THAT(second.client.Receive(1000), HasSubstr("limits.calls_per_uid = 3"));
  EXPECT_TRUE(second.grpc.ended());
  EXPECT_EQ(Counted("control_refused_calls_per_uid"), 1u);
  // The connection's own call ended with it.
  first.client.Send(Call(7));
  EXPECT_EQ(first.grpc.Receive(Call(7).size()), Call(7));
}

// More calls than the rate allows wait with their client, on all its connections together, and
// reach gRPC no faster than the rate.
TEST_F(ControlGateTest, AFloodOfCallsWaitsAndNobodyElseDoes) {
  Start();
  const int64_t start_ns = MonotonicNs();
  std::vector<Pair> floods;
  std::vector<size_t> sent(4), passed(4);
  for (int i = 0; i < 4; ++i) floods.push_back(Join(kMallory));
  std::string flood;
  for (uint32_t stream = 1; stream < 8000; stream += 2) {
    flood += Call(stream) + Frame(Http2Frame::kReset, 0, stream, "1234");
  }
  const size_t one = flood.size() / 4000;
  for (int round = 0; round < 10; ++round) {
    for (size_t i = 0; i < floods.size(); ++i) {
      sent[i] += floods[i].client.Send(flood.substr(sent[i], 20'000));
      passed[i] += floods[i].grpc.Receive(size_t{1} << 30, 20).size();
    }
  }
  Pair alice = Join(kAlice);
  alice.client.Send(Call(1));
  EXPECT_EQ(alice.grpc.Receive(Call(1).size()), Call(1));
  const double seconds = static_cast<double>(MonotonicNs() - start_ns) / 1e9;
  size_t calls = 0;
  for (const size_t bytes : passed) calls += bytes / one;
  EXPECT_LE(static_cast<double>(calls), 600 + 50 * seconds + 10) << seconds << " s";
  EXPECT_GE(calls, 300u) << "one that is reset counts for one and a half";
}

TEST_F(ControlGateTest, GrpcsEndIsNamedAfterItsClient) {
  Start();
  Pair pair = Join(kAlice);
  sockaddr_un address{};
  socklen_t size = sizeof(address);
  ASSERT_EQ(getpeername(pair.grpc.fd(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  ASSERT_EQ(address.sun_path[0], '\0');
  const std::string name = absl::StrCat("unix-abstract:", address.sun_path + 1);
  ASSERT_TRUE(gate_->WhoIs(name).has_value()) << name;
  EXPECT_EQ(*gate_->WhoIs(name), kAlice);
  EXPECT_FALSE(gate_->WhoIs("unix-abstract:nobody").has_value());
  EXPECT_FALSE(gate_->WhoIs("").has_value());
  pair.client = End(Fd());
  EXPECT_TRUE(Eventually([&] { return !gate_->WhoIs(name).has_value(); }));
}

TEST_F(ControlGateTest, WhoDoesNotSpeakHttp2InTimeIsClosed) {
  ControlGate::Options options;
  options.limits.handshake_seconds = 0.3;
  Start(options);
  auto wrong = Connect(kMallory), silent = Connect(kMallory), half = Connect(kMallory);
  ASSERT_TRUE(wrong.ok() && silent.ok() && half.ok());
  wrong->Send("GET / HTTP/1.1\r\n\r\n");
  half->Send(Preface().substr(0, 10));
  EXPECT_TRUE(wrong->ended());
  EXPECT_TRUE(silent->ended());
  EXPECT_TRUE(half->ended());
  EXPECT_EQ(served(), 0u);  // gRPC has not heard of any of them
  EXPECT_EQ(Counted("control_refused_handshake_timeout"), 2u);
}

}  // namespace
}  // namespace feedwater::server
