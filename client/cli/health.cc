// feedwater health: the standard gRPC health service, for probes of containers and service
// managers.
#include <grpcpp/generic/generic_stub.h>

#include <chrono>
#include <iostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/cli/command.h"
#include "client/cpp/address.h"

namespace feedwater::cli {
namespace {

// grpc.health.v1.Health/Check with an empty request; the answer is one enum, field 1: SERVING is 1.
// Debian ships no generated code for that service, and two bytes need none.
absl::StatusOr<bool> IsServing(const std::string& folder, double timeout_s) {
  auto channel = grpc::CreateChannel(absl::StrCat("unix:", folder, "/control.sock"),
                                     grpc::InsecureChannelCredentials());
  grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer> stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::milliseconds(static_cast<int64_t>(timeout_s * 1e3)));
  grpc::CompletionQueue queue;
  grpc::ByteBuffer request(nullptr, 0), response;
  grpc::Status status;
  auto call = stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", request, &queue);
  call->StartCall();
  call->Finish(&response, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  if (!status.ok()) return FromGrpc(status);
  grpc::Slice slice;
  if (!response.DumpToSingleSlice(&slice).ok())
    return absl::InternalError("unreadable answer of the health service");
  return slice.size() == 2 && slice.begin()[0] == 0x08 && slice.begin()[1] == 0x01;
}

}  // namespace

void AddHealth(CLI::App& app, Context& context) {
  static double timeout_s = 5;
  CLI::App* command = AddCommand(
      app, context, "health", "exit 0 when the daemon serves, 1 when it does not",
      "  feedwater health\n"
      "  feedwater --address /run/feedwater/1 health --timeout 2   # a container's HEALTHCHECK",
      [&context]() -> absl::Status {
        absl::StatusOr<std::string> folder = FindAddress(context.address);
        if (!folder.ok()) return folder.status();
        absl::StatusOr<bool> serving = IsServing(*folder, timeout_s);
        if (!serving.ok()) return serving.status();
        if (!*serving)
          return absl::UnavailableError("the daemon is not serving (starting or draining)");
        if (context.json) {
          std::cout << nlohmann::json({{"status", "SERVING"}, {"address", *folder}}).dump(2)
                    << "\n";
        } else {
          std::cout << "serving at " << *folder << "\n";
        }
        return absl::OkStatus();
      });
  command->add_option("--timeout", timeout_s, "seconds to wait for an answer")
      ->capture_default_str();
}

}  // namespace feedwater::cli
