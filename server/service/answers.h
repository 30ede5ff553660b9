// What large answers of control calls take until their clients have read them. The client says when
// that is: it need not read at all. So an answer has a limit, and a large one is reserved from the
// share of its user until the call has ended.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_interceptor.h>
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "server/base/mutex.h"
#include "server/base/user_shares.h"

namespace feedwater::server {

// Below the 4 MiB that a gRPC client takes if it is not told otherwise.
inline constexpr int64_t kMaxAnswerBytes = 3 << 20;
// Below the 64 MiB that our clients take, for names of classes.
inline constexpr int64_t kMaxClassNameBytes = 60 << 20;

// Thread-safe.
class Answers : public std::enable_shared_from_this<Answers> {
 public:
  explicit Answers(std::shared_ptr<UserShares> shares) : shares_(std::move(shares)) {}

  // For the server whose calls these are.
  std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> Factory();

  // Before an answer of so many bytes, of at most `most`, is made. Waits while the user has many
  // that are not read; Cancelled when `gone` said so meanwhile. ResourceExhausted when it is too
  // large, or the user's share has no room for it. A call whose end is not known here reserves
  // nothing.
  absl::Status Reserve(const grpc::ServerContextBase* call, uid_t user, int64_t bytes, int64_t most,
                       const std::function<bool()>& gone) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  class Call;
  class CallFactory;

  const std::shared_ptr<UserShares> shares_;
  Mutex mu_;
  CondVar ended_;  // calls
  std::map<const grpc::ServerContextBase*, Call*> calls_ ABSL_GUARDED_BY(mu_);
  std::map<uid_t, int64_t> of_user_ ABSL_GUARDED_BY(mu_);  // bytes reserved
};

}  // namespace feedwater::server
