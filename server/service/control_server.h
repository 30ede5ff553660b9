// The gRPC server behind control.sock: the Control service with the standard health and reflection
// services. It has no port of its own; connections come from the ControlListener through the
// ControlGate.
#pragma once

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "server/service/answers.h"
#include "server/service/control_gate.h"
#include "server/service/control_listener.h"
#include "server/service/control_service.h"

namespace feedwater::server {

class ControlServer {
 public:
  // `listener` without `admit` and `gate` without `serve` and `access`, which are filled in here.
  // The service must outlive this object.
  static absl::StatusOr<std::unique_ptr<ControlServer>> Create(ControlListener::Options listener,
                                                               ControlGate::Options gate,
                                                               ControlService* service,
                                                               Answers* answers,
                                                               size_t max_request_bytes);
  ~ControlServer() { Stop(); }

  absl::Status Start();  // begins to serve; health turns SERVING
  // Health turns NOT_SERVING and nobody new is let in; calls in progress go on.
  void Refuse();
  // Refuse, then ends what is still going on within a second or so. Waits for handlers that run.
  void Stop();
  std::map<std::string, uint64_t> counters() const;
  uint64_t calls() const { return gate_->calls(); }
  std::optional<uid_t> WhoIs(const std::string& grpc_peer) const { return gate_->WhoIs(grpc_peer); }
  std::optional<absl::Status> CheckAccess(const std::string& grpc_peer) {
    return gate_->CheckAccess(grpc_peer);
  }
  void Reconsider() { listener_->Reconsider(); }  // as ControlListener's
  void AccessHasChanged() { gate_->AccessHasChanged(); }

 private:
  ControlServer() = default;

  // The listener goes first, then the server, whose last answers the gate passes on.
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<ControlGate> gate_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<ControlListener> listener_;
};

}  // namespace feedwater::server
