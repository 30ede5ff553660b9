// The gRPC server behind control.sock: the Control service with the standard health and reflection
// services. It has no port of its own; ControlListener gives it the connections that it admitted.
#pragma once

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <memory>

#include "absl/status/statusor.h"
#include "server/service/control_listener.h"
#include "server/service/control_service.h"

namespace feedwater::server {

class ControlServer {
 public:
  // `listener`: without `serve`, which is filled in here. The service must outlive this object.
  static absl::StatusOr<std::unique_ptr<ControlServer>> Create(ControlListener::Options listener,
                                                               ControlService* service,
                                                               double handshake_seconds);
  ~ControlServer() { Stop(); }

  absl::Status Start();  // begins to serve; health turns SERVING
  // Health turns NOT_SERVING and nobody new is let in; calls in progress go on.
  void Refuse();
  // Refuse, then ends what is still going on within a second or so. Waits for handlers that run.
  void Stop();
  void Reconsider() { listener_->Reconsider(); }  // as ControlListener's
  const ControlListener& listener() const { return *listener_; }

 private:
  ControlServer() = default;

  // The server must go before the acceptor, and the listener before both.
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<ControlListener> listener_;
};

}  // namespace feedwater::server
