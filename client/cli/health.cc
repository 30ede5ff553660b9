// feedwater health: the standard gRPC health service, for probes of containers and service
// managers.
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/command.h"
#include "client/cli/json_text.h"
#include "client/cli/status_document.h"
#include "client/cpp/address.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "server/base/escape.h"
#include "server/base/status.h"

namespace feedwater::cli {
namespace {

constexpr auto kPause = std::chrono::milliseconds(50);

absl::StatusOr<bool> IsServing(const std::string& folder, double timeout_s) {
  using grpc::health::v1::HealthCheckResponse;
  const auto stub = grpc::health::v1::Health::NewStub(grpc::CreateChannel(
      absl::StrCat("unix:", folder, "/control.sock"), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::milliseconds(static_cast<int64_t>(timeout_s * 1e3)));
  HealthCheckResponse response;
  const grpc::Status status = stub->Check(&context, {}, &response);
  if (!status.ok()) return FromGrpc(status);
  return response.status() == HealthCheckResponse::SERVING;
}

// Roots that nothing can be read from, for people: a daemon serves the others, so that is no
// failure.
std::vector<std::string> SilentRoots(const Context& context, double timeout_s) {
  const auto control = context.Control();
  if (!control.ok()) return {};
  const auto status =
      GetStatus(**control, std::chrono::seconds(std::max<int64_t>(1, std::llround(timeout_s))));
  if (!status.ok()) return {};
  return {status->silent_roots().begin(), status->silent_roots().end()};
}

absl::Status CheckServing(const Context& context, double timeout_s) {
  FW_ASSIGN_OR_RETURN(const std::string folder, FindAddress(context.address));
  FW_ASSIGN_OR_RETURN(const bool serving, IsServing(folder, timeout_s));
  if (!serving) return absl::UnavailableError("the daemon is not serving (starting or draining)");
  const std::vector<std::string> silent = SilentRoots(context, timeout_s);
  if (context.json) {
    PrintJson(nlohmann::json{{"status", "SERVING"}, {"address", folder}, {"silent_roots", silent}});
  } else {
    std::cout << "serving at " << folder << "\n";
    for (const std::string& root : silent) {
      std::cout << "but for " << server::Escaped(root)
                << ": its storage has not answered since the daemon read its configuration\n";
    }
  }
  return absl::OkStatus();
}

void AddHealth(CLI::App& app, Context& context) {
  static double timeout_s = 5, wait_s = 0;
  CLI::App* command = AddCommand(
      app, context, "health", "exit 0 when the daemon serves, 1 when it does not",
      "  feedwater health\n"
      "  feedwaterd --config feedwater.yaml & feedwater health --wait 30   # until it is up\n"
      "  feedwater --address /run/feedwater/1 health --timeout 2   # a container's HEALTHCHECK",
      [&context]() -> absl::Status {
        const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(wait_s);
        for (;;) {
          const absl::Status status = CheckServing(context, timeout_s);
          if (status.ok() || std::chrono::steady_clock::now() >= until) return status;
          std::this_thread::sleep_for(kPause);
        }
      });
  command->add_option("--timeout", timeout_s, "seconds to wait for an answer")
      ->capture_default_str();
  command->add_option("--wait", wait_s, "seconds to keep asking until the daemon serves")
      ->capture_default_str();
}

const server::Registrar<CommandEntry> kRegistrar("health", {CommandEntry::kDaemons, AddHealth});

}  // namespace

}  // namespace feedwater::cli
