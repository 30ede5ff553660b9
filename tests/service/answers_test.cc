// Large answers are their user's until their calls have ended, and one user has few at a time.
#include "server/service/answers.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "feedwater/v1/control.grpc.pb.h"
#include "tests/testing/eventually.h"

namespace feedwater::server {
namespace {

using ::feedwater::testing::Eventually;
using ::testing::HasSubstr;

constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kCopies = 4;  // what an answer takes of the share, to what it has

// Calls of users 1, 2 and so on, whose answers are of so many bytes; each stays open until it is
// told to end.
class AnswersTest : public ::testing::Test, public v1::Control::Service {
 protected:
  struct Call {
    uid_t user = 0;
    int64_t bytes = 0;
    std::atomic<bool> gone{false}, asked{false}, reserved{false};
    absl::Status status;  // of the reservation; once `reserved` is set
    absl::Notification end;
  };

  AnswersTest() {
    grpc::ServerBuilder builder;
    std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> factories;
    factories.push_back(answers_->Factory());
    builder.experimental().SetInterceptorCreators(std::move(factories));
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    channel_ = server_->InProcessChannel(grpc::ChannelArguments());
  }
  ~AnswersTest() override {
    for (int number = 0; number < begun_; ++number) End(number);
    for (std::thread& thread : threads_) thread.join();
    server_->Shutdown();
  }

  Call& Begin(uid_t user, int64_t bytes) {
    const int number = begun_++;
    Call& call = calls_[number];
    call.user = user;
    call.bytes = bytes;
    threads_.emplace_back([this, number] {
      grpc::ClientContext context;
      v1::GetLedgerRequest request;
      request.set_step(number);
      v1::GetLedgerResponse response;
      (void)v1::Control::NewStub(channel_)->GetLedger(&context, request, &response);
    });
    return call;
  }
  void End(int number) {
    Call& call = calls_[number];
    call.gone = true;
    if (!call.end.HasBeenNotified()) call.end.Notify();
  }
  grpc::Status GetLedger(grpc::ServerContext* context, const v1::GetLedgerRequest* request,
                         v1::GetLedgerResponse*) override {
    Call& call = calls_[request->step()];
    call.status = answers_->Reserve(context, call.user, call.bytes, kMaxAnswerBytes * 3, [&call] {
      call.asked = true;  // it waits
      return call.gone.load();
    });
    call.reserved = true;
    call.end.WaitForNotification();
    return grpc::Status::OK;
  }
  static bool IsReserved(const Call& call) {
    return Eventually([&] { return call.reserved.load(); }) && call.status.ok();
  }

  std::shared_ptr<MemoryBudget> budget_ = MemoryBudget::Create(256 * kMiB);
  std::shared_ptr<UserShares> shares_ = std::make_shared<UserShares>(budget_);
  std::shared_ptr<Answers> answers_ = std::make_shared<Answers>(shares_);
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  Call calls_[400];
  int begun_ = 0;
  std::vector<std::thread> threads_;
};

TEST_F(AnswersTest, ALargeOneIsItsUsersUntilItsCallHasEnded) {
  EXPECT_TRUE(IsReserved(Begin(1, 3 * kMiB)));
  EXPECT_EQ(budget_->planned_bytes(), kCopies * 3 * kMiB);
  EXPECT_TRUE(IsReserved(Begin(1, 1000)));
  EXPECT_EQ(budget_->planned_bytes(), kCopies * 3 * kMiB) << "a small one is nobody's";
  End(0);
  EXPECT_TRUE(Eventually([&] { return budget_->planned_bytes() == 0; }));
}

TEST_F(AnswersTest, OneThatIsTooLargeIsRefused) {
  Call& call = Begin(1, 3 * kMaxAnswerBytes + 1);
  EXPECT_FALSE(IsReserved(call));
  EXPECT_TRUE(absl::IsResourceExhausted(call.status)) << call.status;
  EXPECT_THAT(std::string(call.status.message()), HasSubstr("one answer holds 9.0 MiB"));
  EXPECT_EQ(budget_->planned_bytes(), 0);
}

TEST_F(AnswersTest, AUserWithManyWaitsAndOthersDoNot) {
  EXPECT_TRUE(IsReserved(Begin(1, 5 * kMiB)));
  Call& second = Begin(1, 5 * kMiB);
  EXPECT_TRUE(IsReserved(Begin(2, 5 * kMiB)));
  EXPECT_TRUE(Eventually([&] { return second.asked.load(); })) << "40 MiB of one user";
  EXPECT_FALSE(second.reserved);
  End(0);
  EXPECT_TRUE(IsReserved(second));
}

// The share has room for the one or the other; who waits is let in, not refused, when the other has
// ended.
TEST_F(AnswersTest, WhoWaitsForTheLastOneFindsItsRoomFree) {
  shares_->Limit(30 * kMiB);
  for (int round = 0; round < 200; ++round) {
    Call& first = Begin(1, 5 * kMiB);
    ASSERT_TRUE(IsReserved(first)) << first.status;
    Call& second = Begin(1, 5 * kMiB);
    ASSERT_TRUE(Eventually([&] { return second.asked.load(); }));
    End(begun_ - 2);
    ASSERT_TRUE(IsReserved(second)) << "round " << round << ": " << second.status;
    End(begun_ - 1);
    ASSERT_TRUE(Eventually([&] { return budget_->planned_bytes() == 0; }));
  }
}

TEST_F(AnswersTest, NobodyWaitsWhoHasLeft) {
  EXPECT_TRUE(IsReserved(Begin(1, 5 * kMiB)));
  Call& second = Begin(1, 5 * kMiB);
  EXPECT_TRUE(Eventually([&] { return second.asked.load(); }));
  End(1);
  EXPECT_FALSE(IsReserved(second));
  EXPECT_TRUE(absl::IsCancelled(second.status)) << second.status;
}

TEST_F(AnswersTest, OneAloneMayBeLargerThanManyTogether) {
  EXPECT_TRUE(IsReserved(Begin(1, 9 * kMiB)));
  EXPECT_EQ(budget_->planned_bytes(), kCopies * 9 * kMiB);
}

TEST_F(AnswersTest, AShareWithoutRoomRefusesIt) {
  shares_->Limit(4 * kMiB);
  Call& call = Begin(1, 3 * kMiB);
  EXPECT_FALSE(IsReserved(call));
  EXPECT_TRUE(absl::IsResourceExhausted(call.status)) << call.status;
  EXPECT_TRUE(IsReserved(Begin(2, kMiB)));
}

TEST_F(AnswersTest, ACallWhoseEndIsNotKnownReservesNothing) {
  const grpc::ServerContext unknown;
  EXPECT_TRUE(answers_->Reserve(&unknown, 1, kMiB, kMaxAnswerBytes, [] { return true; }).ok());
  EXPECT_EQ(budget_->planned_bytes(), 0);
}

}  // namespace
}  // namespace feedwater::server
