#include "client/cpp/control_channel.h"

#include "absl/strings/str_cat.h"

namespace feedwater {

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

absl::Status FromGrpc(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

}  // namespace feedwater
