#include "server/service/answers.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/memory_budget.h"
#include "server/base/status.h"
#include "server/base/units.h"

namespace feedwater::server {
namespace {

constexpr int64_t kSmallBytes = 64 << 10;  // those of all calls together are few
constexpr int64_t kCopies = 4;             // the message, in objects, and what is written of it
constexpr int64_t kMostOfUser = 32 << 20;  // of answers that are not read yet

}  // namespace

// gRPC keeps it as long as the call.
class Answers::Call final : public grpc::experimental::Interceptor {
 public:
  Call(std::shared_ptr<Answers> answers, const grpc::ServerContextBase* context)
      : answers_(std::move(answers)), context_(context) {
    MutexLock lock(&answers_->mu_);
    answers_->calls_[context_] = this;
  }
  ~Call() override {
    MutexLock lock(&answers_->mu_);
    answers_->calls_.erase(context_);
    if (room.bytes() > 0 && (answers_->of_user_[user] -= room.bytes()) == 0)
      answers_->of_user_.erase(user);
  }
  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    methods->Proceed();
  }

  // Guarded by the lock of the answers.
  MemoryReservation room;
  uid_t user = 0;

 private:
  const std::shared_ptr<Answers> answers_;
  const grpc::ServerContextBase* const context_;
};

class Answers::CallFactory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit CallFactory(std::shared_ptr<Answers> answers) : answers_(std::move(answers)) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override {
    return new Call(answers_, info->server_context());
  }

 private:
  const std::shared_ptr<Answers> answers_;
};

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> Answers::Factory() {
  return std::make_unique<CallFactory>(shared_from_this());
}

absl::Status Answers::Reserve(const grpc::ServerContextBase* call, uid_t user, int64_t bytes) {
  if (bytes > kMaxAnswerBytes) {
    return absl::ResourceExhaustedError(absl::StrCat("the answer would take ", FormatBytes(bytes),
                                                     ", and one answer holds ",
                                                     FormatBytes(kMaxAnswerBytes)));
  }
  if (bytes <= kSmallBytes) return absl::OkStatus();
  FW_ASSIGN_OR_RETURN(MemoryReservation room,
                      shares_->Of(user)->Reserve("answers", kCopies * bytes));
  MutexLock lock(&mu_);
  const auto found = calls_.find(call);
  if (found == calls_.end()) return absl::OkStatus();
  int64_t& of_user = of_user_[user];
  if (of_user + room.bytes() > kMostOfUser) {
    return absl::ResourceExhaustedError(
        absl::StrCat("answers to this user that take ", FormatBytes(of_user),
                     " have not been read yet: read them, or end the calls, first"));
  }
  of_user += room.bytes();
  found->second->room = std::move(room);
  found->second->user = user;
  return absl::OkStatus();
}

}  // namespace feedwater::server
