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
constexpr int64_t kMostOfUser = 32 << 20;  // of answers that are not read yet; one may be larger
constexpr auto kLookEvery = absl::Milliseconds(50);

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
    room.Release();  // before those that wait for it look: to the last one a refusal is final
    answers_->ended_.SignalAll();
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

absl::Status Answers::Reserve(const grpc::ServerContextBase* call, uid_t user, int64_t bytes,
                              int64_t most, const std::function<bool()>& gone) {
  if (bytes > most) {
    return absl::ResourceExhaustedError(absl::StrCat("the answer would take ", FormatBytes(bytes),
                                                     ", and one answer holds ", FormatBytes(most)));
  }
  if (bytes <= kSmallBytes) return absl::OkStatus();
  MutexLock lock(&mu_);
  for (;;) {
    const auto found = calls_.find(call);
    if (found == calls_.end()) return absl::OkStatus();
    const auto others = of_user_.find(user);
    const int64_t of_user = others == of_user_.end() ? 0 : others->second;
    if (of_user == 0 || of_user + kCopies * bytes <= kMostOfUser) {
      absl::StatusOr<MemoryReservation> room =
          shares_->Of(user)->Reserve("answers", kCopies * bytes);
      if (room.ok()) {
        of_user_[user] = of_user + room->bytes();
        found->second->room = *std::move(room);
        found->second->user = user;
        return absl::OkStatus();
      }
      if (of_user == 0) return room.status();
    }
    if (gone()) return absl::CancelledError("the caller left while its call was being answered");
    ended_.WaitWithTimeout(&mu_, kLookEvery);
  }
}

}  // namespace feedwater::server
