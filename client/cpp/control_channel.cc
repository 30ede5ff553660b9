#include "client/cpp/control_channel.h"

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/errors.h"
#include "client/cpp/session.h"

namespace feedwater {
namespace {

constexpr const char* kNoAnswerUrl = "feedwater/no-answer";
constexpr const char* kNotServedDetails = "not-served";  // as control.proto says

}  // namespace

std::unique_ptr<v1::Control::Stub> ConnectControl(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt("grpc.enable_http_proxy", 0);
  arguments.SetInt("grpc.use_local_subchannel_pool",
                   1);                           // a restarted daemon is a new connection at once
  arguments.SetMaxReceiveMessageSize(64 << 20);  // class names of large datasets
  return v1::Control::NewStub(
      grpc::CreateCustomChannel(absl::StrCat("unix:", address, "/control.sock"),
                                grpc::InsecureChannelCredentials(), arguments));
}

// A Unix socket with a full queue refuses a connection at once (EAGAIN), which gRPC takes for one
// that will come about; what it then says is what the kernel says of a socket without a peer.
bool QueueWasFull(const grpc::Status& status) {
  const std::string& text = status.error_message();
  return status.error_code() == grpc::StatusCode::UNAVAILABLE &&
         (absl::StrContains(text, "recvmsg:Invalid argument") ||
          absl::StrContains(text, "endpoint is not connected"));
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE &&
      status.error_details() == kNotServedDetails) {
    return NotServedError(status.error_message());
  }
  absl::Status error(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  if (absl::IsUnavailable(error) || absl::IsDeadlineExceeded(error))
    error.SetPayload(kNoAnswerUrl, absl::Cord("1"));
  return error;
}

absl::Status ExplainNoAnswer(const absl::Status& error, const std::string& address) {
  if (!error.GetPayload(kNoAnswerUrl)) return error;
  const absl::StatusOr<std::shared_ptr<Session>> session = Session::Connect(address);
  if (!session.ok() && !absl::IsDeadlineExceeded(session.status())) return session.status();
  return absl::Status(error.code(),
                      absl::StrCat("the daemon at ", address, " did not answer (", error.message(),
                                   "): it is starting, stopping or stopped; try again"));
}

}  // namespace feedwater
