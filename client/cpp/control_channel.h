// The gRPC channel to a daemon's control socket, and gRPC's errors as absl's.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "feedwater/v1/control.grpc.pb.h"

namespace feedwater {

std::unique_ptr<v1::Control::Stub> ConnectControl(const std::string& address);
// Whether a call failed because the control socket's queue was full when it connected: it has room
// again when the daemon gets on, so the call is worth another channel.
bool QueueWasFull(const grpc::Status& status);
absl::Status FromGrpc(const grpc::Status& status);

// For people: where `error` comes from FromGrpc and means that a call had no answer, why the daemon
// at `address` cannot be reached, instead of gRPC's own words. Looks at the data socket for that.
absl::Status ExplainNoAnswer(const absl::Status& error, const std::string& address);

}  // namespace feedwater
